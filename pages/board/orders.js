// Orders that are searched for: one by its number, or those of a buyer.

import { html, nothing } from '../vendor/lit-html.js';
import { send } from '../js/session.js';
import { panel, table } from './parts.js';

const FOUND_MAX = 20;

/** What this number is: an order, a buyer with orders, or both. `{text, orders, isCut, code}` with the code of a refusal. */
export async function findOrders(text) {
  const [one, ofBuyer] = await Promise.all([`/${text}`, `?user=${text}&limit=${FOUND_MAX}`].map((of) => send('GET', `/v1/orders${of}`)));
  const refused = [one, ofBuyer].find(({ ok, status }) => !ok && status !== 404 && status !== 400);
  const orders = [...(one.ok ? [one.body] : []), ...(ofBuyer.body.orders ?? [])];
  return { text, orders, isCut: Boolean(ofBuyer.body.next_cursor), code: refused?.code ?? (orders.length === 0 ? 'order_not_found' : null) };
}

export function orders({ orders: found, board, served }, words, does) {
  const time = (text) => (text ? words.date(Date.parse(text), board.now) : '–');
  /** The last thing that happened to it. */
  const last = (one) => ['refunded_at', 'refunding_at', 'redeemed_at', 'cancelled_at', 'expired_at', 'paid_at'].map((name) => one[name]).find(Boolean) ?? null;
  const search = html`
    <form role="search" aria-label=${words.of('orders')} class="find" @submit=${does.findOrders}>
      <label><span class="unseen">${words.of('orders.find')}</span><input id="find-orders" name="number" inputmode="numeric" pattern="\\s*[0-9]{1,19}\\s*" required autocomplete="off" maxlength="24" placeholder=${words.of('orders.find')}></label>
      <button class="other small">${words.of('do.find_orders')}</button>
    </form>`;
  const content =
    found === null ? nothing
    : found.code !== null ? html`<p class="none" role="status">${words.say(words.has(`refused.${found.code}`) ? `refused.${found.code}` : 'refused', found)}</p>`
    : html`${table('orders', [
      ['order', (one) => (served.includes('/storm') ? html`<a href="/claim/${one.order_id}">${one.order_id}</a>` : one.order_id), 'mono'],
      ['buyer', (one) => one.user_id, 'mono'],
      ['coupon', (one) => html`<button class="pick" type="button" @click=${() => does.openAny(one.coupon_id)}>${one.coupon_id}</button>`, 'mono'],
      ['status', (one) => html`<b>${words.of(`status.${one.status}`)}</b>${one.cancel_reason ? html` <span class="aside">${one.cancel_reason}</span>` : nothing}`],
      ['price', (one) => words.price(one.pay_cents, one.currency), 'number'],
      ['claimed', (one) => time(one.claimed_at), 'when'], ['last', (one) => time(last(one)), 'when'],
    ], found.orders, words)}${found.isCut ? html`<p class="aside">${words.say('orders.cut', { number: FOUND_MAX })}</p>` : nothing}`;
  return panel('orders', words, html`<div class="deeds">${search}</div>`, content, 'full');
}
