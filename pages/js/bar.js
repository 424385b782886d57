// The bar at the top of the pages for operators, and what stands in place of a page without a way in.

import { html, nothing } from '../vendor/lit-html.js';
import { send } from './session.js';

/** Pages in the bar: key of the name, and path. */
const PAGES = [['bar.sale', '/'], ['bar.board', '/board'], ['bar.storm', '/storm']];

/** Paths of the pages that are served here, none if there is no answer: the bar leads to no other ones. */
export async function servedPages() {
  const reply = await send('GET', '/pages');
  return reply.ok ? reply.body.pages : [];
}

export function bar(here, served, line, words, does) {
  // A claim has a page of its own, which stands in the bar while it is looked at.
  const pages = here.startsWith('/claim/') ? [...PAGES, ['bar.trace', here]] : PAGES;
  const shown = pages.filter(([, path]) => path === here || served.includes(path));
  return html`
    <header>
      <a class="brand" href=${served.includes('/') ? '/' : here}>
        <svg viewBox="0 0 24 24" aria-hidden="true"><path d="M2 5h20v4.5a2.5 2.5 0 0 0 0 5V19H2v-4.5a2.5 2.5 0 0 0 0-5z"/><path class="bolt" d="m13 7-5 6h3.2L11 17l5-6h-3.2z"/></svg>
        flash-sale</a>
      <nav aria-label=${words.of('bar.pages')}>${shown.map(([key, path]) => html`<a href=${path} aria-current=${path === here ? 'page' : nothing}>${words.of(key)}</a>`)}</nav>
      <span class="line" data-line=${line}><i aria-hidden="true"></i><span class="word">${words.of(`line.${line}`)}</span></span>
      <button class="plain" type="button" @click=${does.turnTheme} aria-label=${words.of('theme')}>
        <svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="8.5" fill="none" stroke="currentColor" stroke-width="2.5"/><path d="M12 3.5a8.5 8.5 0 0 1 0 17z" fill="currentColor"/></svg>
      </button>
      <button class="plain" type="button" @click=${does.turnLanguage} lang=${words.language === 'zh' ? 'en' : 'zh-CN'}>${words.of('other')}</button>
    </header>`;
}

/** Asks for an administrator's token, for a tab that no link has let in. */
export function locked(code, words, does) {
  return html`
    <form class="panel" id="locked" @submit=${does.useToken}>
      <h1>${words.of('locked')}</h1>
      <p class="aside">${words.of(words.has(`locked.${code}`) ? `locked.${code}` : 'locked.no_link')}</p>
      <div class="fields">
        <label class="wide">${words.of('locked.token')}<input name="token" autocomplete="off" spellcheck="false" required></label>
        <button class="go">${words.of('locked.enter')}</button>
      </div>
    </form>`;
}
