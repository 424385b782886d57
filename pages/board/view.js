// The board as templates. Nothing here keeps state or calls the API.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { bar, locked } from '../js/bar.js';
import { chart } from './charts.js';
import { idOf } from './deeds.js';
import { dialog } from './dialogs.js';
import { book, recoveries, waiting } from './lists.js';
import { button, chip, icon, panel, table } from './parts.js';
import { comparison, equations, isFresh, isShown, lane, sentences, store } from './verdict.js';

const CLAIMS = ['accepted', 'sold_out', 'repeats', 'shed', 'others'];

export function page(state, words, does) {
  return html`
    <a class="skip" href="#board">${words.of('skip')}</a>
    ${bar('/board', state.served, state.line, words, does)}
    <main class="desk board" id="board" tabindex="-1">
      ${state.locked ? locked(state.locked, words, does) : board(state, words, does)}
    </main>`;
}

function board(state, words, does) {
  const { board: it } = state;
  return html`
    <h1 class="unseen">${words.of('title')}</h1>
    <section id="sentence" aria-label=${words.of('sentence')} data-tone=${sentences(state)[0].tone}>${sentences(state).map((one) => html`
      <p data-tone=${one.tone} data-key=${one.key}>${icon(one.tone)}<span>${words.say(`sentence.${one.key}`, one)}</span></p>`)}</section>
    ${it === null ? nothing : html`
      ${saleHead(state, words, does)}
      ${tiles(state, words)}
      <div class="rows">
        ${panel('claims', words, nothing, chart(words.of('claims'), CLAIMS.map((key) => ({ key, name: words.of(`claims.${key}`), of: (point) => point[key] })), state.points, it.now, words), 'wide')}
        ${panel('equations', words, nothing, conservation(state, words))}
        ${panel('log', words, nothing, chart(words.of('log'), [
    { key: 'rows', name: words.of('log.rows'), of: (point) => point.rows },
    { key: 'waiting', name: words.of('log.waiting'), of: (point) => point.waiting },
  ], state.points, it.now, words), 'wide')}
        ${waiting(it, words, does)}
        ${panel('stores', words, button('compare', words, does.compare, state.comparing), runs(state, words))}
        ${panel('processes', words, words.say('processes.heard', { number: it.processes.filter((one) => one.is_heard).length }), processes(it, words), 'wide')}
        ${panel('places', words, nothing, places(state, words))}
        ${recoveries(it, words)}
        ${book(state, words, does)}
      </div>`}
    ${state.notice ? html`<p id="notice" data-tone=${state.notice.tone}>${icon(state.notice.tone)}<span>${words.say(state.notice.key, state.notice)}${state.notice.text ? html` <span class="aside" lang="en">${state.notice.text}</span>` : nothing}</span></p>` : nothing}
    ${dialog(state, words, does)}`;
}

/** Whether a sale can be claimed, by the time of the event. */
function stateOf(sale, now) {
  if (sale.state === 'ended' || now >= sale.closes_ms) return 'ended';
  if (sale.state !== 'active') return sale.state;
  if (now < sale.opens_ms) return 'before';
  return sale.left === 0 ? 'sold_out' : 'active';
}

/** The sale that is picked, or the regular coupon, which has a `kind`, and no units. */
function picked({ board, regular, coupon }) {
  return [...board.sales, ...regular].find((one) => idOf(one) === coupon);
}

function saleHead(state, words, does) {
  const { board: it } = state;
  const sale = picked(state);
  const create = html`<button class="go small" type="button" id="do-create" @click=${() => does.open('create')}>${words.of('do.create')}</button>${button('create_regular', words, () => does.open('create', 'regular'))}`;
  if (!sale) return html`<section class="sale" aria-label=${words.of('sale')}><h2>${words.of('sale.none')}</h2><p class="deeds">${create}</p></section>`;
  const is = stateOf(sale, it.now);
  const until = is === 'before' ? ['opens', sale.opens_ms - it.now] : ['closes', sale.closes_ms - it.now];
  const act = (key) => html`<button class="other small ${key}" type="button" id="do-${key}" @click=${() => does.open(key, null, `${sale.title} · ${idOf(sale)}`)}>${words.of(`do.${key}`)}</button>`;
  return html`
    <section class="sale" aria-label=${words.of('sale')}>
      <h2>${sale.title}</h2>
      <span class="chip" id="sale-state" data-tone=${is === 'active' && isFresh(state) && Number.isInteger(sale.left) && !sale.is_pending ? 'live' : 'plain'} data-state=${is}><i aria-hidden="true"></i>${words.of(`state.${is}`)}</span>
      <label class="pick"><span class="unseen">${words.of('sale.pick')}</span>
        <select @change=${(event) => does.pick(event.target.value)}>${[...it.sales, ...state.regular].map((one) => html`
          <option value=${idOf(one)} .selected=${one === sale}>${idOf(one)} · ${one.title}</option>`)}</select></label>
      <span class="aside">${is === 'ended' || sale.kind ? nothing : html`${words.say(`sale.${until[0]}`, { ms: until[1] })} · `}${words.say('sale.revision', { number: sale.revision })}</span>
      ${sale.is_pending ? html`<span class="chip" id="pending" data-tone="warn">${icon('quiet')}${words.of('sale.pending')}</span>` : nothing}
      <p class="deeds">${sale.state !== 'ended' ? [sale.state === 'paused' ? 'resume' : 'pause', ...(sale.kind ? [] : ['restock']), 'edit', 'end', 'cancel_unpaid'].map(act) : sale.in_redis ? ['cancel_unpaid', 'archive'].map(act) : act('cancel_unpaid')}${create}</p>
    </section>`;
}

function tiles(state, words) {
  const { board: it } = state;
  const sale = it.sales.find((one) => one.coupon_id === state.coupon);
  const fresh = isShown(state);
  const rate = CLAIMS.reduce((sum, key) => sum + it.point[key], 0);
  const known = fresh && it.processes.some((one) => one.is_heard);
  const tile = (key, value, unit, aside, more) => html`
    <div class="tile" id="tile-${key}"><dt>${words.of(`tile.${key}`)}</dt>
      <dd><b class=${more?.warn ? 'warn' : ''}>${value}</b>${unit ? html` <span class="unit">${unit}</span>` : nothing}</dd>
      ${more?.bar ? html`<dd><progress max=${more.bar[1]} value=${more.bar[0]} aria-label=${words.of(`tile.${key}`)}></progress></dd>` : nothing}
      ${aside ? html`<dd class="aside">${aside}</dd>` : nothing}</div>`;
  const time = (key, ms, aside) => {
    const [value, unit] = ms === null || !fresh ? ['–', ''] : words.span(ms).split(' ');
    return tile(key, value, unit, ms === null ? words.of('tile.no_claims') : aside);
  };
  return html`<dl class="tiles six">
    ${tile('left', words.count(sale?.left), sale ? `/ ${words.count(sale.total)}` : '', null, sale && sale.left !== null ? { bar: [sale.left, sale.total] } : null)}
    ${tile('rate', known ? words.count(rate) : '–', '', known ? words.say('tile.rate.more', { number: it.point.accepted }) : null)}
    ${tile('rows', known ? words.count(it.point.rows) : '–')}
    ${tile('backlog', fresh ? words.count(it.backlog) : '–', '', it.backlog === null ? words.of('tile.unknown') : it.backlog === 0 ? (isFresh(state) ? words.of('tile.backlog.none') : null) : words.say('tile.backlog.oldest', { ms: it.oldest_ms }), { warn: it.oldest_ms > 10_000 })}
    ${time('answer', it.p99_ms, it.p50_ms === null ? null : words.say('tile.answer.more', { ms: it.p50_ms }))}
    ${time('row', it.row_p99_ms, words.of('tile.row.more'))}
  </dl>`;
}

function conservation(state, words) {
  const { board: it } = state;
  const sale = picked(state);
  if (sale?.kind) return html`<p class="none">${words.of('equations.regular')}</p>`;
  if (!sale) return html`<p class="none">${words.of('sale.none')}</p>`;
  if (!sale.units) return html`<p class="none">${words.of(sale.in_redis ? 'equations.not_known' : 'equations.not_in_redis')}</p>`;
  const { units } = sale;
  const [ofUnits, ofBuyers, ofOrders] = equations(state, sale);
  const onTheWay = units.buyers === null || units.sold === null ? null : Math.max(0, units.buyers - units.sold - units.in_review);
  const part = (number, key, sign) => html`<div data-sign=${sign ?? nothing}><dt>${words.of(`equations.${key}`)}</dt><dd>${words.count(number)}</dd></div>`;
  const row = (parts, verdict) => html`<div class="equation"><dl>${parts}</dl>${chip(verdict, 'equation', words)}</div>`;
  return html`
    ${row([part(units.total, 'units'), part(units.left, 'left', '='), part(units.buyers, 'buyers', '+')], ofUnits)}
    ${row([part(units.buyers, 'buyers'), part(units.sold, 'sold', '='), part(onTheWay, 'on_the_way', '+'), part(units.in_review, 'in_review', '+')], ofBuyers)}
    ${row([part(units.sold, 'sold'), part(units.total, 'units', '≤')], ofOrders)}
    <p class="aside">${words.say('equations.at', { ms: Math.max(0, it.now - units.at) })}</p>`;
}

function runs(state, words) {
  const { board: it } = state;
  const verdict = comparison(state);
  const last = it.runs.find((run) => run.finished_at !== null);
  const tone = (run) => (run.failure !== null ? 'warn' : run.finished_at === null ? 'quiet' : run.disagreements > 0 ? 'bad' : 'good');
  const shown = it.runs.toReversed();
  return html`
    <p class="line-of">${chip(verdict, 'comparison', words)}${last ? html` <span class="aside">${words.say('ago', { ms: it.now - Date.parse(last.finished_at) })}${last.failure !== null ? html` · <span lang="en">${last.failure}</span>` : html` · ${words.say('comparison.sales', { number: last.sales })} · ${words.say('comparison.in_flight', { number: last.in_flight })} · ${words.span(Date.parse(last.finished_at) - Date.parse(last.started_at))}`}</span>` : nothing}</p>
    ${shown.length === 0 ? nothing : html`<svg class="runs" viewBox="0 0 ${12 * 30} 26" role="img" aria-label=${words.say('comparison.last', { number: shown.length })}>${shown.map((run, place) => svg`<rect class="run-${tone(run)}" x=${12 * place + 1} y=${tone(run) === 'bad' ? 2 : 8} width="9" height=${tone(run) === 'bad' ? 22 : 12} rx="1.5"/>`)}</svg>`}
    ${it.findings.length === 0 ? nothing : html`<ul class="findings">${it.findings.map((finding) => html`<li><b class="mono">${finding.code}</b> <span class="mono aside">${finding.coupon_id ?? ''}</span><p class="aside" lang="en">${finding.detail}</p></li>`)}</ul>`}`;
}

function processes(it, words) {
  if (it.processes.length === 0) return html`<p class="none">${words.of('processes.none')}</p>`;
  return table('processes', [
    ['name', (one) => html`<span class="mono">${one.name}</span>${one.is_heard ? (one.is_stopping ? html` <span class="chip" data-tone="warn">${icon('quiet')}${words.of('processes.stopping')}</span>` : nothing) : html` ${chip({ tone: 'bad', key: 'silent', ms: it.now - one.heard_ms }, 'processes', words)}`}`],
    ['roles', (one) => (one.roles.length === 0 ? '–' : one.roles.map((role) => words.of(`role.${role}`)).join(', '))],
    ['requests', (one) => words.count(one.requests), 'number'], ['rows', (one) => words.count(one.rows), 'number'], ['connections', (one) => words.count(one.connections), 'number'],
    ['cpu', (one) => (one.cpu === null ? '–' : `${Math.round(100 * one.cpu)} %`), 'number'], ['memory', (one) => (one.memory_bytes === null ? '–' : `${Math.round(one.memory_bytes / 1e6)} MB`), 'number'],
    ['up', (one) => (one.started_ms === null || !one.is_heard ? '–' : words.up(it.now - one.started_ms)), 'number'],
  ], it.processes, words);
}

function places(state, words) {
  const { board: it } = state;
  return html`<ul class="places">
    ${it.stores.map((one) => {
    const verdict = store(state, one);
    const detail = !one.is_there && one.at !== null ? words.say('store.silent', { ms: it.now - one.at }) : words.say(`store.${one.name}`, { text: one.detail });
    return html`<li id="store-${one.name}"><b>${words.of(`name.${one.name}`)}</b><span class="aside">${detail}</span>${verdict.key === 'answers' ? html`<span class="chip" data-tone="good">${icon('good')}${words.span(one.ping_ms)}</span>` : chip(verdict, 'store', words)}</li>`;
  })}
    ${it.lanes.map((one) => html`<li><b>${words.say('lane', { number: one.lane })}</b><span class="aside">${one.pending === null ? words.of('tile.unknown') : html`${words.say('lane.pending', { number: one.pending })}, ${words.say('lane.unread', { number: one.unread })}`}</span>${chip({ ...lane(state, one), ms: one.oldest_ms }, 'lane', words)}</li>`)}
  </ul>`;
}
