// The head of each page: the way home, how the page stands to the service, the theme and the language.

import { html } from '../vendor/lit-html.js';

/** `nav` stands beside the way home, and `user` beside the line. */
export function head({ home, line, nav, user }, words, does) {
  return html`
    <header>
      <a class="brand" href=${home}>
        <svg viewBox="0 0 24 24" aria-hidden="true"><path d="M2 5h20v4.5a2.5 2.5 0 0 0 0 5V19H2v-4.5a2.5 2.5 0 0 0 0-5z"/><path class="bolt" d="m13 7-5 6h3.2L11 17l5-6h-3.2z"/></svg>
        flash-sale</a>
      ${nav}
      <span class="line" data-line=${line}><i aria-hidden="true"></i><span class="word">${words.of(`line.${line}`)}</span></span>
      ${user}
      <button class="plain" type="button" @click=${does.turnTheme} aria-label=${words.of('theme')}>
        <svg viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="8.5" fill="none" stroke="currentColor" stroke-width="2.5"/><path d="M12 3.5a8.5 8.5 0 0 1 0 17z" fill="currentColor"/></svg>
      </button>
      <button class="plain" type="button" @click=${does.turnLanguage} lang=${words.language === 'zh' ? 'en' : 'zh-CN'}>${words.of('other')}</button>
    </header>`;
}
