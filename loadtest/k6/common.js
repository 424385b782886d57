// Parts that the k6 scenarios share: tokens, one claim and the count of its outcome, thresholds, and the summary.
//
// Set in the environment (loadtest/README.md says more):
//   URL              address of the API, http://127.0.0.1:8080 if not set
//   COUPON           id of a flash coupon that is on sale
//   TOKENS           file with one access token a line, each for another user
//   RATE             iterations begun in a second, 500 if not set
//   DURATION_S       seconds in which they are begun, 10 if not set
//   DROPPED_PERCENT  iterations that k6 may fail to begin in time, 5 if not set
//   SUMMARY          file that gets the figures as one line of JSON; none if not set

import exec from 'k6/execution';
import http from 'k6/http';
import { SharedArray } from 'k6/data';
import { Counter, Trend } from 'k6/metrics';

export function integer(name, preset) {
  const text = __ENV[name] || (preset === undefined ? '' : String(preset));
  if (!/^[1-9][0-9]*$/.test(text)) {
    throw new Error(`set ${name} to a whole number above 0 (loadtest/README.md says what it means)`);
  }
  // A coupon's id may be longer than a JavaScript number is exact.
  return name === 'COUPON' ? text : Number(text);
}

const url = (__ENV.URL || 'http://127.0.0.1:8080').replace(/\/+$/, '');
const coupon = integer('COUPON');
const rate = integer('RATE', 500);
const durationS = integer('DURATION_S', 10);
const droppedPercent = integer('DROPPED_PERCENT', 5);

// k6 would look for a relative path beside this script.
function fromWhereItWasCalled(path) {
  return path.startsWith('/') ? path : `${__ENV.PWD}/${path}`;
}

const tokens = new SharedArray('tokens', () => {
  if (!__ENV.TOKENS) {
    throw new Error('set TOKENS to a file with one access token a line (loadtest/README.md says how to make it)');
  }
  return open(fromWhereItWasCalled(__ENV.TOKENS)).split('\n').filter((line) => line !== '');
});

// No token serves twice: one that is missing ends the run.
export function token(index) {
  if (index >= tokens.length) {
    exec.test.abort(`the tokens ran out after ${tokens.length}, so this run is void: make more of them`);
  }
  return tokens[index];
}

const counters = {
  accepted: new Counter('accepted'),
  sold_out: new Counter('sold_out'),
  already_claimed: new Counter('already_claimed'),
  other: new Counter('other'),
};
const claimMs = new Trend('claim_ms', true);

// Statuses and codes that these scenarios may meet; everything else is `other`, and crosses a threshold.
const CODES = { 409: 'already_claimed', 410: 'sold_out' };

http.setResponseCallback(http.expectedStatuses(202, 409, 410));

// A threshold on a counter that was never moved would not be looked at.
export function startCounting() {
  Object.values(counters).forEach((counter) => counter.add(0));
}

export function claimRequest(userToken) {
  return {
    method: 'POST',
    url: `${url}/v1/coupons/${coupon}/claims`,
    params: { headers: { Authorization: `Bearer ${userToken}` }, timeout: '15s' },
  };
}

export function claim(userToken) {
  const { method, url: to, params } = claimRequest(userToken);
  return outcome(http.request(method, to, null, params));
}

// Decodes the reply to a claim: { code, orderId }. Counts it.
export function outcome(reply) {
  const times = reply.timings;
  claimMs.add(times.blocked + times.connecting + times.tls_handshaking + times.duration);
  const found = read(reply);
  counters[found.code].add(1);
  if (found.code === 'other') {
    console.error(`unexpected reply: ${reply.status} ${reply.error} ${reply.body}`);
  }
  return found;
}

function read(reply) {
  let body;
  try {
    body = reply.json();
  } catch (_) {
    return { code: 'other' };
  }
  const orderId = body.order_id;
  const hasOrder = typeof orderId === 'string' && /^[1-9][0-9]*$/.test(orderId);
  if (reply.status === 202) {
    const complete = hasOrder && body.coupon_id === coupon && body.status === 'pending';
    return complete ? { code: 'accepted', orderId } : { code: 'other' };
  }
  const code = CODES[reply.status];
  if (!code || body.code !== code || (code === 'already_claimed') !== hasOrder) {
    return { code: 'other' };
  }
  return { code, orderId };
}

// Options of a run that begins RATE iterations a second for DURATION_S, however slow the earlier ones are.
export function constantRate(thresholds) {
  return {
    scenarios: {
      claims: {
        executor: 'constant-arrival-rate',
        rate,
        duration: `${durationS}s`,
        preAllocatedVUs: 200,
        maxVUs: 400,
        gracefulStop: '20s',
      },
    },
    thresholds: {
      other: ['count==0'],
      // Iterations that k6 could not begin in time are missing from the crowd; with many of them the rate was another
      // one.
      dropped_iterations: [`count<=${Math.ceil((rate * durationS * droppedPercent) / 100)}`],
      ...thresholds,
    },
    summaryTrendStats: ['med', 'p(95)', 'p(99)', 'max'],
    // Each further tag would cost the client CPU time with every request.
    systemTags: ['status', 'error_code', 'scenario'],
    setupTimeout: '60s',
  };
}

// k6 calls this at the end of a run.
export function handleSummary(data) {
  const value = (metric, key) => (data.metrics[metric] ? data.metrics[metric].values[key] : 0);
  const counts = {};
  Object.keys(counters).forEach((name) => { counts[name] = value(name, 'count'); });
  const seconds = data.state.testRunDurationMs / 1000;
  const figures = {
    requests: value('http_reqs', 'count'),
    ...counts,
    iterations: value('iterations', 'count'),
    dropped: value('dropped_iterations', 'count'),
    duration_ms: Math.round(seconds * 1000),
    p50_ms: round(value('claim_ms', 'med')),
    p95_ms: round(value('claim_ms', 'p(95)')),
    p99_ms: round(value('claim_ms', 'p(99)')),
    max_ms: round(value('claim_ms', 'max')),
  };
  const crossed = crossedThresholds(data.metrics);
  const lines = [
    `${figures.requests} requests in ${seconds.toFixed(1)} s; ${figures.dropped} iterations could not be begun in time`,
    Object.entries(counts).map(([name, count]) => `${name} ${count}`).join(', '),
    `ms from request to reply: p50 ${figures.p50_ms}, p95 ${figures.p95_ms}, p99 ${figures.p99_ms}, max ${figures.max_ms}`,
    ...crossed.map((threshold) => `CROSSED: ${threshold}`),
  ];
  const files = { stdout: `${lines.join('\n')}\n` };
  if (__ENV.SUMMARY) {
    files[fromWhereItWasCalled(__ENV.SUMMARY)] = `${JSON.stringify(figures)}\n`;
  }
  return files;
}

function crossedThresholds(metrics) {
  return Object.entries(metrics).flatMap(([name, metric]) => Object.entries(metric.thresholds || {})
    .filter(([, threshold]) => !threshold.ok)
    .map(([threshold]) => `${name} ${threshold}`));
}

function round(ms) {
  return Math.round(ms * 100) / 100;
}
