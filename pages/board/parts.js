// Parts that the panels of the board have in common.

import { html, nothing, svg } from '../vendor/lit-html.js';

const ICONS = {
  good: svg`<path d="m4.5 12.5 5 5 10-11"/>`,
  bad: svg`<path d="M12 3.5 22 20.5H2zM12 10v4.5M12 17.3v.4"/>`,
  warn: svg`<path d="M12 3.5 22 20.5H2zM12 10v4.5M12 17.3v.4"/>`,
  quiet: svg`<path d="M12 3.5a8.5 8.5 0 1 0 .01 0M12 7.5V12l3 2.5"/>`,
};

export function icon(tone) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true">${ICONS[tone]}</svg>`;
}

/** A word with a shape and a colour. */
export function chip(verdict, of, words) {
  return html`<span class="chip" data-tone=${verdict.tone}>${icon(verdict.tone)}${words.say(`${of}.${verdict.key}`, verdict)}</span>`;
}

export function panel(key, words, aside, content, width) {
  return html`
    <section class="panel ${width ?? ''}" aria-labelledby="head-${key}" id="panel-${key}">
      <div class="head"><h2 id="head-${key}">${words.of(key)}</h2>${aside === nothing ? nothing : html`<span class="aside">${aside}</span>`}</div>
      ${content}
    </section>`;
}

/** A button of the board itself. */
export function button(key, words, act, busy) {
  return html`<button class="other small" type="button" id="do-${key}" @click=${act} aria-disabled=${busy ? 'true' : 'false'}>${words.of(`do.${key}`)}</button>`;
}

/** Rare actions, behind one button. */
export function menu(name, actions, words) {
  return html`<details class="menu" id="menu-${name}"><summary class="other small" aria-label=${words.of('do.more')}>⋯</summary><div>${actions}</div></details>`;
}

/** A figure with its name. */
export function tile(key, value, words, { unit, bar, aside, tone } = {}) {
  return html`
    <div id="tile-${key}"><dt>${words.of(`tile.${key}`)}</dt>
      <dd><b class=${tone ?? ''}>${value}</b>${unit ? html` <span class="unit">${unit}</span>` : nothing}</dd>
      ${bar ? html`<dd><progress max=${bar[1]} value=${bar[0]} aria-label=${words.of(`tile.${key}`)}></progress></dd>` : nothing}
      ${aside ? html`<dd class="aside">${aside}</dd>` : nothing}</div>`;
}

/** A button in the row of an item. */
export function deed(key, words, act) {
  return html`<button class="other small ${key}" type="button" @click=${act}>${words.of(`do.${key}`)}</button>`;
}

/** A table that is a list of cards on a phone. Each column has a key, and what it shows of a row; `deeds` has no visible head. */
export function table(of, columns, rows, words) {
  const head = (key) => words.of(key === 'deeds' ? 'do' : `${of}.${key}`);
  return html`<table class="stack"><thead><tr>${columns.map(([key, , type]) => html`<th scope="col" class=${type === 'number' ? type : ''}>${key === 'deeds' ? html`<span class="unseen">${head(key)}</span>` : head(key)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map(([key, show, type]) => html`<td class=${type ?? ''} data-label=${key === 'deeds' ? nothing : head(key)}>${show(row)}</td>`)}</tr>`)}</tbody></table>`;
}
