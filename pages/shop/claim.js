// This tab's claim on one coupon: from the click to the end of its order.
//
// A claim is safe to repeat, so whatever has no answer is asked again by itself. A user who lost costs one request; only
// a winner polls: a gateway, a clerk or the staff may move the order on.

/** Pauses between the looks at a claim until its order is written. */
const LOOKS_MS = [150, 250, 400, 800, 1500, 3000];
const LOOK_MS = 5000;
/** Looks at an order that waits for its payment. */
const LOOKS_MAX = LOOKS_MS.length + 12;
/** Pause between those after them, and between those at a paid order, which a clerk may redeem: while the page is seen. */
const LATE_LOOK_MS = 20_000;
const PAID_LOOK_MS = 8000;
const RETRY_MIN_MS = 1000;
const RETRY_MAX_MS = 10_000;

/** Refusals after which the same request is sent again; `coming_back` is the page's own word. */
export const AGAIN = ['overloaded', 'rate_limited', 'unavailable', 'recovering', 'coming_back'];
/** Time for which the button that pays takes no click: a second one was meant for the button that stood there before. */
const AIM_MS = 700;
/** Time that the service may take until an order that is paid or closed counts no more as an unpaid one. */
const FREED_MS = 30_000;
/** Statuses of an order that has ended, so the user may claim again. */
export const OVER = ['cancelled', 'expired', 'refunded'];
/** Statuses of a claim that is no order yet, so it stands in no list. */
export const UNWRITTEN = ['pending', 'in_review'];
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
  /** The order as the API tells it, with the price of the claim's moment; null until it is written. */
  order = null;
  /** Address of the picture of a paid order's code; null until there is one. */
  qr = null;
  /** From when on the order may be paid here, by `performance.now()`. */
  payableAt = 0;
  /** Whether the steps of the claim were measured. */
  traced = false;
  /** Whether a click found an order of an earlier one. */
  already = false;
  /** What is being done to the order: `pay`, `cancel` or `refund`; and why the last deed failed. */
  deed = null;
  deedCode = null;

  coupon;

  #api;
  #changed;
  #tries = 0;
  #looks = 0;
  #timer = null;
  #lookAt = 0;
  #isLate = false;
  /** `pay`, `cancel` or `refund`. */
  #lastDeed = null;
  /** Number of claims and deeds that have begun or ended: what was asked before them is old. */
  #acts = 0;

  constructor(api, coupon, changed) {
    this.#api = api;
    this.coupon = coupon;
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

  /** Pays the amount that the page shows. */
  pay() {
    if (performance.now() < this.payableAt || this.order === null) return;
    this.#do('pay', () => this.#api.pay(this.orderId, this.order.pay_cents));
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

  /** This shopper has an order of the coupon, of another device or an earlier visit. */
  found() {
    if (this.phase === 'idle' && this.#timer === null) this.#lookIn(0);
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
    const reply = refusal ?? (await this.#api.claim(this.coupon));
    const code = this.#isComingBack(reply) ? 'coming_back' : reply.code;
    if (reply.ok) {
      this.#hold(reply.body.order_id, reply.body.status);
    } else if (code === 'already_claimed') {
      // After a repeat of our own it is the answer to the first request.
      this.already = this.#tries === 0;
      this.#hold(reply.body.order_id, 'pending');
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

  #hold(orderId, status) {
    this.#acts += 1;
    [this.#looks, this.#isLate] = [0, false];
    const traced = this.#api.isTraced(this.coupon, orderId);
    this.#become({ phase: 'held', code: null, orderId, status, order: null, qr: null, traced });
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
    const reply = await this.#api.myClaim(this.coupon);
    const known = reply.ok && !UNWRITTEN.includes(reply.body.status) ? await this.#read(reply.body) : {};
    // Overtaken by a claim or a deed, whose answer counts.
    if (acts !== this.#acts) return this.#timer === null && this.#lookIn(RETRY_MIN_MS);
    if (reply.ok && !['claiming', 'again'].includes(this.phase)) {
      const { order_id: orderId, status } = reply.body;
      const traced = this.#api.isTraced(this.coupon, orderId);
      this.#become({ phase: 'held', code: null, orderId, status, traced, deedCode: this.#deedAfter(status), ...known });
    }
    const over = reply.code === 'not_claimed' || reply.code === 'invalid_token' || reply.code === 'coupon_not_found';
    if (over) return this.phase === 'held' && this.#isGone(reply.code);
    const pause = this.#pauseAfter(reply);
    if (pause === null || this.#timer !== null) return;
    this.#looks += 1;
    this.#lookIn(pause);
  }

  /** What the page shows of an order beside its status, where that has changed; a part that has no answer is asked for again. */
  async #read({ order_id: orderId, status }) {
    let [order, qr] = orderId === this.orderId ? [this.order, this.qr] : [null, null];
    if (order?.status !== status) order = (await this.#api.order(orderId)).body;
    if (order.order_id === undefined) return { order: null };
    if (status === 'paid' && qr === null) {
      const { ok, body } = await this.#api.qr(orderId);
      if (ok) qr = `data:image/svg+xml,${encodeURIComponent(body.picture)}`;
    }
    return { order, qr };
  }

  /** Pause until the next look; null if nothing is to come, or nobody sees it: a page that is shown again looks at once. */
  #pauseAfter({ ok, body }) {
    const status = ok ? body.status : null;
    const next = LOOKS_MS[this.#looks] ?? LOOK_MS;
    if (status === null || [...UNWRITTEN, 'refunding'].includes(status)) return next;
    if ((status === 'unpaid' || this.order === null) && this.#looks < LOOKS_MAX) return next;
    if (!['unpaid', 'paid'].includes(status) || document.hidden) return null;
    if (status === 'unpaid') return LATE_LOOK_MS;
    return this.qr === null ? next : PAID_LOOK_MS;
  }

  /** What there is to say of the last deed, now that the status is known: one without an answer has done nothing so far. */
  #deedAfter(status) {
    if (this.deedCode === null || this.deedCode === 'invalid_transition') return this.deedCode;
    if (status !== this.status) return null;
    return AGAIN.includes(this.deedCode) && this.deedCode !== 'rate_limited' ? `${this.#lastDeed}_unanswered` : this.deedCode;
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
    this.#lastDeed = deed;
    if (reply.ok && reply.body.pay_url) return this.#payAt(reply.body.pay_url);
    const told = reply.ok ? { status: reply.body.status ?? this.status, order: reply.body } : {};
    this.#become({ deed: null, deedCode: reply.code, ...told });
    // A status that is still to change, a code that has no picture yet, or an outcome that is unknown.
    if (!OVER.includes(this.status)) this.#lookIn(reply.ok ? LOOKS_MS[0] : RETRY_MIN_MS);
  }

  /** Sends the payer to the gateway, whose confirmation this page finds when the payer is back. */
  #payAt(url) {
    this.#become({ deed: null });
    if (/^https?:/.test(new URL(url, location.href).protocol)) location.assign(url);
  }

  #become(change) {
    if (this.status !== 'unpaid' && change.status === 'unpaid') this.payableAt = performance.now() + AIM_MS;
    if (this.status === 'unpaid' && (change.status ?? 'unpaid') !== 'unpaid') this.#api.noteFreed();
    Object.assign(this, change);
    this.#changed();
  }
}
