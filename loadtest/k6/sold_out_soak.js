// A soak on a sold-out coupon: the first STOCK users of the token file buy it up, then new users come at a constant
// rate, and every fiftieth claim is a repeat by one of the buyers.
//
// Every new user is told "sold out", every buyer "already claimed" with the order id of the first claim, and 99 of 100
// replies come within P99_MS (500 if not set). STOCK has to be the coupon's stock. Further settings: see common.js.

import exec from 'k6/execution';
import { check } from 'k6';
import { claim, constantRate, handleSummary, integer, startCounting, token } from './common.js';

const EVERY = 50;
const stock = integer('STOCK');

export { handleSummary };

export const options = constantRate({
  accepted: [`count==${stock}`],
  checks: ['rate==1'],
  claim_ms: [`p(99)<${integer('P99_MS', 500)}`],
});

// The order id of each buyer.
export function setup() {
  startCounting();
  return Array.from({ length: stock }, (_, buyer) => {
    const bought = claim(token(buyer));
    if (bought.code !== 'accepted') {
      throw new Error(`buyer ${buyer + 1} of ${stock} got no unit: use a fresh coupon with a stock of ${stock}`);
    }
    return bought.orderId;
  });
}

export default function arrive(orders) {
  const number = exec.scenario.iterationInTest;
  if (number % EVERY === 0) {
    const buyer = (number / EVERY) % stock;
    const found = claim(token(buyer));
    check(found, {
      'a buyer is told the first order id': () => found.code === 'already_claimed' && found.orderId === orders[buyer],
    });
  } else {
    const found = claim(token(stock + number));
    check(found, { 'a new user is told sold out': () => found.code === 'sold_out' });
  }
}
