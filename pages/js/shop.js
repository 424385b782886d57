// The shopper's page: puts the parts together, and paints.

import { render } from '../vendor/lit-html.js';
import { Api } from './api.js';
import { AGAIN, Claim } from './claim.js';
import { Clock } from './clock.js';
import { faceOf, ofSale, payByMs, wordOf } from './face.js';
import { Stream } from './stream.js';
import texts from './texts.js';
import { page } from './view.js';
import { turnTheme, useTheme } from './theme.js';
import { Words } from './words.js';

/** Faces that are on the way to another one: the live region waits for that. */
const PASSING = ['loading', 'claiming'];
/** Refusals of a coupon that has no page here. */
const MISSING = ['coupon_not_found', 'no_sale', 'invalid_id'];
/** Shortest pause before the orders are asked for again. */
const LIST_AGAIN_MS = 3000;
/** Pause between two looks for the next sale, after the end of one. */
const NEXT_MS = 300_000;
/** Time within which a page that is shown again takes such a look: in its second half, when no older answer is shown any more. */
const SHOWN_MS = 3000;

const [, inPath] = location.pathname.match(/^\/sale\/([^/]+)$/) ?? [];
const api = new Api();
const words = new Words(texts);
const clock = new Clock();
const state = { missing: null, sale: null, line: 'connecting', heardAt: 0, clock, claim: { phase: 'idle' }, user: api.user, orders: null, ordersFailed: false, titles: {} };
let painted = null;
let said = null;
let listed = null;
/** Whether the page has been hidden, and has heard nothing since it is shown again. */
let isShownAnew = false;
/** Lists of orders that have been asked for. */
let lists = 0;

const does = {
  claim: () => state.claim.claim(),
  pay: () => state.claim.pay((state.claim.price ?? state.sale).pay_cents),
  cancel: () => state.claim.cancel(),
  refund: () => state.claim.refund(),
  turnLanguage() {
    words.turn();
    paint();
  },
  turnTheme,
};

function paint() {
  const face = faceOf(state, clock.now());
  const focused = document.activeElement?.closest('.buttons') && document.activeElement;
  render(page(state, face, words, does), document.getElementById('page'));
  if (state.sale) document.title = `${state.sale.title} · flash-sale`;
  // The button has gone: the focus goes to what stands in its place.
  if (focused && !focused.isConnected) document.querySelector('.face[tabindex], #claim')?.focus();
  painted = face;
  say(face);
}

/** Speaks each outcome once, without digits. The state that the page begins with is read like any page. */
function say(face) {
  const over = state.claim.phase === 'held' ? state.claim.status : '';
  const outcome = `${face} ${over}`;
  if (PASSING.includes(face) || outcome === said) return;
  if (said !== null) {
    const spoken = wordOf(over !== '' ? over : face, state.claim, words);
    const texts = [spoken, `${spoken}.more`].filter((key) => words.has(key));
    document.getElementById('said').textContent = texts.map((key) => words.of(key)).join('. ');
  }
  said = outcome;
}

/** Called by the claim whenever it has changed. */
function claimChanged() {
  state.user = api.user;
  const held = `${state.claim.orderId} ${state.claim.status}`;
  if (state.claim.phase === 'held' && state.claim.status !== 'pending' && held !== listed) {
    listed = held;
    listOrders();
  }
  paint();
}

async function listOrders() {
  if (api.token === null) return;
  lists += 1;
  const list = lists;
  const reply = await api.orders();
  // Overtaken by a newer list.
  if (list !== lists) return;
  state.ordersFailed = !reply.ok;
  if (AGAIN.includes(reply.code)) setTimeout(() => list === lists && listOrders(), LIST_AGAIN_MS * (1 + Math.random()));
  if (reply.ok) state.orders = reply.body.orders;
  const unnamed = new Set((state.orders ?? []).map((order) => order.coupon_id).filter((coupon) => !(coupon in state.titles)));
  for (const coupon of unnamed) {
    const named = await api.coupon(coupon);
    if (named.ok) state.titles[coupon] = named.body.title;
  }
  paint();
}

function heard({ event, line, refused, dateMs, sleptMs }) {
  const { now, ...sale } = event ?? {};
  if (sleptMs) {
    clock.slept(sleptMs);
    state.heardAt -= sleptMs;
  }
  if (dateMs) clock.guess(dateMs);
  if (refused) state.missing = 'coupon_not_found';
  if (line) state.line = line;
  if (now !== undefined && now !== null) clock.heard(now);
  if (event) {
    state.sale = sale.pay_within_s ? sale : { pay_within_s: state.sale?.pay_within_s, ...sale };
    state.heardAt = performance.now();
    state.titles[sale.coupon_id] = sale.title;
    state.claim.heardOfSale();
    if (isShownAnew) setTimeout(goOn, (SHOWN_MS * (1 + Math.random())) / 2);
    isShownAnew = false;
  }
  paint();
}

/** The state of the sale without a stream. */
async function ask(coupon) {
  const reply = await api.coupon(coupon);
  const { id, sale, ...about } = reply.body;
  if (MISSING.includes(reply.code) || (reply.ok && !sale)) return { refused: 'coupon_not_found' };
  if (!reply.ok) return { line: 'lost' };
  const [opens_ms, closes_ms] = [Date.parse(sale.opens_at), Date.parse(sale.closes_at)];
  return { line: 'asked', event: { now: reply.dateMs, ...about, coupon_id: id, total: sale.total, left: sale.left, opens_ms, closes_ms } };
}

/** The newest sale that is on, the next one, or the last one. */
function newest({ dateMs: now, body }) {
  const sales = body.coupons;
  const lasts = sales.filter((coupon) => Date.parse(coupon.sale.closes_at) > now);
  const open = lasts.filter((coupon) => Date.parse(coupon.sale.opens_at) <= now);
  return open.find((coupon) => coupon.sale.left !== 0) ?? lasts.find((coupon) => !open.includes(coupon)) ?? open[0] ?? sales[0];
}

/** The coupon in the path, or the newest one. */
async function chooseCoupon() {
  if (inPath) return inPath;
  for (;;) {
    const reply = await api.coupons();
    const chosen = reply.ok ? newest(reply) : null;
    if (chosen) return chosen.id;
    [state.missing, state.line] = reply.ok ? ['no_sale', 'live'] : [null, 'lost'];
    paint();
    await new Promise((over) => setTimeout(over, 5000 + 5000 * Math.random()));
  }
}

/** Where the path names no coupon, a sale that has ended makes room for the next one, unless this tab shows a claim on it. */
async function goOn() {
  const isOver = () => state.sale && ofSale(state.sale, clock.now()) === 'sale_ended' && ['idle', 'refused'].includes(state.claim.phase);
  if (inPath || document.hidden || !isOver()) return;
  const reply = await api.coupons();
  const next = reply.ok ? newest(reply) : null;
  if (next && next.id !== state.sale.coupon_id && Date.parse(next.sale.closes_at) > reply.dateMs && isOver()) location.reload();
}

/** Paints while a time on the page moves, and when the time alone has changed the face: the sale opens or closes. */
function tick() {
  const face = faceOf(state, clock.now());
  const moves = ['sale_not_started', 'unpaid'].includes(face) || state.claim.phase === 'again' || state.line === 'lost';
  if (moves || face !== painted) paint();
  const payBy = state.sale && state.claim.phase === 'held' ? payByMs(state) : null;
  if (payBy !== null && clock.now() > payBy) state.claim.timeIsUp();
}

async function start() {
  useTheme();
  paint();
  const coupon = await chooseCoupon();
  state.missing = null;
  state.claim = new Claim(api, coupon, claimChanged);
  new Stream({ path: `/v1/coupons/${coupon}/live`, event: 'sale', final: MISSING, ask: () => ask(coupon) }, heard);
  setInterval(tick, 200);
  setInterval(goOn, NEXT_MS * (0.5 + Math.random()));
  document.addEventListener('visibilitychange', () => (isShownAnew = !document.hidden));
  listOrders();
}

start();
