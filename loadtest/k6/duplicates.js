// Duplicates: every user claims four times at the same moment, and twice more after the answers.
//
// Exactly one claim of each user is accepted; each of the other five is told "already claimed", with the order id of the
// accepted one. The coupon needs a unit for each user. RATE counts users, so there are six times as many requests.
// Further settings: see common.js.

import exec from 'k6/execution';
import http from 'k6/http';
import { check } from 'k6';
import { claim, claimRequest, constantRate, handleSummary, outcome, startCounting, token } from './common.js';

const AT_ONCE = 4;
const LATER = 2;

export { handleSummary, startCounting as setup };

export const options = constantRate({
  checks: ['rate==1'],
  sold_out: ['count==0'],
});

export default function arrive() {
  const mine = token(exec.scenario.iterationInTest);
  const atOnce = http.batch(Array.from({ length: AT_ONCE }, () => claimRequest(mine))).map(outcome);
  const later = Array.from({ length: LATER }, () => claim(mine));
  const winners = atOnce.filter((found) => found.code === 'accepted');
  const others = [...atOnce.filter((found) => found.code !== 'accepted'), ...later];
  check(null, {
    'exactly one claim of a user is accepted': () => winners.length === 1,
    'every other one is told its order id': () => winners.length === 1
      && others.every((found) => found.code === 'already_claimed' && found.orderId === winners[0].orderId),
  });
}
