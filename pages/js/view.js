// The shopper's page as templates. Nothing here keeps state or calls the API.

import { html, nothing, svg } from '../vendor/lit-html.js';
import { AGAIN, OF_THE_SALE, OVER } from './claim.js';
import { ofSale, payByMs, wordOf } from './face.js';
import { head } from './head.js';

const ICONS = {
  good: svg`<path d="m4.5 12.5 5 5 10-11"/>`,
  no: svg`<path d="m6 6 12 12M18 6 6 18"/>`,
  warn: svg`<path d="M12 3.5 22 20.5H2zM12 10v4.5M12 17.3v.4"/>`,
  pause: svg`<path d="M8.5 5.5v13M15.5 5.5v13"/>`,
  busy: svg`<path d="M12 3a9 9 0 1 1-9 9"/>`,
  clock: svg`<path d="M12 3.5a8.5 8.5 0 1 0 .01 0M12 7.5V12l3 2.5"/>`,
  back: svg`<path d="M9 5 4 10l5 5M4.5 10H15a5 5 0 0 1 0 10h-3"/>`,
};

/** Icon of each face and status; the others have none. */
const ICON_OF = {
  loading: 'busy', unreachable: 'warn', coupon_not_found: 'no',
  sold_out: 'no', sale_paused: 'pause', sale_ended: 'no', claiming: 'busy', too_many_unpaid_orders: 'warn',
  too_many_closed_orders: 'warn',
  overloaded: 'warn', rate_limited: 'warn', unavailable: 'warn', recovering: 'warn', coming_back: 'busy', invalid_token: 'warn',
  refused: 'warn', not_claimed: 'warn', accepted: 'good', created: 'good', already_claimed: 'good', pending: 'good', in_review: 'warn', unpaid: 'good',
  paid: 'good', redeemed: 'good', cancelled: 'back', expired: 'back', refunding: 'busy', refunded: 'back',
};

/** Letters of a title that is set large: a longer one would leave no room for the button. */
const TITLE_SHORT = 60;
/** Seconds for which a stream may be away before the page says so: a process that is replaced takes no longer. */
const LOST_S = 3;

const HELD = ['accepted', 'created', 'already_claimed', 'pending', 'in_review', 'unpaid', 'paid', 'redeemed', 'refunding'];
/** Statuses of a claim that is no order yet, so it stands in no list. */
const UNWRITTEN = ['pending', 'in_review'];
/** Faces without a sale to show. */
const BARE = ['loading', 'unreachable', 'coupon_not_found', 'no_sale'];

export function page(state, face, words, does) {
  return html`
    <a class="skip" href="#sale">${words.of('skip')}</a>
    ${top(state, words, does)}
    <main>
      <section id="sale" class="card" tabindex="-1" aria-labelledby="title" data-face=${face}>
        ${BARE.includes(face) ? bare(face, words) : sale(state, face, words, does)}
      </section>
      ${BARE.includes(face) && face !== 'loading' && !state.orders ? nothing : orders(state, words)}
    </main>`;
}

function top({ line, user }, words, does) {
  const name = user ? html`<span class="user"><span class="word">${words.of('shopper')}</span> <b>${user.slice(-4)}</b></span>` : nothing;
  return head({ home: '/', line, nav: nothing, user: name }, words, does);
}

/** Below the button, which stays where a finger aims. */
function lost({ line, heardAt }, words) {
  if (line !== 'lost') return nothing;
  const age = Math.round((performance.now() - heardAt) / 1000);
  return age < LOST_S ? nothing : html`<p class="lost">${words.of('lost')} <span class="aside">${words.of('lost.age')} <b>${age}</b> s</span></p>`;
}

function bare(face, words) {
  return html`
    <h1 id="title" class="face">${icon(face)}${words.of(`face.${face}`)}</h1>
    ${more(face, words)}
    ${face === 'coupon_not_found' ? html`<p><a class="go" href="/">${words.of('back')}</a></p>` : nothing}`;
}

function sale(state, face, words, does) {
  const { sale: it, claim } = state;
  return html`
    <h1 id="title" class=${it.title.length > TITLE_SHORT ? 'long' : nothing}>${it.title}</h1>
    ${it.sub_title ? html`<p class="sub">${it.sub_title}</p>` : nothing}
    <p class="price"><b>${words.price(it.pay_cents, it.currency)}</b>
      ${it.value_cents > it.pay_cents ? html`<span><span class="unseen">${words.of('worth')} </span><s>${words.price(it.value_cents, it.currency)}</s></span>` : nothing}</p>
    <div class="tear" aria-hidden="true"></div>
    ${stock(it, words)}
    <div class="say">${says(state, face, words)}</div>
    ${claim.deedCode ? html`<p class="deed">${words.of(words.has(`deed.${claim.deedCode}`) ? `deed.${claim.deedCode}` : 'deed.refused')}</p>` : nothing}
    ${buttons(state, face, words, does)}
    ${lost(state, words)}
    ${claim.orderId && claim.phase === 'held' ? html`
      <p class="number"><span>${words.of('order')}</span> <b>${words.id(claim.orderId)}</b>${claim.traced ? html` <a href="/claim/${claim.orderId}">${words.of('follow')}</a>` : nothing}</p>` : nothing}
    ${it.rules ? html`<p class="rules">${it.rules}</p>` : nothing}
    <p class="foot"><span>${words.of('one')}</span> <span>${dates(state, words)}</span></p>`;
}

function dates({ sale: it, clock }, words) {
  const now = clock.now();
  const key = ofSale(it, now) === 'sale_ended' ? 'ended' : now < it.opens_ms ? 'opens' : 'until';
  const ms = key === 'opens' ? it.opens_ms : key === 'ended' ? Math.min(it.closes_ms, now) : it.closes_ms;
  return key === 'ended' && it.closes_ms > now ? words.of('face.sale_ended') : html`${words.of(key)} ${words.date(ms, now)}`;
}

function stock({ left, total }, words) {
  if (left === null || left === undefined) return html`<p class="stock">${words.of('left.unknown')}</p>`;
  return html`
    <p class="stock" id="stock"><span><b>${words.number.format(left)}</b> ${words.of('left')}</span>
      <span>${words.of('of')} ${words.number.format(total)}</span></p>
    <progress max=${total} .value=${left} aria-labelledby="stock"></progress>`;
}

/** What the page says: after an order that is over, both that and the state of the sale. */
function says(state, face, words) {
  const { sale: it, claim, clock } = state;
  const over = claim.phase === 'held' && OVER.includes(claim.status);
  const word = wordOf(face, claim, words);
  const known = word === 'face.refused' ? 'refused' : face;
  return html`
    ${over ? html`<p class="face" tabindex="-1" data-icon="back">${icon(claim.status)}${words.of(`face.${claim.status}`)}</p>${more(claim.status, words)}` : nothing}
    ${known === 'open' ? nothing
    : known === 'sale_not_started' ? counter(words.of('face.sale_not_started'), it.opens_ms - clock.now(), words.of('clock'), words)
    : html`
      <h2 class="face" tabindex="-1" data-icon=${ICON_OF[known]}>${icon(known)}${words.of(word)}</h2>
      ${HELD.includes(known) ? steps(known, words) : nothing}
      ${known === 'unpaid' ? payBy(state, words) : more(known, words)}
      ${known === 'refused' ? html`<p><code>${face}</code></p>` : nothing}
      ${AGAIN.includes(known) ? html`<p class="aside">${words.of('asking_in')} <b>${Math.max(0, Math.ceil((claim.againAt - performance.now()) / 1000))}</b> ${words.of('seconds')}</p>` : nothing}`}`;
}

function steps(face, words) {
  const done = { accepted: 1, pending: 1, in_review: 1, already_claimed: 1, created: 2, unpaid: 2 }[face] ?? 3;
  const step = (number, key) => html`<li class=${number <= done ? 'done' : number === done + 1 ? 'now' : ''} aria-current=${number === done + 1 ? 'step' : nothing}>${words.of(key)}</li>`;
  return html`<ol class="steps">${step(1, 'step.claimed')}${step(2, 'step.written')}${step(3, done === 3 ? 'step.paid' : 'step.pay')}</ol>`;
}

function payBy(state, words) {
  const until = payByMs(state);
  if (until === null) return more('unpaid', words);
  return counter(words.of('face.unpaid.left'), until - state.clock.now(), words.of('face.unpaid.more'), words);
}

function counter(above, ms, below, words) {
  return html`<div class="counter"><p>${above}</p><p class="digits" role="timer" aria-live="off">${words.span(ms)}</p><p>${below}</p></div>`;
}

/** One button for the claim, which keeps its place and its focus; in its stead those of an unpaid or paid order. */
function buttons({ sale: it, claim }, face, words, does) {
  const busy = claim.deed !== null;
  if (face === 'unpaid') {
    const due = claim.price ?? it;
    return html`<p class="buttons">
      <button class="go" type="button" @click=${does.pay} aria-disabled=${busy}>${claim.deed === 'pay' ? words.of('paying') : html`${words.of('pay')} ${words.price(due.pay_cents, due.currency)}`}</button>
      <button class="other" type="button" @click=${does.cancel} aria-disabled=${busy}>${words.of('give_up')}</button></p>`;
  }
  if (face === 'paid') {
    return html`<p class="buttons end"><button class="other" type="button" @click=${does.refund} aria-disabled=${busy}>${words.of('refund')}</button></p>`;
  }
  if (HELD.includes(face) || face === 'sale_ended') return nothing;
  const again = claim.phase === 'held';
  const price = it.pay_cents === 0 ? words.of('claim.free') : html`${words.of(again ? 'claim.again' : 'claim')} ${words.price(it.pay_cents, it.currency)}`;
  const label = { sale_not_started: words.of('wait'), sold_out: words.of('face.sold_out'), sale_paused: words.of('face.sale_paused'), claiming: words.of('face.claiming') }[face] ?? price;
  const works = face === 'open' || (claim.phase === 'refused' && !OF_THE_SALE.includes(face));
  return html`<p class="buttons"><button id="claim" class="go" type="button" @click=${works ? does.claim : nothing} aria-disabled=${!works}>${label}</button></p>`;
}

function orders({ orders: mine, ordersFailed, titles, clock, claim }, words) {
  const isWaiting = claim.phase === 'held' && UNWRITTEN.includes(claim.status);
  return html`
    <section class="orders" aria-labelledby="orders">
      <h2 id="orders">${words.of('orders')}</h2>
      ${ordersFailed ? html`<p class="none">${words.of('orders.failed')}</p>`
    : !mine || mine.length === 0 ? html`<p class="none">${words.of(isWaiting ? 'orders.waiting' : 'orders.none')}</p>`
    : html`<ul>${mine.map((order) => html`
        <li><span class="what"><a href="/sale/${order.coupon_id}">${titles[order.coupon_id] ?? order.coupon_id}</a>
            <span class="aside">${words.date(Date.parse(order.claimed_at), clock.now())}</span></span>
          ${status(order.status, words)}
          <span class="id">${words.id(order.order_id)}</span></li>`)}</ul>`}
    </section>`;
}

function status(status, words) {
  if (status === 'unpaid') return html`<span class="status">${picture('clock')}${words.of('unpaid')}</span>`;
  return html`<span class="status" data-icon=${ICON_OF[status]}>${icon(status)}${words.of(`face.${status}`)}</span>`;
}

function more(face, words) {
  return words.has(`face.${face}.more`) ? html`<p class="more">${words.of(`face.${face}.more`)}</p>` : nothing;
}

function icon(face) {
  return face in ICON_OF ? picture(ICON_OF[face]) : nothing;
}

function picture(name) {
  return html`<svg class="icon ${name}" viewBox="0 0 24 24" aria-hidden="true">${ICONS[name]}</svg>`;
}
