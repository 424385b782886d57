// Native dialogs of the board's deeds: the values of their fields, and the requests that they send.

import { html, nothing } from '../vendor/lit-html.js';

/** Fields of each dialog: name, type, and the attributes of the input. Dialogs without fields ask only for a word. */
const FIELDS = {
  restock: [['units', 'number', { min: 1, max: 100000000, required: true }], ['key', 'text', { readonly: true }]],
  close_payment: [['note', 'area', { maxlength: 1000, required: true }]],
  edit: [
    ['title', 'text', { maxlength: 200, required: true }], ['sub_title', 'text', { maxlength: 200 }], ['rules', 'area', { maxlength: 4000 }],
    ['pay', 'money', { required: true }], ['value', 'money', { required: true }],
    ['opens_at', 'datetime-local', { required: true }], ['closes_at', 'datetime-local', { required: true }],
  ],
};
FIELDS.settle = FIELDS.cancel_unpaid = FIELDS.close_payment;
FIELDS.create = [...FIELDS.edit.slice(0, 5), ['total', 'number', { min: 1, max: 100000000, required: true }], ['currency', 'text', { maxlength: 3, pattern: '[A-Za-z]{3}', required: true }], ...FIELDS.edit.slice(5)];

const DAY_MS = 86_400_000;

/** Fields that a regular coupon lacks. */
const OF_SALES = ['total', 'opens_at', 'closes_at'];

export function dialog({ dialog: it }, words, does) {
  const kind = it?.kind;
  const fields = FIELDS[kind]?.filter(([name]) => !it.isRegular || !OF_SALES.includes(name));
  const about = kind === 'create' && it.isRegular ? 'dialog.create_regular' : `dialog.${kind}`;
  return html`<dialog id="dialog" aria-labelledby="dialog-title" @close=${does.closed}>${it ? html`
    <form @submit=${does.submit} data-kind=${kind}>
      <h2 id="dialog-title">${words.say(about, { text: it.thing })}</h2>
      ${it.name ? html`<p class="mono">${it.name}</p>` : nothing}
      <p class="aside">${words.of(`${about}.more`)}</p>
      ${it.entries === undefined ? nothing : html`
        <h3>${words.of('entries')}</h3>
        <div class="entries" tabindex="0" role="group" aria-label=${words.of('entries')}>${it.entries?.map((one) => html`<pre>${one.entry_id}\n${pairs(one.entry)}</pre>`) ?? words.of('entries.reading')}</div>`}
      ${fields ? html`<div class="fields">${fields.map((of) => field(of, it, words))}</div>` : nothing}
      ${it.code ? html`<p class="refused" role="alert">${words.of(words.has(`refused.${it.code}`) ? `refused.${it.code}` : 'refused')}${it.detail ? html` <span class="detail" lang="en">${it.detail}</span>` : nothing}
        ${['revision_conflict', 'not_loaded'].includes(it.code) ? html`<button class="other small" type="button" id="reload" @click=${does.reload}>${words.of('do.reload')}</button>` : nothing}</p>` : nothing}
      <p class="deeds">
        <button class="other small" type="button" id="dialog-cancel" @click=${does.close}>${words.of('do.cancel')}</button>
        <button class="go small ${['end', 'discard', 'discard_all', 'close_payment', 'archive', 'cancel_unpaid'].includes(kind) ? 'danger' : ''}" id="dialog-do" aria-disabled=${it.busy || it.entries === null ? 'true' : 'false'}>${words.of(words.has(`dialog.${kind}.do`) ? `dialog.${kind}.do` : `do.${kind}`)}</button>
      </p>
    </form>` : nothing}</dialog>`;
}

/** An entry of the log, a line for each of its fields: names and values stand by turns. */
function pairs(entry) {
  return entry.map((text, place) => (place % 2 === 0 ? text : ` = ${text}\n`)).join('');
}

function field([name, type, more], it, words) {
  const value = it.values[name] ?? '';
  const step = type === 'money' ? 10 ** -words.decimals(it.currency) : type === 'datetime-local' ? 1 : nothing;
  return html`<label class=${['title', 'sub_title', 'rules', 'note'].includes(name) ? 'whole' : ''}>${words.of(`field.${name}`)}
    ${type === 'area' ? html`<textarea name=${name} rows="2" maxlength=${more.maxlength} ?required=${more.required} .value=${value}></textarea>`
    : html`<input name=${name} type=${type === 'money' ? 'number' : type} .value=${value} step=${step} min=${more.min ?? (type === 'money' ? 0 : nothing)} max=${more.max ?? (type === 'datetime-local' ? '9999-12-31T23:59' : nothing)}
      maxlength=${more.maxlength ?? nothing} pattern=${more.pattern ?? nothing} ?required=${more.required} ?readonly=${more.readonly} autocomplete="off">`}</label>`;
}

/** A time as an input has it: by the clock of this device. */
function local(ms) {
  const at = new Date(ms);
  return new Date(ms - 60_000 * at.getTimezoneOffset()).toISOString().slice(0, 19);
}

/** Id of a sale of an event, or of a regular coupon of a list. */
export function idOf(coupon) {
  return coupon?.coupon_id ?? coupon?.id;
}

/** A sale as an event has it, of a coupon and of what both stores have of it; a regular coupon stays as it is. */
export function lineOf(coupon, stores, now) {
  const { id, title, state, revision, sale } = coupon;
  if (!sale) return coupon;
  const { redis, postgres } = stores ?? {};
  const units = redis ? { at: now, total: redis.total, left: redis.left, buyers: redis.buyers, conserved: redis.conserved, sold: postgres.sold, in_review: postgres.dead_letters_open } : null;
  return {
    coupon_id: id, title, state: redis?.state ?? state, total: sale.total, left: redis?.left ?? sale.left, opens_ms: Date.parse(sale.opens_at), closes_ms: Date.parse(sale.closes_at),
    revision, is_pending: redis ? redis.revision < revision : false, in_redis: Boolean(stores), units,
  };
}

export function emptyValues(kind, nowMs) {
  if (kind !== 'create') return {};
  const soon = Math.ceil(nowMs / 60_000) * 60_000;
  return { title: '', sub_title: '', rules: '', pay: '', value: '', total: '', currency: 'CNY', opens_at: local(soon), closes_at: local(soon + DAY_MS) };
}

/** The values of a coupon's fields. */
export function valuesOf(coupon, words) {
  const decimals = words.decimals(coupon.currency);
  const major = (minor) => (minor / 10 ** decimals).toFixed(decimals);
  const { title, sub_title, rules, sale } = coupon;
  const values = { title, sub_title, rules, pay: major(coupon.pay_cents), value: major(coupon.value_cents) };
  // Fields that are left as they are go back as they came, to the last digit.
  return sale ? { ...values, opens_at: local(Date.parse(sale.opens_at)), closes_at: local(Date.parse(sale.closes_at)), came: sale } : values;
}

/** The request of a dialog. */
export function requestOf({ kind, thing, isRegular, coupon, key, values, currency, revision }, words) {
  const path = `/v1/coupons/${coupon}`;
  const time = (name) => {
    const came = values.came?.[name];
    return came && local(Date.parse(came)) === local(Date.parse(values[name])) ? came : new Date(values[name]).toISOString();
  };
  const minor = (text, of) => Math.round(Number(text) * 10 ** words.decimals(of));
  const about = (of) => ({ title: values.title, sub_title: values.sub_title, rules: values.rules, pay_cents: minor(values.pay, of), value_cents: minor(values.value, of) });
  const windowOf = () => ({ opens_at: time('opens_at'), closes_at: time('closes_at') });
  switch (kind) {
    case 'restock':
      return { method: 'POST', path: `${path}/restock`, body: { key, units: Number(values.units) } };
    case 'edit':
      return { method: 'PATCH', path, body: { revision, ...about(currency), sale: isRegular ? undefined : windowOf() } };
    case 'create': {
      const of = values.currency.toUpperCase();
      const sale = isRegular ? undefined : { total: Number(values.total), ...windowOf() };
      return { method: 'POST', path: '/v1/coupons', headers: { 'idempotency-key': key }, body: { kind: isRegular ? 'regular' : 'flash', ...about(of), currency: of, sale } };
    }
    case 'archive':
      return { method: 'POST', path: `${path}/archive`, body: { accept_loss: false } };
    case 'cancel_unpaid':
      return { method: 'POST', path: `${path}/cancel-unpaid`, body: { reason: values.note } };
    case 'settle':
      return { method: 'POST', path: `/v1/recoveries/${thing}/settle`, body: { note: values.note } };
    case 'discard_all':
      return { method: 'POST', path: '/v1/dead-letters/discard', body: { reason: thing } };
    case 'discard':
      return { method: 'POST', path: `/v1/dead-letters/${thing}/discard` };
    case 'hand_back':
      return { method: 'POST', path: `/v1/payments/${thing}/hand-back` };
    case 'close_payment':
      return { method: 'POST', path: `/v1/payments/${thing}/close`, body: { note: values.note } };
    case 'retry_item':
      return { method: 'POST', path: `/v1/postponed/${thing}/retry` };
    default:
      return { method: 'POST', path: `${path}/${kind}` };
  }
}
