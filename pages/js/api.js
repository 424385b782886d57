// Calls of the API, and the token of the shopper.
//
// A shop's own page puts its token into the tab. The demo's token is for all tabs of this browser, for its hour, so a tab
// that is closed loses no order. What is known of the shopper stands beside the token.

import { request } from './request.js';
import { ofDevice, ofTab } from './store.js';

const TOKEN = 'flash-sale.token';
const CLAIMED = 'flash-sale.claimed.';
const FREED = 'flash-sale.freed';
const TRIP = 'flash-sale.trip.';

export class Api {
  get token() {
    return ofTab.get(TOKEN) ?? (this.isDemo ? ofDevice.get(TOKEN) : null);
  }

  /** Whether the demo has given the token. */
  get isDemo() {
    return ofTab.get(TOKEN) === null && untilMs(ofDevice.get(TOKEN)) > Date.now();
  }

  get #kept() {
    return this.isDemo ? ofDevice : ofTab;
  }

  /** The user in the token; only the service can tell whether it is genuine. */
  get user() {
    return claimsOf(this.token)?.sub ?? null;
  }

  /** Whether this shopper has tried to claim the coupon: only then there is something to ask for. */
  hasClaimed(coupon) {
    return this.token !== null && this.#kept.get(CLAIMED + coupon) !== null;
  }

  /** Makes sure that there is a token; the demo gives one. Null, or the reply that refuses it. */
  async enter() {
    if (this.token !== null) return null;
    // Two tabs must not become two shoppers. Only pages with TLS, or of this machine, have locks.
    return navigator.locks ? navigator.locks.request(TOKEN, () => this.#enter()) : this.#enter();
  }

  async #enter() {
    if (this.token !== null) return null;
    const reply = await this.#send('POST', '/demo/shoppers');
    if (!reply.ok) return reply;
    this.leave();
    ofDevice.set(TOKEN, reply.body.token);
    return null;
  }

  /** When an unpaid order of this shopper was paid or closed, by this machine's clock, in ms; 0 if none was. */
  get freedAt() {
    return Number(this.#kept.get(FREED));
  }

  noteFreed() {
    this.#kept.set(FREED, Date.now());
  }

  /** Forgets the shopper. */
  leave() {
    for (const store of [ofTab, ofDevice]) [TOKEN, FREED, CLAIMED, TRIP].forEach((prefix) => store.clear(prefix));
  }

  async claim(coupon) {
    if (!this.hasClaimed(coupon)) this.#kept.set(CLAIMED + coupon, '');
    const path = `/v1/coupons/${coupon}/claims`;
    // Only the demo has a page that follows a claim.
    if (!this.isDemo) return this.#send('POST', path);
    const began = performance.now();
    const reply = await this.#send('POST', path, undefined, { 'x-trace': '1' });
    if (reply.ok && reply.timed) {
      this.#kept.set(CLAIMED + coupon, reply.body.order_id);
      keepTrip(path, began, reply.body.order_id);
    }
    return reply;
  }

  /** Time from the request of this claim to its answer as this browser has measured it, in microseconds; null if it hasn't. */
  trip(order) {
    const ms = this.#kept.get(TRIP + order);
    return ms === null ? null : Math.round(1000 * Number(ms));
  }

  /** Whether the steps of this claim were measured, so that it can be followed. */
  isTraced(coupon, order) {
    return this.#kept.get(CLAIMED + coupon) === order;
  }

  trace(order) {
    return this.#send('GET', `/v1/orders/${order}/trace`);
  }

  myClaim(coupon) {
    return this.#send('GET', `/v1/coupons/${coupon}/claims/me`);
  }

  order(order) {
    return this.#send('GET', `/v1/orders/${order}`);
  }

  /** The redemption code of a paid order as a picture: `picture` is its text. */
  qr(order) {
    return this.#send('GET', `/v1/orders/${order}/qr`);
  }

  orders() {
    return this.#send('GET', '/v1/orders?limit=20');
  }

  coupon(coupon) {
    return this.#send('GET', `/v1/coupons/${coupon}`);
  }

  /** The newest sales that have not been ended: active ones, then paused ones. A reply, as any other. */
  async coupons() {
    const replies = await Promise.all(['active', 'paused'].map((state) => this.#send('GET', `/v1/coupons?kind=flash&state=${state}&limit=50`)));
    const coupons = replies.flatMap(({ body }) => body.coupons ?? []);
    return { ...(replies.find(({ ok }) => !ok) ?? replies[0]), body: { coupons } };
  }

  /** Pays so much, if the page has shown it. The one place that knows how a payment is made. */
  pay(order, cents) {
    return this.#send('POST', `/v1/orders/${order}/pay`, { method: 'balance', expected_cents: cents });
  }

  cancel(order) {
    return this.#send('POST', `/v1/orders/${order}/cancel`);
  }

  refund(order) {
    return this.#send('POST', `/v1/orders/${order}/refund`);
  }

  #send(method, path, body, more) {
    return request(method, path, path.startsWith('/demo/') ? null : this.token, body, more);
  }
}

/** What a token says of its user; null if it is none. */
function claimsOf(token) {
  try {
    return JSON.parse(atob(token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/')));
  } catch {
    return null;
  }
}

/** The end of a token's time, in ms. */
function untilMs(token) {
  return 1000 * (claimsOf(token)?.exp ?? 0);
}

/**
 * Keeps the time from the first byte sent to the first byte received of a request to this path. The browser tells it before
 * or after the reply is read.
 */
function keepTrip(path, began, order) {
  const found = (list, observer) => {
    const entry = list.getEntries().find((it) => it.startTime >= began && new URL(it.name).pathname === path);
    if (!entry) return;
    observer.disconnect();
    ofDevice.set(TRIP + order, entry.responseStart - entry.requestStart);
  };
  new PerformanceObserver(found).observe({ type: 'resource', buffered: true });
}
