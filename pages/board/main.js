// The board: puts the parts together, and paints.

import { servedPages } from '../js/bar.js';
import { ask, send, session } from '../js/session.js';
import { Stream } from '../js/stream.js';
import { turnTheme, useTheme } from '../js/theme.js';
import { render } from '../vendor/lit-html.js';
import { emptyValues, idOf, lineOf, requestOf, valuesOf } from './dialogs.js';
import { turnsOf } from './incidents.js';
import { findOrders } from './orders.js';
import { foundBy } from './sales.js';
import { sentences } from './verdict.js';
import { page } from './view.js';
import { BoardWords } from './wording.js';

const POINTS_MAX = 300;
const SEEN_MAX = 20;
const NOTICE_MS = 8000;
/** Lists that no event has: path, and name in the reply. The book of changes is for administrators alone. */
const LISTS = { book: ['/v1/audit?limit=20', 'entries'], regular: ['/v1/coupons?kind=regular&limit=100', 'coupons'] };
/** Pause between two looks at what no event has: the lists, a sale that was opened by its id, and all while the page is hidden. */
const LIST_MS = 15_000;
/** Time over which the units sold a second are counted. */
const SOLD_MS = 5000;
const FINAL = ['invalid_token', 'forbidden'];

const words = new BoardWords();
const state = { board: null, book: null, regular: [], served: [], line: 'connecting', ageMs: 0, points: [], coupon: null, wanted: null, other: null, find: '', findCode: null, all: false, rates: new Map(), seen: [], looked: null, orders: null, dialog: null, notice: null, comparing: false, locked: null };
let heardAt = 0;
let said = '';
let readAt = 0;
const reads = {};
/** Of each sale, its units at the last moments. */
const sold = new Map();
/** The dialog that was opened last. */
let shown = null;

const does = {
  turnLanguage() {
    words.turn();
    paint();
  },
  turnTheme,
  useToken(event) {
    state.locked = session.use(event);
    paint();
    if (state.locked !== null) return;
    watch();
    readLists();
  },
  readLists,
  pick(coupon) {
    // A new one that is still to come is no longer wanted, nor is a dialog that waits for the values of the last one.
    Object.assign(state, { coupon, wanted: null, dialog: null, find: '', findCode: null });
    paint();
  },
  search({ target }) {
    Object.assign(state, { find: target.value, findCode: null });
    paint();
  },
  async find(event) {
    event.preventDefault();
    const text = state.find.trim();
    const found = foundBy(state);
    const exact = found.find((one) => idOf(one) === text);
    if (text === '') return;
    if (!exact && /^\d+$/.test(text)) await openAny(text);
    else if (found.length > 0) does.pick(idOf(exact ?? found[0]));
    else state.findCode = 'coupon_not_found';
    paint();
  },
  openAny: async (coupon) => {
    await openAny(coupon);
    paint();
  },
  async findOrders(event) {
    event.preventDefault();
    state.orders = await findOrders(new FormData(event.target).get('number').trim());
    paint();
  },
  /** The time on the charts that the pointer is at. */
  look(ms) {
    state.looked = ms;
    paint();
  },
  showAll() {
    state.all = !state.all;
    paint();
  },
  async copy(text) {
    await navigator.clipboard.writeText(text);
    notice({ ok: true, status: 200, body: {} }, 'done.copy');
    paint();
  },
  open,
  close: () => document.getElementById('dialog').close(),
  closed({ target }) {
    // It is told a moment later: by then another one may be open, or may wait for its values.
    if (target.open || state.dialog !== shown) return;
    state.dialog = null;
    paint();
  },
  submit,
  reload: () => fill(state.dialog),
  retry: (letter) => tell(send('POST', `/v1/dead-letters/${letter}/retry`), 'done.retry'),
  retryAll: (reason) => tell(send('POST', '/v1/dead-letters/retry', { reason }), 'done.retry_all'),
  async compare() {
    if (state.comparing) return;
    state.comparing = true;
    paint();
    await tell(send('POST', '/v1/reconcile'), 'done.compare');
    state.comparing = false;
    paint();
  },
};

function paint() {
  state.ageMs = performance.now() - heardAt;
  const [worst] = sentences(state);
  const mark = { bad: '⚠ ', warn: '⚠ ', good: '✓ ' }[state.locked ? 'quiet' : worst.tone] ?? '';
  document.title = `${mark}${mark === '⚠ ' ? `${words.say(`sentence.${worst.key}`, worst)} · ` : ''}${words.of('title')} · flash-sale`;
  render(page(state, words, does), document.getElementById('page'));
  say();
}

/** Speaks the first sentence when it has become another one, without digits. */
function say() {
  if (state.board === null) return;
  const [{ key, text }] = sentences(state);
  if (said !== '' && key !== said) document.getElementById('said').textContent = words.say(`sentence.${key}`, { text }).replace(/–|0 (ms|毫秒)/g, '');
  said = key;
}

/** A word that no other dialog has. Pages without TLS have no randomUUID, but those of this machine. */
function randomWord() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join('-');
}

/**
 * Opens the dialog of a deed, on the coupon that is picked or on the thing with this id; a new coupon is `regular` or a
 * sale. `name` is what the dialog calls it: rows move while one aims at a button.
 */
async function open(kind, thing = null, name = null) {
  // One key for each dialog, however often it is sent.
  const isRegular = kind === 'create' ? thing !== null : state.regular.some(({ id }) => id === state.coupon);
  state.dialog = { kind, thing, name, isRegular, coupon: state.coupon, key: `board-${randomWord()}`, values: emptyValues(kind, state.board.now), currency: 'CNY', revision: null, code: null, detail: '', busy: false };
  state.dialog.values.key = state.dialog.key;
  const mine = state.dialog;
  if (kind === 'edit') await fill(mine);
  if (['discard', 'discard_all'].includes(kind)) readEntries(mine);
  // The coupon may come late: by then another dialog may be here, or may have been and gone.
  if (state.dialog !== mine) return;
  paint();
  shown = mine;
  document.getElementById('dialog').showModal();
}

/** Shows what would be discarded, as it stands in the log. Until then, nothing is. */
async function readEntries(dialog) {
  const ofReason = state.board.waiting.filter(({ kind, reason }) => kind === 'dead_letter' && reason === dialog.thing);
  const ids = dialog.kind === 'discard' ? [dialog.thing] : ofReason.map(({ id }) => id);
  dialog.entries = null;
  const replies = await Promise.all(ids.map((id) => send('GET', `/v1/dead-letters/${id}`)));
  const refused = replies.find(({ ok }) => !ok);
  if (refused) Object.assign(dialog, { code: refused.code, detail: refused.body.detail ?? '' });
  else dialog.entries = replies.map(({ body }) => body);
  paint();
}

/** Opens a sale that the event doesn't have, or looks at it once more. */
async function openAny(coupon) {
  const [about, progress] = await Promise.all(['', '/progress'].map((of) => send('GET', `/v1/coupons/${coupon}${of}`)));
  if (about.ok) {
    state.other = lineOf(about.body, progress.body.stores, state.board.now);
    if (coupon !== state.coupon) does.pick(coupon);
  } else {
    state.findCode = about.code;
  }
}

/** Fills the dialog with the coupon as it is now. */
async function fill(dialog) {
  const reply = await send('GET', `/v1/coupons/${dialog.coupon}`);
  if (reply.ok) Object.assign(dialog, { currency: reply.body.currency, revision: reply.body.revision, values: valuesOf(reply.body, words), code: null });
  else Object.assign(dialog, { code: 'not_loaded', detail: reply.body.detail ?? '' });
  paint();
}

async function submit(event) {
  event.preventDefault();
  const { dialog } = state;
  if (dialog.busy || dialog.entries === null) return;
  const values = Object.fromEntries(new FormData(event.target));
  Object.assign(dialog, { code: null, values: { ...dialog.values, ...values } });
  const { method, path, body, headers } = requestOf(dialog, words);
  dialog.busy = true;
  paint();
  const reply = await send(method, path, body, headers);
  dialog.busy = false;
  // It may have been closed meanwhile, which calls nothing back, and another one may be open.
  const isOpen = state.dialog === dialog;
  if (reply.ok || !isOpen) notice(reply, `done.${dialog.kind}`);
  if (reply.ok) {
    if (dialog.kind === 'create') state.wanted = reply.body.id;
    if (isOpen) does.close();
    readLists();
  } else {
    Object.assign(dialog, { code: reply.code, detail: reply.body.errors?.map((it) => `${it.pointer} ${it.detail}`).join('; ') ?? reply.body.detail ?? '' });
  }
  paint();
}

async function tell(sent, key) {
  notice(await sent, key);
  readLists();
  paint();
}

function readLists() {
  Object.keys(LISTS).forEach(read);
}

async function read(name) {
  const [path, of] = LISTS[name];
  const number = (reads[name] ?? 0) + 1;
  reads[name] = number;
  readAt = performance.now() + LIST_MS;
  const reply = await send('GET', path);
  // A later question has a newer answer.
  if (number !== reads[name]) return;
  const list = reply.body[of] ?? [];
  if (name === 'book') state.book = { code: reply.code, entries: list };
  else if (reply.ok) state[name] = list;
  choose();
  paint();
}

/** Picks a new coupon once it is there, and another one in place of one that has gone. */
function choose() {
  // Until Postgres has told the sales, there is nothing to choose from.
  if (!state.board?.stores.some(({ name, at }) => name === 'postgres' && at !== null)) return;
  const { sales, now } = state.board;
  const all = [...sales, ...state.regular, ...(state.other ? [state.other] : [])];
  const isThere = (id) => all.some((one) => idOf(one) === id);
  if (isThere(state.wanted)) [state.coupon, state.wanted] = [state.wanted, null];
  if (!isThere(state.coupon)) state.coupon = idOf(sales.find((sale) => sale.state === 'active' && sale.closes_ms > now) ?? all[0]) ?? state.coupon;
}

/** Tells the outcome of a deed for a while: a 202 is decided, and no more than that is known yet. */
function notice(reply, key) {
  const mine = reply.ok
    ? { tone: reply.status === 202 ? 'quiet' : 'good', key: reply.status !== 202 ? key : words.has(`${key}.later`) ? `${key}.later` : 'decided' }
    : { tone: 'bad', key: words.has(`refused.${reply.code}`) ? `refused.${reply.code}` : 'refused', text: reply.body.detail };
  // A comparison that ended is no good news by itself: its findings stand in its record.
  if (key === 'done.compare' && reply.body.disagreements !== 0 && reply.status === 200) Object.assign(mine, { tone: 'bad', key: reply.body.failure === null ? 'done.compare.findings' : 'done.compare.failed' });
  // Letters that stay are no good news either.
  const { kept, orders, discarded } = reply.body;
  if (kept) Object.assign(mine, { number: orders ?? discarded, text: Object.entries(kept).map(([code, letters]) => `${code}: ${letters}`).join(', '), tone: Object.keys(kept).length > 0 ? 'bad' : 'good' });
  state.notice = mine;
  document.getElementById('said').textContent = words.say(mine.key, mine);
  setTimeout(() => {
    if (state.notice === mine) state.notice = null;
    paint();
  }, NOTICE_MS);
}

function heard({ event, line, refused, sleptMs }) {
  if (sleptMs) heardAt -= sleptMs;
  if (refused) {
    session.leave();
    Object.assign(state, { locked: refused, line: 'lost', dialog: null });
  }
  if (line) state.line = line;
  if (event) {
    state.seen = [...turnsOf(state.board, event), ...state.seen].slice(0, SEEN_MAX);
    state.board = event;
    heardAt = performance.now();
    // Without Redis nothing is counted, which is no zero.
    if (event.stores.some(({ name, is_there: isThere }) => name === 'redis' && isThere)) state.points = [...state.points, event.point].slice(-POINTS_MAX);
    state.rates = new Map(event.sales.map((sale) => [sale.coupon_id, soldRate(sale)]));
    choose();
  }
  paint();
}

/** Units that a sale has sold a second, of late; null while that isn't known. A restock is no sale. */
function soldRate({ coupon_id: coupon, total, left }) {
  const { now } = state.board;
  const before = (sold.get(coupon) ?? []).filter((one) => one.total === total && one.now > now - SOLD_MS && one.now < now);
  sold.set(coupon, left === null ? [] : [...before, { now, total, left }]);
  return left === null || before.length === 0 ? null : Math.max(0, (1000 * (before[0].left - left)) / (now - before[0].now));
}

function watch() {
  new Stream({ path: '/v1/board/live', event: 'board', final: FINAL, ask: () => ask('/v1/board', FINAL), headers: () => session.headers() }, heard);
}

async function start() {
  useTheme();
  paint();
  [state.locked, state.served] = await Promise.all([session.enter(), servedPages()]);
  paint();
  if (state.locked === null) {
    watch();
    readLists();
  }
  // The age of the last event grows by itself.
  setInterval(() => {
    if (state.board !== null && performance.now() - heardAt > 2000) paint();
    if (state.locked !== null || performance.now() < readAt) return;
    read('regular');
    if (state.other && idOf(state.other) === state.coupon) openAny(state.coupon).then(paint);
    // The title of a tab tells the state, also of one that nobody looks at: it has no stream.
    if (document.hidden) ask('/v1/board', FINAL).then(heard);
  }, 1000);
  // A menu closes once something else is clicked on, or one of its actions.
  for (const name of ['click', 'keydown']) {
    document.addEventListener(name, ({ key = 'Escape', target }) => {
      if (key === 'Escape') document.querySelectorAll('.menu[open]').forEach((one) => target.closest('summary')?.parentElement !== one && (one.open = false));
    });
  }
}

start();
