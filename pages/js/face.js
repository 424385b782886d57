// The one thing that the page says now: a pure function of the sale, this tab's claim and the server's clock.

import { OVER } from './claim.js';

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

export function ofSale(sale, now) {
  if (sale.state === 'ended' || now >= sale.closes_ms) return 'sale_ended';
  if (sale.state === 'paused') return 'sale_paused';
  if (now < sale.opens_ms) return 'sale_not_started';
  return sale.left === 0 ? 'sold_out' : 'open';
}

/**
 * The end of an unpaid order, by the server's clock. An order that doesn't say so was written after its claim, so it has
 * at least the time of an order from the claim on.
 */
export function payByMs({ sale, claim }) {
  if (claim.payByMs) return claim.payByMs;
  return claim.claimedMs === null || !sale.pay_within_s ? null : claim.claimedMs + 1000 * sale.pay_within_s;
}
