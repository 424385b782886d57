// The clerk's page as templates. Nothing here keeps state or calls the API.

import { html, nothing } from '../vendor/lit-html.js';
import { bar, locked } from '../js/bar.js';

/** Tone of each outcome: hand it out, hand nothing out, or try again. */
const TONE = { valid: 'good', redeemed: 'good', already_redeemed: 'bad', invalid_transition: 'bad', redemption_code_unknown: 'bad' };

export function page(state, words, does) {
  return html`
    <a class="skip" href="#redeem">${words.of('skip')}</a>
    ${bar('/redeem', state.served, 'live', words, does)}
    <main class="desk" id="redeem" tabindex="-1">
      ${state.locked ? locked(state.locked, words, does, 'staff') : html`${form(state, words, does)}${outcome(state, words, does)}`}
    </main>`;
}

function form({ busy, camera, hasCamera }, words, does) {
  return html`
    <form class="panel" @submit=${does.check}>
      <h1>${words.of('title')}</h1>
      <div class="fields">
        <label class="wide">${words.of('code')}<input class="code" name="code" maxlength="64" autocomplete="off" autocapitalize="characters" spellcheck="false" required></label>
        <div class="deeds"><button class="go" aria-disabled=${busy}>${words.of('check')}</button>
          ${hasCamera ? html`<button class="other" type="button" @click=${does.scan}>${words.of(camera ? 'scan.stop' : 'scan')}</button>` : nothing}</div>
      </div>
      ${camera ? html`<video class="camera" muted playsinline aria-label=${words.of('camera')}></video>` : nothing}
    </form>`;
}

function outcome({ outcome: it, found, before, busy }, words, does) {
  if (it === null) return nothing;
  const key = words.has(`outcome.${it}`) ? it : 'unavailable';
  const canRedeem = found && !['redeemed', 'already_redeemed', 'invalid_transition'].includes(it);
  return html`
    <section class="panel verdict" id="outcome" aria-labelledby="outcome-title" data-tone=${TONE[key] ?? 'warn'} data-outcome=${key}>
      <h2 id="outcome-title">${words.of(`outcome.${key}`)}</h2>
      <p class="more">${words.of(`outcome.${key}.more`)}</p>
      ${before?.redeemed_at ? html`<p class="more">${words.date(Date.parse(before.redeemed_at), Date.now())}${before.redeemed_by ? html` · ${words.of('clerk')} <b>${before.redeemed_by}</b>` : nothing}</p>` : nothing}
      ${found ? facts(found, words) : nothing}
      <p class="buttons">
        ${canRedeem ? html`<button id="do-redeem" class="go" type="button" @click=${does.redeem} aria-disabled=${busy}>${words.of('redeem')}</button>` : nothing}
        <button id="do-next" class="other" type="button" @click=${does.next}>${words.of('next')}</button></p>
    </section>`;
}

function facts(found, words) {
  const fact = (key, value) => html`<div><dt>${words.of(key)}</dt><dd>${value}</dd></div>`;
  return html`
    <dl class="facts">
      ${fact('coupon', found.title)}
      ${fact('price', words.price(found.pay_cents, found.currency))}
      ${fact('status', words.of(`status.${found.status}`))}
      ${found.paid_at ? fact('paid', words.date(Date.parse(found.paid_at), Date.now())) : nothing}
      ${fact('order', words.id(found.order_id))}
    </dl>`;
}
