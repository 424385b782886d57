// All sales in a table, and the one that is picked.

import { html, nothing } from '../vendor/lit-html.js';
import { idOf } from './dialogs.js';
import { button, chip, icon, menu, panel, table, tile } from './parts.js';
import { equations, isFresh, isShown, onTheWay, problemOf } from './verdict.js';

/** Rows of the table until all are asked for. */
const ROWS = 6;
/** Rows that a search finds at most. */
const FOUND_MAX = 20;

/** Whether a sale can be claimed, by the time of the event. */
function stateOf(sale, now) {
  if (sale.state === 'ended' || now >= sale.closes_ms) return 'ended';
  if (sale.state !== 'active') return sale.state;
  if (now < sale.opens_ms) return 'before';
  return sale.left === 0 ? 'sold_out' : 'active';
}

/** Sales of the event, regular coupons, and one that was opened by its id. A regular coupon has a `kind`, and no units. */
function known({ board, regular, other }) {
  const all = [...board.sales, ...regular];
  return other && !all.some((one) => idOf(one) === idOf(other)) ? [other, ...all] : all;
}

export function pickedOf(state) {
  return known(state).find((one) => idOf(one) === state.coupon);
}

/** Those that a search finds: by a part of the id or of the title. */
export function foundBy(state) {
  const text = state.find.trim().toLowerCase();
  const fits = (one) => idOf(one).includes(text) || one.title.toLowerCase().includes(text);
  return known(state).filter(fits);
}

export function sales(state, words, does) {
  const found = foundBy(state).filter((one) => state.find !== '' || !one.kind || idOf(one) === state.coupon);
  const rows = found.slice(0, state.find !== '' ? FOUND_MAX : state.all ? found.length : ROWS);
  const picked = pickedOf(state);
  if (picked && state.find === '' && !rows.includes(picked)) rows.push(picked);
  const figure = (shown) => (isShown(state) ? shown : '–');
  const create = html`<button class="go small" type="button" id="do-create" @click=${() => does.open('create')}>${words.of('do.create')}</button>${menu('create', [button('create_regular', words, () => does.open('create', 'regular'))], words)}`;
  const search = html`
    <form role="search" aria-label=${words.of('sales')} class="find" @submit=${does.find}>
      <label><span class="unseen">${words.of('sales.find')}</span><input id="find" type="search" autocomplete="off" maxlength="200" placeholder=${words.of('sales.find')} .value=${state.find} @input=${does.search}></label>
      <button class="other small">${words.of('do.find')}</button>
    </form>`;
  const content = html`
    ${rows.length === 0 ? html`<p class="none">${words.of(state.find === '' ? 'sale.none' : 'sales.unknown')}</p>` : table('sales', [
    ['title', (one) => html`<span><button class="pick" type="button" data-pick=${idOf(one)} aria-pressed=${one === picked ? 'true' : 'false'} @click=${() => does.pick(idOf(one))}>${one.title}</button><span class="aside mono">${idOf(one)}</span></span>`],
    ['state', (one) => stateChip(state, one, words)],
    ['left', (one) => (one.kind ? '–' : html`<span>${figure(words.count(one.left))} <span class="unit">/ ${words.count(one.total)}</span></span>`), 'number'],
    ['rate', (one) => figure(words.count(state.rates.get(idOf(one)))), 'number'],
    ['backlog', (one) => figure(words.count(onTheWay(one))), 'number'],
    ['problem', (one) => problemChip(problemOf(state, one), words), 'values'],
  ], rows, words)}
    ${state.find === '' && found.length > ROWS ? html`<p class="deeds"><button class="other small" type="button" id="do-all" @click=${does.showAll}>${state.all ? words.of('do.fewer') : words.say('do.all', { number: found.length })}</button></p>` : nothing}
    ${state.findCode ? html`<p class="deed" role="alert">${words.of(words.has(`refused.${state.findCode}`) ? `refused.${state.findCode}` : 'refused')}</p>` : nothing}`;
  return panel('sales', words, html`<div class="deeds">${search}${create}</div>`, content, 'full');
}

function problemChip(problem, words) {
  if (problem === null) return '–';
  return problem.key === 'pending' ? html`<span class="chip" data-tone="warn">${icon('quiet')}${words.of('sales.pending')}</span>` : chip(problem, 'equation', words);
}

function stateChip(state, sale, words, id = nothing) {
  const is = stateOf(sale, state.board.now);
  const isLive = is === 'active' && isFresh(state) && Number.isInteger(sale.left) && !sale.is_pending && sale !== state.other;
  return html`<span class="chip" id=${id} data-tone=${isLive ? 'live' : 'plain'} data-state=${is}><i aria-hidden="true"></i>${words.of(`state.${is}`)}</span>`;
}

/** The sale that is picked: its deeds, its figures, and whether its units add up. */
export function sale(state, words, does) {
  const { board: it } = state;
  const one = pickedOf(state);
  if (!one) return nothing;
  const id = idOf(one);
  const is = stateOf(one, it.now);
  const until = is === 'before' ? ['opens', one.opens_ms - it.now] : ['closes', one.closes_ms - it.now];
  const act = (key) => html`<button class="other small ${key}" type="button" id="do-${key}" @click=${() => does.open(key, null, `${one.title} · ${id}`)}>${words.of(`do.${key}`)}</button>`;
  const rare = one.state !== 'ended' ? ['end', 'cancel_unpaid'] : one.in_redis ? ['cancel_unpaid', 'archive'] : ['cancel_unpaid'];
  return html`
    <section class="panel sale full" aria-labelledby="head-sale" id="panel-sale" data-coupon=${id}>
      <div class="head">
        <div class="line-of"><h2 id="head-sale">${one.title}</h2>${stateChip(state, one, words, 'sale-state')}
          ${one.is_pending ? html`<span class="chip" id="pending" data-tone="warn">${icon('quiet')}${words.of('sale.pending')}</span>` : nothing}</div>
        <div class="deeds">${one.state !== 'ended' ? [one.state === 'paused' ? 'resume' : 'pause', ...(one.kind ? [] : ['restock']), 'edit'].map(act) : nothing}${menu('sale', rare.map(act), words)}</div>
      </div>
      <p class="aside"><span class="mono">${id}</span> · ${is === 'ended' || one.kind ? nothing : html`${words.say(`sale.${until[0]}`, { ms: until[1] })} · `}${words.say('sale.revision', { number: one.revision })}
        ${state.served.includes('/') ? html` · <a href="/sale/${id}" target="_blank">${words.of('sale.page')}</a>` : nothing}</p>
      ${one.kind ? html`<p class="none">${words.of('equations.regular')}</p>` : html`
        ${figures(state, one, words)}
        <div id="panel-equations">${conservation(state, one, words)}</div>`}
    </section>`;
}

function figures(state, one, words) {
  const shown = isShown(state) ? one : { left: null, units: null };
  return html`<dl class="tiles">
    ${tile('left', words.count(shown.left), words, { unit: `/ ${words.count(one.total)}`, bar: shown.left === null ? null : [shown.left, one.total] })}
    ${tile('sold_rate', shown === one ? words.count(state.rates.get(idOf(one))) : '–', words)}
    ${tile('sale_backlog', words.count(onTheWay(shown)), words)}
  </dl>`;
}

function conservation(state, one, words) {
  const { units } = one;
  if (!units) return html`<p class="aside">${words.of(one.in_redis ? 'equations.not_known' : 'equations.not_in_redis')}</p>`;
  const [ofUnits, ofBuyers, ofOrders] = equations(state, one);
  const part = (number, key, sign) => html`<div data-sign=${sign ?? nothing}><dt>${words.of(`equations.${key}`)}</dt><dd>${words.count(number)}</dd></div>`;
  const row = (parts, verdict) => html`<div class="equation"><dl>${parts}</dl>${chip(verdict, 'equation', words)}</div>`;
  return html`
    <h3>${words.of('equations')} <span class="aside">${words.say('equations.at', { ms: Math.max(0, state.board.now - units.at) })}</span></h3>
    <div class="equations">
      ${row([part(units.total, 'units'), part(units.left, 'left', '='), part(units.buyers, 'buyers', '+')], ofUnits)}
      ${row([part(units.buyers, 'buyers'), part(units.sold, 'sold', '='), part(onTheWay(one), 'on_the_way', '+'), part(units.in_review, 'in_review', '+')], ofBuyers)}
      ${row([part(units.sold, 'sold'), part(units.total, 'units', '≤')], ofOrders)}
    </div>`;
}
