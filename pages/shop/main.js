// The shopper's page: puts the parts together, and paints.

import { render } from '../vendor/lit-html.js';
import { Api } from '../js/api.js';
import { AGAIN, Claim, OVER } from './claim.js';
import { Clock, Stream } from '../js/stream.js';
import texts from './texts.js';
import { deedWord, faceOf, LOST_S, ofSale, overOf, page, payByMs, wordOf } from './view.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { Words } from '../js/words.js';

/** Faces that are on the way to another one: the live region waits for that. */
const PASSING = ['loading', 'claiming'];
/** What is left of the time to pay when the page says so. */
const LAST_MS = 60_000;
/** Refusals of a coupon that has no page here. */
const MISSING = ['coupon_not_found', 'no_sale', 'invalid_id'];
/** Shortest pause before the orders are asked for again. */
const LIST_AGAIN_MS = 3000;
/** Pause between two looks for the next sale, after the end of one. */
const NEXT_MS = 300_000;
/** Time within which a page that is shown again takes such a look: in its second half, when no older answer is shown any more. */
const SHOWN_MS = 3000;

const [, inPath] = location.pathname.match(/^\/sale\/([^/]+)\/?$/) ?? [];
const api = new Api();
const words = new Words(texts);
const clock = new Clock();
/**
 * What the page shows. `asked` is the deed that waits for a yes, and `isWanted` tells that the shopper wants to be told of
 * a unit that comes back.
 */
const state = {
  missing: null, sale: null, line: 'connecting', heardAt: performance.now(), clock, claim: { phase: 'idle', order: null }, user: api.user, isDemo: api.isDemo,
  orders: null, ordersFailed: false, titles: {}, asked: null, isWanted: false,
};
/** What has been spoken last of each subject; null before the first paint with a sale. */
let said = null;
let stream = null;
let listed = null;
/** Whether the page has been hidden, and has heard nothing since it is shown again. */
let isShownAnew = false;
/** Lists of orders that have been asked for. */
let lists = 0;

const does = {
  claim: () => state.claim.claim(),
  pay: () => state.claim.pay(),
  /** Asks before an order is given up or returned. */
  ask(deed) {
    if (state.claim.deed !== null) return;
    state.asked = deed;
    paint();
    document.querySelector('dialog').showModal();
  },
  yes() {
    const deed = state.asked;
    does.no();
    state.claim[deed]();
  },
  no: () => document.querySelector('dialog').close(),
  closed() {
    state.asked = null;
    paint();
  },
  remind,
  /** Tells of a unit that comes back, as long as this tab is open. */
  want() {
    state.isWanted = true;
    stream.staysWhileHidden = true;
    // A browser that can't show a notice, or may not, has the title of the tab.
    if (window.Notification?.permission === 'default') Notification.requestPermission();
    paint();
  },
  /** The demo has any number of shoppers. */
  another() {
    api.leave();
    location.reload();
  },
  turnLanguage() {
    words.turn();
    paint();
  },
  turnTheme,
};

function paint() {
  const face = faceOf(state, clock.now());
  // The order has moved on while the question was open.
  if (state.asked && face !== { cancel: 'unpaid', refund: 'paid' }[state.asked]) return does.no();
  if (state.isWanted && face !== 'sold_out') tellOfUnit(face);
  const focused = document.activeElement?.closest('#sale') && document.activeElement;
  const place = document.getElementById('page');
  // What the server has sent stands until there is more to say.
  if (said === null && place.querySelector('h1') && face === 'loading') return;
  if (said === null && !place.querySelector('#sale')) place.replaceChildren();
  render(page(state, face, words, does), place);
  if (state.sale && !document.hidden) document.title = `${state.sale.title} · flash-sale`;
  // The button has gone: the focus goes to what stands in its place.
  if (focused && !focused.isConnected) document.querySelector('.face[tabindex], #claim')?.focus();
  say(face);
}

/** Hands the browser an entry for the calendar (RFC 5545). */
function remind() {
  const { coupon_id: coupon, title, opens_ms: opens } = state.sale;
  const time = (ms) => new Date(ms).toISOString().replace(/[-:]|\.\d+/g, '');
  const entry = [
    'UID:' + coupon, 'DTSTAMP:' + time(Date.now()), 'DTSTART:' + time(opens), 'DURATION:PT15M',
    'SUMMARY:' + title.replace(/[\\;,]/g, '\\$&'), `URL:${location.origin}/sale/${coupon}`,
  ];
  const file = ['BEGIN:VCALENDAR', 'VERSION:2.0', 'PRODID:flash-sale', 'BEGIN:VEVENT', ...entry, 'END:VEVENT', 'END:VCALENDAR', ''].join('\r\n');
  const href = URL.createObjectURL(new Blob([file], { type: 'text/calendar' }));
  Object.assign(document.createElement('a'), { href, download: 'sale.ics' }).click();
}

/** The shopper may look at another tab meanwhile. */
function tellOfUnit(face) {
  state.isWanted = false;
  stream.staysWhileHidden = false;
  if (face !== 'open' || !document.hidden) return;
  document.title = `● ${words.of('back_on_sale')} · ${state.sale.title}`;
  try {
    new Notification(words.of('back_on_sale'), { body: state.sale.title });
  } catch {
    // Phones take notices from service workers alone.
  }
}

/** Speaks each news once, without digits. The state that the page begins with is read like any page. */
function say(face) {
  if (PASSING.includes(face)) return;
  const { claim, line, heardAt } = state;
  const over = overOf(claim);
  const isLast = face === 'unpaid' && claim.order && payByMs(claim) - clock.now() < LAST_MS;
  const isLost = line === 'lost' ? said?.line === 'lost' || performance.now() - heardAt > 1000 * LOST_S : line !== 'live' && said?.line === 'lost';
  const now = {
    over: over && `face.${over}`, face: wordOf(face, claim, words), deed: claim.deedCode && deedWord(claim.deedCode, words),
    line: isLost ? 'lost' : 'found', last: isLast && 'last_minute',
  };
  const isNews = (key) => said && now[key] && now[key] !== said[key];
  // An order that has ended is the news, and not that the sale goes on.
  const isAside = over && (isNews('over') || face === 'open');
  const told = Object.keys(now).filter((key) => isNews(key) && !(key === 'face' && isAside));
  const spoken = told.flatMap((key) => [now[key], `${now[key]}.more`]).filter((key) => words.has(key)).map((key) => words.of(key));
  if (spoken.length > 0) document.getElementById('said').textContent = spoken.map((text) => (/[.。！!]$/.test(text) ? text : `${text}.`)).join(' ');
  said = now;
}

/** Called by the claim whenever it has changed. */
function claimChanged() {
  [state.user, state.isDemo] = [api.user, api.isDemo];
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
  if (reply.ok) {
    state.orders = reply.body.orders;
    const isHere = (order) => order.coupon_id === state.claim.coupon && !OVER.includes(order.status);
    if (state.orders.some(isHere)) state.claim.found();
  }
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
    state.sale = sale;
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

/** Times move on the page, and the time alone opens and closes the sale. */
function tick() {
  if (!document.hidden) paint();
  const payBy = state.claim.phase === 'held' ? payByMs(state.claim) : null;
  if (payBy !== null && clock.now() > payBy) state.claim.timeIsUp();
}

async function start() {
  useTheme();
  if (!inPath && location.pathname !== '/') state.missing = 'coupon_not_found';
  paint();
  if (state.missing) return;
  const coupon = await chooseCoupon();
  state.missing = null;
  state.claim = new Claim(api, coupon, claimChanged);
  stream = new Stream({ path: `/v1/coupons/${coupon}/live`, event: 'sale', final: MISSING, ask: () => ask(coupon) }, heard);
  setInterval(tick, 200);
  setInterval(goOn, NEXT_MS * (0.5 + Math.random()));
  document.addEventListener('visibilitychange', () => (isShownAnew = !document.hidden));
  listOrders();
}

start();
