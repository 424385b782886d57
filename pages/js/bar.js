// The bar at the top of the pages for operators, and what stands in place of a page without a way in.

import { html, nothing } from '../vendor/lit-html.js';
import { head } from './head.js';
import { send } from './session.js';

/** Pages in the bar: key of the name, and path. */
const PAGES = [['bar.sale', '/'], ['bar.board', '/board'], ['bar.storm', '/storm'], ['bar.redeem', '/redeem']];

/** Pages that stand in the bar while one of them is looked at. */
const DOCS = [['bar.docs', '/docs'], ['bar.problems', '/docs/problems']];

/** Paths of the pages that are served here, none if there is no answer: the bar leads to no other ones. */
export async function servedPages() {
  const reply = await send('GET', '/pages');
  return reply.ok ? reply.body.pages : [];
}

export function bar(here, served, line, words, does) {
  // A claim has a page of its own, which stands in the bar while it is looked at.
  const more = here.startsWith('/claim/') ? [['bar.trace', here]] : here.startsWith('/docs') ? DOCS : [];
  const shown = [...PAGES.filter(([, path]) => path === here || served.includes(path)), ...more];
  const nav = html`<nav aria-label=${words.of('bar.pages')}>${shown.map(([key, path]) => html`<a href=${path} aria-current=${path === here ? 'page' : nothing}>${words.of(key)}</a>`)}</nav>`;
  return head({ home: served.includes('/') ? '/' : here, line, nav, user: nothing }, words, does);
}

/** Asks for a token, for a tab that no link has let in. `who` is the key of a page's own words, if it isn't for administrators. */
export function locked(code, words, does, who = 'locked') {
  const key = [`${who}.${code}`, `locked.${code}`].find((it) => words.has(it)) ?? 'locked.no_link';
  return html`
    <form class="panel" id="locked" @submit=${does.useToken}>
      <h1>${words.of(who)}</h1>
      <p class="aside">${words.of(key)}</p>
      <div class="fields">
        <label class="wide">${words.of('locked.token')}<input name="token" autocomplete="off" spellcheck="false" required></label>
        <button class="go">${words.of('locked.enter')}</button>
      </div>
    </form>`;
}
