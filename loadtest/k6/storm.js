// A storm: more users than units, each claims once, RATE of them a second.
//
// Exactly STOCK claims are accepted, all others are told "sold out", and no other answer is given. STOCK has to be
// the coupon's stock, and no user may have claimed it before. Further settings: see common.js.

import exec from 'k6/execution';
import { claim, constantRate, handleSummary, integer, startCounting, token } from './common.js';

export { handleSummary, startCounting as setup };

export const options = constantRate({
  accepted: [`count==${integer('STOCK')}`],
  already_claimed: ['count==0'],
});

export default function arrive() {
  claim(token(exec.scenario.iterationInTest));
}
