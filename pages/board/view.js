// The board as templates. Nothing here keeps state or calls the API.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { bar, locked } from '../js/bar.js';
import { chart } from './charts.js';
import { dialog } from './dialogs.js';
import { marksOf, timeline } from './incidents.js';
import { book, guide, problems, recoveries, waiting } from './lists.js';
import { orders } from './orders.js';
import { button, chip, icon, panel, table, tile } from './parts.js';
import { sale, sales } from './sales.js';
import { comparison, isFresh, isShown, lane, sentences, store } from './verdict.js';

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
  const found = sentences(state);
  return html`
    <h1 class="unseen">${words.of('title')}</h1>
    <section id="sentence" aria-label=${words.of('sentence')} data-tone=${found[0].tone}>
      <p data-tone=${found[0].tone} data-key=${found[0].key}>${icon(found[0].tone)}<span>${words.say(`sentence.${found[0].key}`, found[0])}</span></p>
      ${found.length > 1 ? html`<a href="#panel-problems">${words.say('sentence.further', { number: found.length - 1 })}</a>` : nothing}</section>
    ${it === null ? problems(found, words, does) : html`
      <div class="rows">
        ${sales(state, words, does)}
        ${problems(found, words, does)}
        ${waiting(it, words, does)}
        ${sale(state, words, does)}
        ${orders(state, words, does)}
        ${panel('service', words, nothing, service(state, words, does), 'full')}
        ${timeline(state, words)}
        ${panel('stores', words, button('compare', words, does.compare, state.comparing), runs(state, words))}
        ${panel('places', words, nothing, places(state, words))}
        ${panel('processes', words, words.say('processes.heard', { number: it.processes.filter((one) => one.is_heard).length }), processes(it, words), 'full')}
        ${recoveries(it, words)}
        ${book(state, words, does)}
      </div>`}
    ${state.notice ? html`<p id="notice" data-tone=${state.notice.tone}>${icon(state.notice.tone)}<span>${words.say(state.notice.key, state.notice)}${state.notice.text ? html` <span class="aside" lang="en">${state.notice.text}</span>` : nothing}</span></p>` : nothing}
    ${dialog(state, words, does)}`;
}

/** The figures of all sales and processes together. */
function service(state, words, does) {
  const { board: it, points } = state;
  const marks = marksOf(state, words);
  const fresh = isShown(state);
  const rate = CLAIMS.reduce((sum, key) => sum + it.point[key], 0);
  const isHeard = fresh && it.processes.some((one) => one.is_heard);
  const time = (key, ms, aside) => {
    const [value, unit] = ms === null || !fresh ? ['–', ''] : words.span(ms).split(' ');
    return tile(key, value, words, { unit, aside: ms === null ? words.of('tile.no_claims') : aside });
  };
  const wait = it.backlog === null ? words.of('tile.unknown') : it.backlog > 0 ? words.say('tile.backlog.oldest', { ms: it.oldest_ms }) : isFresh(state) ? words.of('tile.backlog.none') : null;
  const lines = (...keys) => keys.map((key) => ({ key, name: words.of(`line.${key}`), of: (point) => point[key] }));
  const drawn = (key, ...keys) => html`<div><h3>${words.of(key)}</h3>${chart(key, lines(...keys), points, { now: it.now, marks, looked: state.looked, look: does.look }, words)}</div>`;
  return html`
    <dl class="tiles">
      ${tile('rate', isHeard ? words.count(rate) : '–', words, { aside: isHeard ? words.say('tile.rate.more', { number: it.point.accepted }) : null })}
      ${tile('rows', isHeard ? words.count(it.point.rows) : '–', words)}
      ${tile('backlog', fresh ? words.count(it.backlog) : '–', words, { aside: wait, tone: it.oldest_ms > 10_000 ? 'warn' : '' })}
      ${time('answer', it.p99_ms, it.p50_ms === null ? null : words.say('tile.answer.more', { ms: it.p50_ms }))}
      ${time('row', it.row_p99_ms, words.of('tile.row.more'))}
    </dl>
    <div class="charts">${drawn('claims', ...CLAIMS)}${drawn('log', 'rows', 'waiting')}</div>`;
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
    ${it.findings.length === 0 ? nothing : html`<ul class="findings">${it.findings.map((finding) => html`<li><a class="mono" href=${guide('reconcile.md', `### \`${finding.code}\``)} target="_blank">${finding.code}</a> <span class="mono aside">${finding.coupon_id ?? ''}</span><p class="aside" lang="en">${finding.detail}</p></li>`)}</ul>`}`;
}

function processes(it, words) {
  if (it.processes.length === 0) return html`<p class="none">${words.say(it.stores[0].is_there ? 'processes.none' : 'processes.unheard', { text: it.process })}</p>`;
  return table('processes', [
    ['name', (one) => html`<span class="mono">${one.name}</span>${one.is_heard ? (one.is_stopping ? html` <span class="chip" data-tone="warn">${icon('quiet')}${words.of('processes.stopping')}</span>` : nothing) : html` ${chip({ tone: 'warn', key: 'silent', ms: it.now - one.heard_ms }, 'processes', words)}`}`],
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
