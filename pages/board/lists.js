// Lists: of what is wrong, each problem with its cause, the remedy, the command to paste and its section in the
// documentation; of what waits for a decision, of recoveries, and of what the staff has done.

import { html, nothing } from '../vendor/lit-html.js';
import { chip, deed, icon, panel, table } from './parts.js';

/** Of each problem: its row in docs/operate.md, and commands that show or mend it. */
const GUIDES = {
  lost: ['ProcessDown', 'flash-sale doctor'],
  stale: ['ProcessDown', 'flash-sale doctor'],
  redis_away: ['ClaimsUnavailable', 'flash-sale doctor'],
  postgres_away: ['ClaimsNotWritten', 'flash-sale doctor'],
  postgres_away_waiting: ['ClaimsNotWritten', 'flash-sale doctor'],
  disagree: ['StoresDisagree', 'flash-sale reconcile'],
  not_kept: ['RedisLostData'],
  letters: ['DeadLetters'],
  not_conserved: ['UnitsNotConserved', 'flash-sale reconcile'],
  lanes_closed: ['LaneStaysClosed', 'flash-sale recover --dry-run'],
  log_unreadable: ['ClaimsNotWritten', 'flash-sale doctor'],
  not_durable: ['RedisTakesNoClaims', 'flash-sale doctor'],
  no_worker: ['NoWorker', 'flash-sale serve --roles worker'],
  no_api: ['ProcessDown', 'flash-sale serve --roles api'],
  silent: ['ProcessDown', 'curl -fsS 127.0.0.1:9090/readyz'],
  broke_off: ['ComparisonOverdue', 'flash-sale reconcile'],
  old_entry: ['ClaimsNotWritten', 'flash-sale doctor'],
  held: ['PaymentHeld'],
  refunds: ['RefundOverdue'],
  postponed: ['ItemsPostponed'],
};

/** Stands for a value that is null. */
const NONE = '–';

/** A section of a document, which the service has beside its pages as text. */
export function guide(file, heading) {
  return `${new URL(`../docs/${file}`, import.meta.url).pathname}#:~:text=${encodeURIComponent(heading)}`;
}

/** The problems among the sentences; nothing without any. */
export function problems(found, words, does) {
  const all = found.filter(({ key }) => key in GUIDES);
  if (all.length === 0) return nothing;
  return panel('problems', words, nothing, html`<ul class="problems">${all.map((one) => problem(one, words, does))}</ul>`, 'full');
}

function problem(one, words, does) {
  const [section, ...commands] = GUIDES[one.key];
  const about = one.key.replace('_waiting', '').replace('stale', 'lost');
  return html`
    <li data-tone=${one.tone} data-key=${one.key}>
      <h3>${icon(one.tone)}<span>${words.say(`sentence.${one.key}`, one)}</span></h3>
      ${one.detail ? html`<p class="detail" lang="en">${one.detail}</p>` : nothing}
      <p>${words.of(`cause.${about}`)}</p>
      <p><b>${words.of('problems.do')}</b> ${words.of(words.has(`remedy.${about}`) ? `remedy.${about}` : 'remedy')}</p>
      ${commands.map((command) => html`<p class="command"><code>${command}</code>${navigator.clipboard ? html`<button class="other small" type="button" @click=${() => does.copy(command)}>${words.of('do.copy')}</button>` : nothing}</p>`)}
      <p><a href=${guide('operate.md', `<a id="${section.toLowerCase()}"></a>`)} target="_blank">${words.of('problems.more')}<span class="unseen">: ${section}</span></a></p>
    </li>`;
}

/** What waits for a person, each thing with its deeds; nothing without any. */
export function waiting(it, words, does) {
  if (it.waiting.length === 0) return nothing;
  const reasons = [...new Set(it.waiting.filter((one) => one.kind === 'dead_letter').map((one) => one.reason))];
  const content = table('waiting', [
    ['what', (one) => html`<b>${words.of(`waits.${one.kind}`)}</b>`, 'when'],
    ['why', (one) => html`<span lang="en">${one.detail} <span class="aside">${one.what_to_do}</span></span>${one.kind === 'finding' ? html` <a href=${guide('reconcile.md', `### \`${one.reason}\``)} target="_blank">${words.of('problems.more')}</a>` : nothing}`],
    ['since', (one) => since(one.since, it, words), 'when'],
    ['deeds', (one) => deedsOn(one, words, does), 'deeds'],
  ], it.waiting, words);
  return panel('waiting', words, nothing, html`${content}${reasons.map((reason) => html`<p class="deeds"><b class="mono">${reason}</b> ${deed('retry_all', words, () => does.retryAll(reason))} ${deed('discard_all', words, () => does.open('discard_all', reason))}</p>`)}`, 'full');
}

function deedsOn({ kind, id, reason, detail }, words, does) {
  const asked = (name) => deed(name, words, () => does.open(name, id, detail));
  switch (kind) {
    case 'dead_letter':
      return html`${deed('retry', words, () => does.retry(id))}${asked('discard')}`;
    case 'held_payment':
      // The gateway knows the id of such a payment for another one, so it can't be asked to refund it.
      return html`${reason === 'id_used_twice' ? nothing : asked('hand_back')}${asked('close_payment')}`;
    case 'refund':
      return asked('close_payment');
    case 'recovery':
      return asked('settle');
    case 'postponed':
      return asked('retry_item');
    default:
      return nothing;
  }
}

/** Claims that a recovery has lost, at least: those with names, and those that nothing names any more. */
const lostBy = (one) => one.lost.length + (one.unknown ?? 0);

/** The last recoveries of lanes; nothing without any. */
export function recoveries(it, words) {
  if (it.recoveries.length === 0) return nothing;
  return panel('recoveries', words, nothing, table('recoveries', [
    ['lane', (one) => words.say('lane', { number: one.lane })],
    ['why', (one) => html`<span lang="en">${one.reason}</span>`],
    ['since', (one) => since(one.closed_at, it, words), 'when'],
    ['took', (one) => (one.opened_at === null ? lasts(words) : words.span(Date.parse(one.opened_at) - Date.parse(one.closed_at))), 'number'],
    ['kept', (one) => words.count(one.sales_kept), 'number'],
    ['built', (one) => words.count(one.sales_built), 'number'],
    ['harvested', (one) => words.count(one.harvested === null ? null : one.harvested + (one.unwritten ?? 0)), 'number'],
    ['lost', (one) => html`<b class=${lostBy(one) > 0 ? 'warn' : ''}>${words.count(lostBy(one))}</b>`, 'number'],
  ], it.recoveries, words), 'full');
}

function lasts(words) {
  return chip({ tone: 'warn', key: 'lasts' }, 'recoveries', words);
}

/** The book of changes, as it was last read. */
export function book({ board: it, book: read }, words, does) {
  const content =
    read === null ? html`<p class="none">${words.of('book.reading')}</p>`
    : read.code !== null ? html`<p class="none">${words.of(read.code === 'forbidden' ? 'refused.forbidden' : 'book.failed')}</p>`
    : read.entries.length === 0 ? html`<p class="none">${words.of('book.none')}</p>`
    : table('book', [
      ['when', (entry) => since(entry.at, it, words), 'when'],
      ['action', (entry) => html`<b>${words.of(`action.${entry.action}`)}</b>`, 'when'],
      ['subject', (entry) => entry.subject ?? '–', 'mono'],
      ['values', (entry) => html`<span class="aside" lang="en">${changes(entry).join(' · ')}</span>`, 'values'],
      ['actor', (entry) => html`${entry.actor ?? ''} <span class="aside">${entry.scope}</span>`, 'mono'],
    ], read.entries, words);
  return panel('book', words, html`<button class="other small" type="button" id="do-read_book" @click=${does.readLists}>${words.of('do.read_book')}</button>`, content, 'full');
}

/** The values of a change: `name: before → after`, or the one that there is. A value that was none, and is none, is left out. */
function changes({ before, after }) {
  const [was, is] = [values(before), values(after)];
  return [...new Set([...was.keys(), ...is.keys()])].flatMap((name) => {
    const both = [...new Set([was.get(name), is.get(name)])].filter((value) => value !== undefined);
    return both.join() === NONE ? [] : [`${name}: ${both.join(' → ')}`];
  });
}

/** The values of an object by name, also of objects in it. Times are cut to the second. */
function values(object) {
  return new Map(Object.entries(object ?? {}).flatMap(([name, value]) => {
    if (value === null) return [[name, NONE]];
    if (typeof value === 'object' && !Array.isArray(value)) return [...values(value)];
    const text = Array.isArray(value) ? JSON.stringify(value) : String(value);
    return [[name, text.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?Z$/, '$1 $2 UTC')]];
  }));
}

function since(time, it, words) {
  return words.say('ago', { ms: Math.max(0, it.now - Date.parse(time)) });
}
