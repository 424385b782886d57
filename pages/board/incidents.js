// What has happened, newest first: from the audit log, recoveries, comparisons, what waits for a person, the windows of
// the sales, and stores that fell silent while this page looked on. The same is marked on the charts.

import { html, nothing } from '../vendor/lit-html.js';
import { icon, panel } from './parts.js';

const SHOWN_MAX = 15;
/** Ago from which on a sale that opened or closed is no news. */
const NEWS_MS = 86_400_000;
/** Changes by the staff that claims feel. */
const CHANGES = { pause_coupon: 'warn', resume_coupon: 'good', restock_coupon: 'quiet', end_coupon: 'warn', archive_coupon: 'quiet', cancel_unpaid_orders: 'warn', settle_recovery: 'quiet', discard_dead_letter: 'warn', retry_dead_letter: 'quiet' };
/** Items that wait: others stand in the records of recoveries and comparisons. */
const ITEMS = { dead_letter: 'bad', held_payment: 'warn', refund: 'quiet', postponed: 'warn' };
/** What the charts mark. */
const MARKED = ['action.pause_coupon', 'action.resume_coupon', 'action.restock_coupon', 'action.end_coupon', 'incident.lane_closed', 'incident.lane_opened', 'incident.away', 'incident.back'];

/** Incidents, newest first: `{ms, tone, key}`, and what the words under that key need; `more` is text of the service. */
export function incidentsOf({ board, book, seen }) {
  const title = (id) => board.sales.find((sale) => sale.coupon_id === id)?.title ?? id ?? '';
  const time = (text) => (text === null ? null : Date.parse(text));
  const windows = board.sales.flatMap((sale) => [['opened', sale.opens_ms, 'quiet'], ...(sale.state === 'ended' ? [] : [['closed', sale.closes_ms, 'quiet']])]
    .map(([key, ms, tone]) => ({ ms, tone, key: `incident.${key}`, text: sale.title })));
  const all = [
    ...(book?.entries ?? []).filter(({ action }) => action in CHANGES).map(({ at, action, subject }) => ({ ms: time(at), tone: CHANGES[action], key: `action.${action}`, more: title(subject) })),
    ...board.recoveries.flatMap(({ lane, reason, closed_at: closed, opened_at: opened }) => [
      { ms: time(closed), tone: 'bad', key: 'incident.lane_closed', number: lane, more: reason },
      { ms: time(opened), tone: 'good', key: 'incident.lane_opened', number: lane }]),
    ...board.runs.filter((run) => run.failure !== null || run.disagreements > 0).map((run) => ({ ms: time(run.finished_at), ...(run.failure === null ? { tone: 'bad', key: 'comparison.findings', number: run.disagreements } : { tone: 'warn', key: 'incident.broke_off', more: run.failure }) })),
    ...board.waiting.filter(({ kind }) => kind in ITEMS).map(({ kind, since, detail }) => ({ ms: time(since), tone: ITEMS[kind], key: `waits.${kind}`, more: detail })),
    ...windows.filter(({ ms }) => board.now - ms < NEWS_MS),
    ...seen,
  ];
  return all.filter(({ ms }) => ms !== null && ms <= board.now).sort((a, b) => b.ms - a.ms);
}

/** Marks for the charts. */
export function marksOf(state, words) {
  return incidentsOf(state).filter(({ key }) => MARKED.includes(key)).map((one) => ({ t_ms: one.ms, tone: one.tone, text: `${words.say(one.key, one)}${one.more ? `: ${one.more}` : ''}` }));
}

/** Stores that this page has just seen fall silent, or come back. */
export function turnsOf(before, board) {
  if (before === null) return [];
  return board.stores.filter((store, place) => store.is_there !== before.stores[place].is_there).map(({ name, is_there: isThere }) => ({ ms: board.now, tone: isThere ? 'good' : 'bad', key: isThere ? 'incident.back' : 'incident.away', text: name === 'redis' ? 'Redis' : 'Postgres' }));
}

/** The timeline; nothing as long as nothing has happened. */
export function timeline(state, words) {
  const all = incidentsOf(state).slice(0, SHOWN_MAX);
  if (all.length === 0) return nothing;
  const { now } = state.board;
  return panel('timeline', words, nothing, html`<ol class="timeline">${all.map((one) => html`
    <li data-tone=${one.tone}>${icon(one.tone)}<time datetime=${new Date(one.ms).toISOString()}>${now - one.ms < NEWS_MS / 2 ? words.time(one.ms) : words.date(one.ms, now)}</time>
      <span><b>${words.say(one.key, one)}</b>${one.more ? html` <span class="aside" lang="en">${one.more}</span>` : nothing}</span>
      <span class="aside">${words.say('ago', { ms: now - one.ms })}</span></li>`)}</ol>`, 'full');
}
