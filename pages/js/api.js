// Calls of the API, and the token of this tab.

import { request } from './request.js';
import { ofTab } from './store.js';

const TOKEN = 'flash-sale.token';
const CLAIMED = 'flash-sale.claimed.';
const DEMO = 'flash-sale.demo';
const FREED = 'flash-sale.freed';
const TRIP = 'flash-sale.trip.';

export class Api {
  get token() {
    return ofTab.get(TOKEN);
  }

  /** The user in the token; only the service can tell whether it is genuine. */
  get user() {
    try {
      return JSON.parse(atob(this.token.split('.')[1].replace(/-/g, '+').replace(/_/g, '/'))).sub;
    } catch {
      return null;
    }
  }

  /** Whether this tab has tried to claim the coupon: only then there is something to ask for. */
  hasClaimed(coupon) {
    return this.token !== null && ofTab.get(CLAIMED + coupon) !== null;
  }

  /** Makes sure that there is a token; the demo gives one. Null, or the reply that refuses it. */
  async enter() {
    if (this.token !== null) return null;
    const reply = await this.#send('POST', '/demo/shoppers');
    if (!reply.ok) return reply;
    ofTab.set(TOKEN, reply.body.token);
    // Only the demo has a page that follows a claim.
    ofTab.set(DEMO, '');
    return null;
  }

  /** When an unpaid order of this tab was paid or closed, by this machine's clock, in ms; 0 if none was. */
  get freedAt() {
    return Number(ofTab.get(FREED));
  }

  noteFreed() {
    ofTab.set(FREED, Date.now());
  }

  leave() {
    ofTab.remove(TOKEN);
  }

  async claim(coupon) {
    if (ofTab.get(CLAIMED + coupon) === null) ofTab.set(CLAIMED + coupon, '');
    const path = `/v1/coupons/${coupon}/claims`;
    if (ofTab.get(DEMO) === null) return this.#send('POST', path);
    const trip = watchTrip(path);
    const reply = await this.#send('POST', path, undefined, { 'x-trace': '1' });
    if (reply.ok && reply.timed) {
      ofTab.set(CLAIMED + coupon, reply.body.order_id);
      trip.keep(reply.body.order_id);
    }
    return reply;
  }

  /** Time from the request of this claim to its answer as this tab has measured it, in microseconds; null if it hasn't. */
  trip(order) {
    const ms = ofTab.get(TRIP + order);
    return ms === null ? null : Math.round(1000 * Number(ms));
  }

  /** Whether the steps of this claim were measured, so that it can be followed. */
  isTraced(coupon, order) {
    return ofTab.get(CLAIMED + coupon) === order;
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

/**
 * Watches for the browser's own times of the next request to a path. It may tell them before or after the reply is read;
 * `keep` stores the time from the first byte sent to the first byte received, for this order.
 */
function watchTrip(path) {
  const began = performance.now();
  let order = null;
  let ms = null;
  const store = () => order !== null && ms !== null && ofTab.set(TRIP + order, ms);
  const observer = new PerformanceObserver((list) => {
    const found = list.getEntries().find((it) => it.startTime >= began && new URL(it.name).pathname === path);
    if (!found) return;
    observer.disconnect();
    ms = found.responseStart - found.requestStart;
    store();
  });
  observer.observe({ type: 'resource' });
  return {
    keep(of) {
      order = of;
      store();
    },
  };
}
