// The words that judge: pure functions of the last event and its age. No good word without its evidence: each needs a
// fact that is there, that is fresh, and that nothing else on the board speaks against.

/** Age from which on an event says nothing about now. */
const FRESH_MS = 5000;
/** The same of an event that was asked for: the next one comes within 20 s. */
const ASKED_MS = 30_000;
/** Age from which on a comparison says nothing about now. */
const COMPARED_MS = 30 * 60_000;
/** Age of a claim in the log that is worth a word. */
const OLD_ENTRY_MS = 10_000;
/** Age of a refund that its gateway has not confirmed that is worth a word. */
const OLD_REFUND_S = 600;

/** Facts of an event that the words below need. */
function facts(board) {
  const store = (name) => board.stores.find((it) => it.name === name);
  const heard = board.processes.filter((it) => it.is_heard);
  const compared = board.runs.find((run) => run.disagreements !== null);
  const broken = board.runs.find((run) => run.finished_at !== null);
  return {
    redis: store('redis'),
    postgres: store('postgres'),
    silent: board.processes.filter((it) => !it.is_heard),
    hasWorker: heard.some((it) => it.roles.includes('worker')),
    hasApi: heard.some((it) => it.roles.includes('api')),
    compared,
    comparedAgo: compared ? board.now - Date.parse(compared.finished_at) : null,
    brokeOff: broken && broken.failure !== null ? broken : null,
    closed: board.lanes.filter((lane) => !lane.is_open),
    unreadable: board.lanes.filter((lane) => lane.pending === null),
    unconserved: board.sales.filter((sale) => sale.units?.conserved === false),
    waits: (kind) => board.waits?.find((it) => it.kind === kind) ?? { items: 0, oldest_s: 0 },
  };
}

/** Whether the event is about now. */
export function isFresh({ board, line, ageMs }) {
  return board !== null && line === 'live' && ageMs < FRESH_MS;
}

/** Whether the figures of an event may be shown, beside its age: it is about now, or the next one is not due yet. */
export function isShown(state) {
  return isFresh(state) || (state.board !== null && state.line === 'asked' && state.ageMs < ASKED_MS);
}

/**
 * The sentences at the top, worst first: `{tone: 'bad' | 'warn' | 'quiet' | 'good', key, number, ms}`. There is a good one
 * only alone.
 */
export function sentences({ board, line, ageMs }) {
  if (board === null) return [{ tone: 'quiet', key: line === 'lost' ? 'lost' : 'loading' }];
  if (line === 'connecting') return [{ tone: 'quiet', key: 'loading' }];
  if (!isShown({ board, line, ageMs })) return [{ tone: 'bad', key: 'stale', ms: ageMs }];
  const found = [...troubles(board), ...worries(board)];
  if (line === 'asked') return [...found, { tone: 'quiet', key: 'asked', ms: ageMs }];
  if (found.length > 0) return found;
  const { compared, comparedAgo } = facts(board);
  if (!compared) return [{ tone: 'quiet', key: 'never_compared' }];
  if (comparedAgo > COMPARED_MS) return [{ tone: 'quiet', key: 'compared_long_ago', ms: comparedAgo }];
  return [{ tone: 'good', key: 'well' }];
}

function troubles(board) {
  const found = [];
  const say = (key, more) => found.push({ tone: 'bad', key, ...more });
  const { redis, postgres, ...its } = facts(board);
  // Other processes may be answered: a store is away for the one that has looked.
  const text = board.process;
  if (!redis?.is_there) say('redis_away', { text });
  if (!postgres?.is_there) {
    if (redis?.is_there && board.backlog !== null) say('postgres_away_waiting', { number: board.backlog, text });
    else say('postgres_away', { text });
  }
  if (its.compared?.disagreements > 0) say('disagree', { number: its.compared.disagreements, text: list(board.findings.map((finding) => finding.code)) });
  for (const [kind, key] of [['recovery', 'not_kept'], ['dead_letter', 'letters']]) {
    if (its.waits(kind).items > 0) say(key, { number: its.waits(kind).items });
  }
  if (its.unconserved.length > 0) say('not_conserved', { number: its.unconserved.length, text: list(its.unconserved.map((sale) => sale.coupon_id)) });
  if (its.closed.length > 0) say('lanes_closed', { number: its.closed.length, text: list(its.closed.map((lane) => lane.lane)) });
  if (redis?.is_there) {
    if (its.unreadable.length > 0) say('log_unreadable', { number: its.unreadable.length, text: list(its.unreadable.map((lane) => lane.lane)) });
    if (redis.is_fault) say('not_durable', { detail: redis.detail });
    if (!its.hasWorker) say('no_worker');
    if (!its.hasApi) say('no_api');
  }
  return found;
}

function worries(board) {
  const found = [];
  const say = (key, more) => found.push({ tone: 'warn', key, ...more });
  const its = facts(board);
  if (its.redis?.is_there && its.silent.length > 0) say('silent', { number: its.silent.length, text: list(its.silent.map((one) => one.name)) });
  if (its.brokeOff) say('broke_off', { detail: its.brokeOff.failure });
  if (board.oldest_ms > OLD_ENTRY_MS) say('old_entry', { number: board.backlog, ms: board.oldest_ms });
  if (its.waits('held_payment').items > 0) say('held', { number: its.waits('held_payment').items });
  if (its.waits('refund').oldest_s > OLD_REFUND_S) say('refunds');
  if (its.waits('postponed').items > 0) say('postponed', { number: its.waits('postponed').items });
  return found;
}

/** Names in a sentence, each once. */
function list(names) {
  return [...new Set(names)].join(', ');
}

/** The worst that is known of a sale, for its row; null if nothing is. */
export function problemOf(state, sale) {
  const bad = sale.units ? equations(state, sale).find((one) => one.tone === 'bad' && one.key !== 'not_kept') : undefined;
  if (bad) return bad;
  if (sale.units?.in_review > 0) return { tone: 'bad', key: 'in_review', number: sale.units.in_review };
  return sale.is_pending ? { tone: 'warn', key: 'pending' } : null;
}

/** Accepted claims of a sale that are no orders yet; null while they aren't known. */
export function onTheWay({ units }) {
  if (!units || units.buyers === null || units.sold === null) return null;
  return Math.max(0, units.buyers - units.sold - units.in_review);
}

/** The verdict on the last comparison. */
export function comparison(state) {
  const { board } = state;
  const { compared, brokeOff, postgres } = facts(board);
  if (!isFresh(state) || !postgres?.is_there) return { tone: 'quiet', key: 'not_now' };
  if (compared?.disagreements > 0) return { tone: 'bad', key: 'findings', number: compared.disagreements };
  if (brokeOff) return { tone: 'warn', key: 'broke_off' };
  if (!compared) return { tone: 'quiet', key: 'none' };
  const isOld = board.now - Date.parse(compared.finished_at) > COMPARED_MS;
  return isOld ? { tone: 'quiet', key: 'old' } : { tone: 'good', key: 'agree' };
}

/** The verdicts on the equations of a sale: units, buyers, orders. */
export function equations(state, sale) {
  const { board } = state;
  const { redis, postgres, compared, waits } = facts(board);
  const units = sale.units;
  const quiet = (key) => ({ tone: 'quiet', key });
  if (!isFresh(state) || !redis?.is_there || !units || board.now - units.at > ASKED_MS) return [quiet('not_now'), quiet('not_now'), quiet('not_now')];
  const isCompared = comparison(state).key === 'agree';
  const isFound = board.findings.some((finding) => finding.coupon_id === sale.coupon_id || finding.coupon_id === null);
  const ofUnits =
    units.conserved === null ? quiet('not_counted')
    : units.conserved ? { tone: 'good', key: 'holds' } : { tone: 'bad', key: 'broken' };
  const ofBuyers =
    !postgres?.is_there ? quiet('not_now')
    : isFound ? { tone: 'bad', key: 'lost' }
    : waits('recovery').items > 0 ? { tone: 'bad', key: 'not_kept' }
    : isCompared ? { tone: 'good', key: 'none_lost', ms: board.now - Date.parse(compared.finished_at) } : quiet('not_compared');
  const ofOrders =
    !postgres?.is_there || units.sold === null ? quiet('not_now')
    : units.sold > sale.total ? { tone: 'bad', key: 'oversold' } : { tone: 'good', key: 'not_oversold' };
  const all = [ofUnits, ofBuyers, ofOrders];
  // The three speak of the same units: beside one that is wrong, none is praised.
  const isWrong = all.some((one) => one.tone === 'bad');
  return all.map((one) => (isWrong && one.tone === 'good' ? quiet('beside') : one));
}

/** The verdict on a store. */
export function store(state, it) {
  if (!isFresh(state)) return { tone: 'quiet', key: 'not_now' };
  if (!it.is_there) return { tone: 'bad', key: 'away' };
  if (it.is_fault) return { tone: 'bad', key: 'fault' };
  return { tone: 'good', key: 'answers' };
}

/** The verdict on a lane. */
export function lane(state, it) {
  if (!it.is_open) return { tone: 'bad', key: 'closed' };
  const { redis } = facts(state.board);
  if (!isFresh(state) || !redis?.is_there) return { tone: 'quiet', key: 'not_now' };
  if (it.pending === null) return { tone: 'bad', key: 'unreadable' };
  if (it.oldest_ms > OLD_ENTRY_MS) return { tone: 'warn', key: 'late' };
  return it.pending + it.unread > 0 ? { tone: 'quiet', key: 'busy' } : { tone: 'good', key: 'empty' };
}
