// This tab's claim on one coupon: from the click to the end of its order.
//
// A claim is safe to repeat, so whatever has no answer is asked again by itself. A user who lost costs one request; only
// a winner polls.

/** Pauses between the looks at a claim until its order is written. */
const LOOKS_MS = [150, 250, 400, 800, 1500, 3000];
const LOOK_MS = 5000;
/** Looks at an order that waits for its payment. */
const LOOKS_MAX = LOOKS_MS.length + 12;
/** Pause between those after them, where it may be being paid for at a gateway. */
const LATE_LOOK_MS = 20_000;
const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 10_000;

/** Refusals after which the same request is sent again; `coming_back` is the page's own word. */
export const AGAIN = ['overloaded', 'rate_limited', 'unavailable', 'recovering', 'coming_back'];
/** Time that the service may take until an order that is paid or closed counts no more as an unpaid one. */
const FREED_MS = 30_000;
/** Statuses of an order that has ended, so the user may claim again. */
export const OVER = ['cancelled', 'expired', 'refunded'];
/** Statuses of a claim that a failure of a store may take; orders that have ended are let go in time. */
const CAN_BE_LOST = ['pending', 'in_review', 'unpaid'];
/** Refusals that the state of the sale explains, until the next state comes. */
export const OF_THE_SALE = ['sold_out', 'sale_paused', 'sale_ended', 'sale_not_started'];

export class Claim {
  /** `idle`, `claiming`, `again` (with `code` and `againAt`), `refused` (with `code`) or `held` (with `status`). */
  phase = 'idle';
  code = null;
  againAt = 0;
  status = null;
  orderId = null;
  /** When the claim was made, by the server's clock; null until the order is written. */
  claimedMs = null;
  /** Until when the order may be paid, if it says so. */
  payByMs = null;
  /** What the order costs: `pay_cents` and `currency` of the claim's moment; null until the order is written. */
  price = null;
  /** Whether the steps of the claim were measured. */
  traced = false;
  /** Whether a click found an order of an earlier one. */
  already = false;
  /** What is being done to the order: `pay`, `cancel` or `refund`; and why the last deed failed. */
  deed = null;
  deedCode = null;

  #api;
  #coupon;
  #changed;
  #tries = 0;
  #looks = 0;
  #timer = null;
  #lookAt = 0;
  #isLate = false;
  #isAtGateway = false;
  /** Number of claims and deeds that have begun or ended: what was asked before them is old. */
  #acts = 0;

  constructor(api, coupon, changed) {
    this.#api = api;
    this.#coupon = coupon;
    this.#changed = changed;
    if (api.hasClaimed(coupon)) this.#look();
    // While nobody looked, another tab or a clerk may have moved the order on.
    document.addEventListener('visibilitychange', () => !document.hidden && this.phase === 'held' && this.#lookIn(0));
  }

  /** Claims; of several clicks the first one counts. */
  async claim() {
    if (['claiming', 'again'].includes(this.phase)) return;
    this.#tries = 0;
    await this.#ask();
  }

  /** Pays the amount that the page shows, in minor units. */
  pay(cents) {
    return this.#do('pay', () => this.#api.pay(this.orderId, cents));
  }

  cancel() {
    return this.#do('cancel', () => this.#api.cancel(this.orderId));
  }

  refund() {
    return this.#do('refund', () => this.#api.refund(this.orderId));
  }

  /** The sale has told its state, which counts more than an older refusal. */
  heardOfSale() {
    if (this.phase === 'refused' && OF_THE_SALE.includes(this.code)) this.#become({ phase: 'idle', code: null });
  }

  /** The time to pay is over: looks at what has become of the order. */
  timeIsUp() {
    if (this.status !== 'unpaid' || (this.#timer !== null && this.#lookAt - performance.now() <= LOOK_MS)) return;
    // The service takes a moment to expire an order.
    this.#lookIn(this.#isLate ? LOOK_MS : RETRY_MIN_MS);
    this.#isLate = true;
  }

  async #ask(anew = false) {
    this.#become({ phase: 'claiming', code: null, deedCode: null, already: false });
    const refusal = await this.#api.enter();
    if (refusal && !AGAIN.includes(refusal.code)) return this.#become({ phase: 'refused', code: 'invalid_token' });
    const reply = refusal ?? (await this.#api.claim(this.#coupon));
    const code = this.#isComingBack(reply) ? 'coming_back' : reply.code;
    if (reply.ok) {
      this.#hold(reply.body.order_id, reply.body.status, Date.parse(reply.body.claimed_at) || null);
    } else if (code === 'already_claimed') {
      // After a repeat of our own it is the answer to the first request.
      this.already = this.#tries === 0;
      this.#hold(reply.body.order_id, 'pending', null);
    } else if (AGAIN.includes(code)) {
      const pause = Math.max(reply.retryMs, Math.min(RETRY_MIN_MS * 2 ** this.#tries, RETRY_MAX_MS));
      this.#tries += 1;
      this.#become({ phase: 'again', code, againAt: performance.now() + pause });
      // A crowd that was sent away together must not come back together.
      setTimeout(() => this.#ask(), pause + 500 * Math.random());
    } else if (code === 'invalid_token' && !anew) {
      // The token has run out; the demo gives another one.
      this.#api.leave();
      await this.#ask(true);
    } else {
      this.#become({ phase: 'refused', code });
    }
  }

  /**
   * The service lets go of an order a moment after it is closed or paid: until then it still tells the closed one, or
   * counts it among those to be paid.
   */
  #isComingBack({ code, body }) {
    if (code === 'too_many_unpaid_orders') return Math.abs(Date.now() - this.#api.freedAt) < FREED_MS;
    return code === 'already_claimed' && body.order_id === this.orderId && OVER.includes(this.status);
  }

  #hold(orderId, status, claimedMs) {
    this.#acts += 1;
    [this.#looks, this.#isLate] = [0, false];
    const traced = this.#api.isTraced(this.#coupon, orderId);
    this.#become({ phase: 'held', code: null, orderId, status, claimedMs, payByMs: null, price: null, traced });
    this.#lookIn(LOOKS_MS[0]);
  }

  #lookIn(ms) {
    clearTimeout(this.#timer);
    this.#lookAt = performance.now() + ms;
    this.#timer = setTimeout(() => this.#look(), ms);
  }

  /** Looks at the claim, and again as long as something is to come. */
  async #look() {
    this.#timer = null;
    const acts = this.#acts;
    const reply = await this.#api.myClaim(this.#coupon);
    // Overtaken by a claim or a deed, whose answer counts.
    if (acts !== this.#acts) return this.#timer === null && this.#lookIn(RETRY_MIN_MS);
    if (reply.ok) {
      const { order_id: orderId, status } = reply.body;
      if (orderId !== this.orderId) [this.claimedMs, this.payByMs, this.price] = [null, null, null];
      if (status === 'unpaid' && this.price === null) {
        const order = await this.#api.order(orderId);
        if (order.ok) {
          this.claimedMs = Date.parse(order.body.claimed_at);
          this.payByMs = Date.parse(order.body.pay_by) || null;
          this.price = order.body;
        }
      }
      const traced = this.#api.isTraced(this.#coupon, orderId);
      if (!['claiming', 'again'].includes(this.phase)) this.#become({ phase: 'held', code: null, orderId, status, traced, deedCode: this.#stillTrue(status) });
    }
    const over = reply.code === 'not_claimed' || reply.code === 'invalid_token' || reply.code === 'coupon_not_found';
    if (over) return this.phase === 'held' && this.#isGone(reply.code);
    const settled = reply.ok && !['pending', 'in_review', 'refunding'].includes(reply.body.status);
    // A payment at a gateway is confirmed there: for a minute it is looked for here.
    const known = settled && !(reply.body.status === 'unpaid' && (this.#looks < LOOKS_MAX || this.#isAtGateway));
    if (known || this.#timer !== null) return;
    this.#looks += 1;
    this.#lookIn(LOOKS_MS[this.#looks] ?? (settled && this.#looks > LOOKS_MAX ? LATE_LOOK_MS : LOOK_MS));
  }

  /** What a deed's refusal says, as long as the order is as it was then. */
  #stillTrue(status) {
    return status === this.status || this.deedCode === 'invalid_transition' ? this.deedCode : null;
  }

  /** A claim that was confirmed can't be found: the session is over, or the service has lost it. */
  #isGone(code) {
    if (code === 'invalid_token') this.#become({ deedCode: code });
    else if (code === 'not_claimed' && CAN_BE_LOST.includes(this.status)) this.#become({ phase: 'refused', code, status: null });
  }

  async #do(deed, call) {
    if (this.deed !== null) return;
    this.#become({ deed, deedCode: null });
    this.#acts += 1;
    const reply = await call();
    this.#acts += 1;
    this.#looks = 0;
    this.#isAtGateway = deed === 'pay' && (reply.code ?? 'payment_elsewhere') === 'payment_elsewhere';
    if (reply.ok && reply.body.pay_url) return this.#payAt(reply.body.pay_url);
    this.#become({ deed: null, deedCode: reply.ok ? null : reply.code, status: (reply.ok && reply.body.status) || this.status });
    // A status that is still to change, or an outcome that is unknown.
    if (!reply.ok || this.status === 'refunding') this.#lookIn(reply.ok ? LOOKS_MS[0] : RETRY_MIN_MS);
  }

  /** Sends the payer to the gateway, whose confirmation this page finds when the payer is back. */
  #payAt(url) {
    this.#become({ deed: null });
    if (/^https?:/.test(new URL(url, location.href).protocol)) location.assign(url);
  }

  #become(change) {
    if (this.status === 'unpaid' && (change.status ?? 'unpaid') !== 'unpaid') this.#api.noteFreed();
    Object.assign(this, change);
    this.#changed();
  }
}
