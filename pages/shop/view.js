// What the shopper's page says, and its templates. Nothing here keeps state or calls the API.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { AGAIN, OF_THE_SALE, OVER, UNWRITTEN } from './claim.js';
import { head } from '../js/head.js';

/** Colours and shapes of the picture, whose tiles are 40 wide; and the prime of its random numbers. */
const PALETTES = [['#0b3c5d', '#328cc1', '#d9b310', '#f3efe6'], ['#264653', '#2a9d8f', '#e9c46a', '#f4a261'], ['#3d2645', '#832161', '#da4167', '#f0c987']];
const SHAPES = ['M0 0h40a40 40 0 0 1-40 40z', 'M40 40H0A40 40 0 0 1 40 0z', 'M20 4a16 16 0 1 0 .01 0z', 'M0 0h40v20H0z'];
const PRIME = 2147483647;

const ICONS = {
  good: svg`<path d="m4.5 12.5 5 5 10-11"/>`,
  no: svg`<path d="m6 6 12 12M18 6 6 18"/>`,
  warn: svg`<path d="M12 3.5 22 20.5H2zM12 10v4.5M12 17.3v.4"/>`,
  busy: svg`<path d="M12 3a9 9 0 1 1-9 9"/>`,
  clock: svg`<path d="M12 3.5a8.5 8.5 0 1 0 .01 0M12 7.5V12l3 2.5"/>`,
  back: svg`<path d="M9 5 4 10l5 5M4.5 10H15a5 5 0 0 1 0 10h-3"/>`,
};

/** Icon of each face and status; the others have that of a warning. */
const ICON_OF = {
  loading: 'busy', claiming: 'busy', coming_back: 'busy', refunding: 'busy', no_sale: 'clock', coupon_not_found: 'no',
  accepted: 'good', created: 'good', already_claimed: 'good', pending: 'good', unpaid: 'good', paid: 'good', redeemed: 'good',
  cancelled: 'back', expired: 'back', refunded: 'back',
};

/** Letters of a title that is set large: a longer one would leave no room for the button. */
const TITLE_SHORT = 60;
/** Seconds for which a stream may be away before the page says so: a process that is replaced takes no longer. */
export const LOST_S = 3;

const HELD = ['accepted', 'created', 'already_claimed', 'pending', 'in_review', 'unpaid', 'paid', 'redeemed', 'refunding'];
/** Faces whose ticket or end stands where the button was. */
const SETTLED = ['paid', 'redeemed', 'refunding'];
/** Faces without a sale to show. */
const BARE = ['loading', 'unreachable', 'coupon_not_found', 'no_sale'];

// What the page says now: pure functions of the sale, this shopper's claim and the server's clock.

/** Key of an order that has ended, or null: one that the shop has cancelled says why. */
export function overOf({ phase, status, order }) {
  if (phase !== 'held' || !OVER.includes(status)) return null;
  return status === 'cancelled' && order?.cancel_reason ? 'withdrawn' : status;
}

/** Key of the face: words, icon and announcement hang on it. */
export function faceOf({ missing, sale, line, claim }, now) {
  if (missing) return missing;
  if (!sale) return line === 'lost' ? 'unreachable' : 'loading';
  if (claim.phase === 'claiming') return 'claiming';
  if (claim.phase === 'again') return claim.code;
  if (claim.phase === 'held' && !OVER.includes(claim.status)) {
    return claim.already && claim.status === 'pending' ? 'already_claimed' : claim.status;
  }
  if (claim.phase === 'refused') return claim.code;
  return ofSale(sale, now);
}

/** Key of the words of a face. A refusal without words of its own has those of all of them. */
export function wordOf(face, claim, words) {
  const found = claim.already && face === 'unpaid' ? 'already_claimed' : face;
  return `face.${words.has(`face.${found}`) ? found : 'refused'}`;
}

/** Key of what there is to say of a deed that was refused, or had no answer. */
export function deedWord(code, words) {
  return words.has(`deed.${code}`) ? `deed.${code}` : 'deed.refused';
}

export function ofSale(sale, now) {
  if (sale.state === 'ended' || now >= sale.closes_ms) return 'sale_ended';
  if (sale.state === 'paused') return 'sale_paused';
  if (now < sale.opens_ms) return 'sale_not_started';
  return sale.left === 0 ? 'sold_out' : 'open';
}

/** The end of an unpaid order, by the server's clock; null until the order has been read. */
export function payByMs({ order }) {
  return order === null ? null : Date.parse(order.pay_by) || null;
}

// The templates.

export function page(state, face, words, does) {
  const isBare = BARE.includes(face);
  return html`
    <a class="skip" href="#sale">${words.of('skip')}</a>
    ${top(state, words, does)}
    <main>
      <section id="sale" class="card" tabindex="-1" aria-labelledby="title" data-face=${face}>
        ${isBare ? bare(face, words) : sale(state, face, words, does)}
      </section>
      ${isBare && !state.orders ? nothing : orders(state, words, does)}
    </main>
    ${question(state, words, does)}`;
}

function top({ line, user }, words, does) {
  const name = user ? html`<span class="user"><span class="word">${words.of('shopper')}</span> <b>${user.slice(-4)}</b></span>` : nothing;
  return head({ home: '/', line, nav: nothing, user: name }, words, does);
}

/** Below the button, which stays where a finger aims. */
function lost({ line, heardAt }, words) {
  if (line !== 'lost') return nothing;
  const age = Math.round((performance.now() - heardAt) / 1000);
  return age < LOST_S ? nothing : html`<p class="lost">${words.of('lost')} ${words.of('lost.age')} <b>${age}</b></p>`;
}

function bare(face, words) {
  return html`
    <h1 id="title" class="face">${icon(face)}${words.of(`face.${face}`)}</h1>
    ${more(face, words)}
    ${face === 'coupon_not_found' ? html`<p><a class="go" href="/">${words.of('back')}</a></p>` : nothing}`;
}

function sale(state, face, words, does) {
  const { sale: it, claim } = state;
  // What an order costs is the price of its claim's moment.
  const due = (HELD.includes(face) && claim.order) || it;
  return html`
    ${SETTLED.includes(face) ? nothing : html`<svg class="picture" viewBox="0 0 480 160" preserveAspectRatio="xMidYMid slice" aria-hidden="true">${pattern(it.coupon_id)}</svg>`}
    <h1 id="title" class=${it.title.length > TITLE_SHORT ? 'long' : nothing}>${it.title}</h1>
    ${it.sub_title ? html`<p class="sub">${it.sub_title}</p>` : nothing}
    <p class="price"><b>${words.price(due.pay_cents, due.currency)}</b>
      ${it.value_cents > due.pay_cents ? html`<span><span class="unseen">${words.of('worth')} </span><s>${words.price(it.value_cents, it.currency)}</s></span>` : nothing}</p>
    ${SETTLED.includes(face) ? nothing : html`<p class="slot">${button(state, face, words, does)}</p>`}
    ${beside(state, face, words, does)}
    ${claim.deedCode ? html`<p class="deed">${words.of(deedWord(claim.deedCode, words))}</p>` : nothing}
    ${lost(state, words)}
    <div class="say">${says(state, face, words)}</div>
    ${face === 'paid' ? ticket(state, words, does) : nothing}
    ${claim.orderId && claim.phase === 'held' ? html`
      <p class="number"><span>${words.of('order')}</span> <b>${words.id(claim.orderId)}</b>${claim.traced ? html` <a href="/claim/${claim.orderId}">${words.of('follow')}</a>` : nothing}</p>` : nothing}
    ${SETTLED.includes(face) || face === 'sale_ended' ? nothing : stock(state, words)}
    ${it.rules ? html`<p class="rules">${it.rules}</p>` : nothing}
    ${SETTLED.includes(face) ? nothing : html`<p class="foot"><span>${words.of('one')}</span> <span>${dates(state, words)}</span></p>`}`;
}

function dates({ sale: it, clock }, words) {
  const now = clock.now();
  const key = ofSale(it, now) === 'sale_ended' ? 'ended' : now < it.opens_ms ? 'opens' : 'until';
  if (key === 'ended' && it.closes_ms > now) return nothing;
  const ms = key === 'opens' ? it.opens_ms : it.closes_ms;
  return html`${words.of(key)} ${words.date(ms, now)}`;
}

function stock({ sale: { left, total, opens_ms: opens, closes_ms: closes }, clock }, words) {
  const now = clock.now();
  const end = opens > now ? nothing : html`<span>${words.of('ends_in')} <span class="digits">${words.span(closes - now)}</span></span>`;
  if (left === null || left === undefined) return html`<p class="stock"><span>${words.of('left.unknown')}</span> ${end}</p>`;
  const [some, all] = [html`<b>${words.number.format(left)}</b>`, html`${words.of('of')} ${words.number.format(total)}`];
  return html`
    <p class="stock"><span id="stock">${words.language === 'zh' ? html`${words.of('left')} ${some} ${all}` : html`${some} ${all} ${words.of('left')}`}</span> ${end}</p>
    <progress max=${total} .value=${left} aria-labelledby="stock"></progress>`;
}

/** What the page says: after an order that is over, both that and the state of the sale. */
function says({ claim }, face, words) {
  const over = overOf(claim);
  const word = wordOf(face, claim, words);
  const known = word === 'face.refused' ? 'refused' : face;
  // The button says the state of a sale, and its sentence stands here.
  const isSaid = known === 'open' || known === 'claiming' || OF_THE_SALE.includes(known);
  return html`
    ${over ? html`<h2 class="face" tabindex="-1" data-icon=${iconOf(over)}>${icon(over)}${words.of(`face.${over}`)}</h2>${more(over, words)}` : nothing}
    ${over === 'withdrawn' ? html`<p class="reason">${claim.order.cancel_reason}</p>` : nothing}
    ${isSaid ? nothing : html`<h2 class="face" tabindex="-1" data-icon=${iconOf(known)}>${icon(known)}${words.of(word)}</h2>`}
    ${known === 'open' || known === 'claiming' ? nothing : more(known, words)}
    ${known === 'refused' ? html`<p><code>${face}</code></p>` : nothing}`;
}

/** The button, which keeps its place: what it says is the state. Only the one that pays is another one, so no second click pays. */
function button(state, face, words, does) {
  const { sale: it, claim, clock } = state;
  if (face === 'unpaid') {
    const isReady = claim.deed === null && claim.order !== null && performance.now() >= claim.payableAt;
    const due = claim.order ?? it;
    return html`<button id="pay" class="go" type="button" @click=${does.pay} aria-disabled=${!isReady}>
      ${claim.deed === 'pay' ? html`${icon('claiming')}${words.of('paying')}` : html`${words.of('pay')} ${words.price(due.pay_cents, due.currency)}`}</button>`;
  }
  const works = face === 'open' || (claim.phase === 'refused' && !OF_THE_SALE.includes(face));
  return html`<button id="claim" class="go" type="button" @click=${works ? does.claim : nothing} aria-disabled=${!works}>${label()}</button>`;

  function label() {
    if (face === 'sale_not_started') return html`${words.of('face.sale_not_started')} <span class="digits">${words.span(it.opens_ms - clock.now())}</span>`;
    if (OF_THE_SALE.includes(face)) return words.of(`face.${face}`);
    if (HELD.includes(face)) return html`${icon('claiming')}${words.of(face === 'in_review' ? 'face.in_review' : 'placing')}`;
    if (face === 'claiming') return html`${icon(face)}${words.of('face.claiming')}`;
    if (AGAIN.includes(face)) return html`${icon('claiming')}${words.of('asking_in')} <span class="digits">${Math.max(0, Math.ceil((claim.againAt - performance.now()) / 1000))}</span> ${words.of('seconds')}`;
    if (it.pay_cents === 0) return words.of('claim.free');
    return html`${words.of(claim.phase === 'held' ? 'claim.again' : 'claim')} ${words.price(it.pay_cents, it.currency)}`;
  }
}

/** One line below the button: what else may be done now. */
function beside(state, face, words, does) {
  const { claim, clock, isWanted } = state;
  if (face === 'unpaid') {
    const until = payByMs(claim);
    return html`<p class="beside">
      ${until === null ? nothing : html`<span>${picture('clock')}${words.of('face.unpaid.left')} <b class="digits" role="timer" aria-live="off">${words.span(until - clock.now())}</b></span>`}
      <button id="give-up" class="quiet" type="button" @click=${() => does.ask('cancel')} aria-disabled=${claim.deed !== null}>${words.of('give_up')}</button></p>`;
  }
  if (face === 'sale_not_started') return html`<p class="beside"><button id="remind" class="quiet" type="button" @click=${does.remind}>${words.of('remind')}</button></p>`;
  if (face !== 'sold_out') return nothing;
  return html`<p class="beside">${isWanted ? html`<span>${picture('good')}${words.of('wanted')}</span>` : html`<button id="want" class="quiet" type="button" @click=${does.want}>${words.of('want')}</button>`}</p>`;
}

/** A paid order: what a clerk scans, or types. */
function ticket({ claim }, words, does) {
  const { order, qr } = claim;
  return html`
    <div class="ticket">
      ${qr ? html`<img class="qr" src=${qr} width="200" height="200" alt=${words.of('qr')}>` : html`<div class="qr"></div>`}
      <p class="code">${order?.redemption_code ?? '…'}</p>
    </div>
    <p class="beside">
      <button id="refund" class="quiet" type="button" @click=${() => does.ask('refund')} aria-disabled=${claim.deed !== null}>${words.of('refund')}</button></p>`;
}

/** Nothing is given up or returned by one click. */
function question({ asked }, words, does) {
  const key = asked ?? 'cancel';
  return html`
    <dialog aria-labelledby="asked" aria-describedby="asked-more" @close=${does.closed}>
      <h2 id="asked">${words.of(`ask.${key}`)}</h2>
      <p id="asked-more" class="more">${words.of(`ask.${key}.more`)}</p>
      <p class="buttons"><button class="other" type="button" autofocus @click=${does.no}>${words.of('ask.no')}</button>
        <button id="yes" class="other warn" type="button" @click=${does.yes}>${words.of(key === 'cancel' ? 'give_up' : 'refund')}</button></p>
    </dialog>`;
}

function orders({ orders: mine, ordersFailed, titles, clock, claim, isDemo }, words, does) {
  const isWaiting = claim.phase === 'held' && UNWRITTEN.includes(claim.status);
  return html`
    <section class="orders" aria-labelledby="orders">
      <h2 id="orders">${words.of('orders')}</h2>
      ${ordersFailed ? html`<p class="none">${words.of('orders.failed')}</p>`
    : !mine || mine.length === 0 ? html`<p class="none">${words.of(isWaiting ? 'placing' : 'orders.none')}</p>`
    : html`<ul>${mine.map((order) => html`
        <li><span class="what"><a href="/sale/${order.coupon_id}">${titles[order.coupon_id] ?? order.coupon_id}</a>
            <span class="aside">${words.date(Date.parse(order.claimed_at), clock.now())}</span></span>
          ${status(order.status, words)}
          <span class="id">${words.id(order.order_id)}</span></li>`)}</ul>`}
      ${isDemo ? html`<p><button id="another" class="quiet" type="button" @click=${does.another}>${words.of('demo.another')}</button></p>` : nothing}
    </section>`;
}

function status(status, words) {
  if (status === 'unpaid') return html`<span class="status">${picture('clock')}${words.of('unpaid')}</span>`;
  return html`<span class="status" data-icon=${iconOf(status)}>${icon(status)}${words.of(words.has(status) ? status : `face.${status}`)}</span>`;
}

function more(face, words) {
  return words.has(`face.${face}.more`) ? html`<p class="more">${words.of(`face.${face}.more`)}</p>` : nothing;
}

function iconOf(face) {
  return ICON_OF[face] ?? 'warn';
}

function icon(face) {
  return picture(iconOf(face));
}

function picture(name) {
  return html`<svg class="icon ${name}" viewBox="0 0 24 24" aria-hidden="true">${ICONS[name]}</svg>`;
}

/** A picture for a sale: a pattern of its own, made from the coupon's id, so it is the same on each device. */
function pattern(id) {
  let seed = Number(id) % PRIME;
  const pick = (list) => {
    seed = (48271 * seed) % PRIME;
    return list[seed % list.length];
  };
  const colours = pick(PALETTES);
  const tile = (at) => svg`<path fill=${pick(colours)} d=${pick(SHAPES)} transform="translate(${40 * (at % 12)} ${40 * Math.floor(at / 12)})"/>`;
  return svg`<path fill=${colours[0]} d="M0 0h480v160H0z"/>${Array.from({ length: 48 }, (_, at) => tile(at))}`;
}
