// Lists of what waits for a decision, of recoveries, and of what the staff has done.

import { html, nothing } from '../vendor/lit-html.js';
import { chip, deed, panel, table } from './parts.js';

/** Stands for a value that is null. */
const NONE = '–';

export function letters(it, words, does) {
  const aside = it.letters_open > 0 ? chip({ tone: 'bad', key: 'open', number: it.letters_open }, 'letters', words) : nothing;
  const content =
    it.letters_open === null ? html`<p class="none">${words.of('tile.unknown')}</p>`
    : it.letters.length === 0 ? html`<p class="none">${words.of('letters.none')}</p>`
    : table('letters', [
      ['entry', (letter) => letter.entry_id, 'mono'],
      ['why', (letter) => html`<b class="mono">${letter.reason}</b> <span class="aside" lang="en">${letter.detail}</span>`],
      ['buyer', (letter) => letter.user_id ?? '–', 'mono'],
      ['since', (letter) => since(letter.created_at, it, words), 'when'],
      ['deeds', ({ id, entry_id: entry, user_id: user }) => html`${deed('retry', words, () => does.retry(id))}${deed('discard', words, () => does.open('discard', id, `${entry} · ${user ?? NONE}`))}`, 'deeds'],
    ], it.letters, words);
  const reasons = [...new Set(it.letters.map((letter) => letter.reason))];
  return panel('letters', words, aside, html`${content}${reasons.map((reason) => html`<p class="deeds"><b class="mono">${reason}</b> ${deed('retry_all', words, () => does.retryAll(reason))} ${deed('discard_all', words, () => does.open('discard_all', reason))}</p>`)}`, 'wide');
}

/** Payments that no order has, or that go back; nothing without any. */
export function payments(it, words, does) {
  const owed = it.owed.filter((one) => one.payments > 0);
  if (owed.length === 0) return nothing;
  const aside = owed.map((one) => chip({ tone: one.status === 'held' ? 'warn' : 'quiet', key: one.status, number: one.payments, ms: 1000 * one.oldest_seconds }, 'owed', words));
  // The gateway knows the id of such a payment for another one, so it can't be asked to refund it.
  const goesBack = ({ status, reason }) => status === 'held' && reason !== 'id_used_twice';
  return panel('payments', words, aside, table('payments', [
    ['payment', (one) => html`${one.gateway_payment_id} <span class="aside">${words.of(`gateway.${one.gateway}`)}</span>`, 'mono'],
    ['why', (one) => html`<b>${words.of(`payment.${one.status}`)}</b>: ${words.of(`reason.${one.reason}`)} <span class="aside" lang="en">${one.what_to_do}</span>`],
    ['order', (one) => one.order_id, 'mono'],
    ['amount', (one) => words.count(one.amount_cents), 'number'],
    ['since', (one) => since(one.since, it, words), 'when'],
    ['deeds', (one) => html`${goesBack(one) ? deed('hand_back', words, () => does.open('hand_back', one.payment_id, one.gateway_payment_id)) : nothing}${deed('close_payment', words, () => does.open('close_payment', one.payment_id, one.gateway_payment_id))}`, 'deeds'],
    // A process of an older version doesn't tell them.
  ], it.owed_payments ?? [], words), 'full');
}

/** Items that a pass could not deal with; nothing without any. */
export function postponed(it, words, does) {
  if (!it.postponed_waiting) return nothing;
  return panel('postponed', words, chip({ tone: 'warn', key: 'waiting', number: it.postponed_waiting }, 'postponed', words), table('postponed', [
    ['item', (one) => html`<b>${one.pass}</b> <span class="aside">${one.item_kind === null ? '' : words.of(`kind.${one.item_kind}`)} ${one.item}</span>`, 'mono'],
    ['why', (one) => html`<span lang="en">${one.error} <span class="aside">${one.what_to_do}</span></span>`],
    ['tries', (one) => words.count(one.tries), 'number'],
    ['since', (one) => since(one.since, it, words), 'when'],
    ['next', (one) => words.say('in', { ms: Math.max(0, Date.parse(one.next_try_at) - it.now) }), 'when'],
    ['deeds', ({ id, pass, item }) => deed('retry_item', words, () => does.open('retry_item', id, `${pass} · ${item}`)), 'deeds'],
  ], it.postponed, words), 'full');
}

/** Claims that a recovery has lost, at least: those with names, and those that nothing names any more. */
const lostBy = (one) => one.lost.length + (one.unknown ?? 0);

/** The last recoveries of lanes, and those whose losses are not settled; nothing without any. */
export function recoveries(it, words, does) {
  if (it.recoveries.length === 0) return nothing;
  return panel('recoveries', words, nothing, table('recoveries', [
    ['lane', (one) => words.say('lane', { number: one.lane })],
    ['why', (one) => html`<span lang="en">${one.reason}</span>`],
    ['since', (one) => since(one.closed_at, it, words), 'when'],
    ['took', (one) => (one.opened_at === null ? lasts(words) : words.span(Date.parse(one.opened_at) - Date.parse(one.closed_at))), 'number'],
    ['kept', (one) => words.count(one.sales_kept), 'number'],
    ['built', (one) => words.count(one.sales_built), 'number'],
    ['harvested', (one) => words.count(one.harvested === null ? null : one.harvested + (one.receipts ?? 0)), 'number'],
    ['lost', (one) => html`<b class=${lostBy(one) > 0 ? 'warn' : ''}>${words.count(lostBy(one))}</b>`, 'number'],
    ['deeds', (one) => (lostBy(one) > 0 && one.settled_at === null ? deed('settle', words, () => does.open('settle', one.id, `${words.say('lane', { number: one.lane })} · ${one.closed_at}`)) : nothing), 'deeds'],
  ], it.recoveries, words), 'full');
}

/** The newest jobs that cancel the unpaid orders of a coupon; nothing without any. */
export function jobs({ board: it, jobs: all }, words) {
  if (all.length === 0) return nothing;
  return panel('jobs', words, nothing, table('jobs', [
    ['coupon', (one) => one.coupon_id, 'mono'],
    ['why', (one) => one.reason],
    ['state', (one) => (one.finished_at === null ? lasts(words) : words.say('jobs.done', { ms: Date.parse(one.finished_at) - Date.parse(one.requested_at) })), 'when'],
    ['cancelled', (one) => words.count(one.cancelled), 'number'],
    ['left', (one) => words.count(one.left), 'number'],
    ['since', (one) => since(one.requested_at, it, words), 'when'],
  ], all, words), 'full');
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
