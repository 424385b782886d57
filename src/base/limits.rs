//! A limit on everything, and how the limits hang together.
//!
//! Units stand last in the names. The assertions are part of the correctness argument: who changes a
//! number here learns at compile time what it would break. Limits that an operator may move are
//! settings (`base/config.rs`), and their relations are checked by `Config::validate`.

use std::time::Duration;

/// Bits of a coupon id that name its lane, hence at most 1,024 lanes.
pub const LANE_BITS: u32 = 10;
/// The largest number of lanes.
pub const LANES_MAX: i32 = 1 << LANE_BITS;

/// The largest request body.
pub const BODY_BYTES_MAX: usize = 16 * 1024;
/// The largest head of a request: request line and headers together.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take to send the head of a request, a connection's idle time included.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that may wait in the kernel's queue to be accepted.
pub const LISTEN_BACKLOG: u32 = 4_096;
/// Pause after a connection could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a request may take as a whole, its body and `Prefer: wait` included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);
/// The longest `Prefer: wait=N` that is honoured.
pub const PREFER_WAIT_MAX: Duration = Duration::from_secs(10);
/// How many requests may wait for their order at one time; the others get their 202 at once.
pub const PREFER_WAITERS_MAX: usize = 256;
/// How often the orders that requests wait for are looked for, all of them together.
pub const PREFER_LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Pause after such a look, in lengths of the look; it matters when Postgres is busy.
pub const PREFER_LOOK_PAUSES: u32 = 9;
/// How long such a look may take, the wait for its connection included.
pub const PREFER_LOOK_MAX: Duration = Duration::from_secs(3);

/// Default of `--redis-timeout-ms`: the time in which Redis has to answer, and a connection to be established.
pub const REDIS_TIMEOUT: Duration = Duration::from_millis(500);
/// Silence on a connection to Redis after which its peer is probed.
pub const REDIS_KEEPALIVE: Duration = Duration::from_secs(5);
/// Time between two probes.
pub const REDIS_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Probes without an answer after which the connection counts as broken.
pub const REDIS_KEEPALIVE_PROBES: u32 = 3;
/// Pause between two attempts to connect; requests in between fail at once instead of queueing.
pub const REDIS_RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Commands that may queue for the one multiplexed connection (the default of 50 would throttle).
pub const REDIS_PIPELINE_BUFFER: usize = 4_096;
/// The oldest Redis that has what the scripts need: Debian 12's.
pub const REDIS_VERSION_MIN: (u32, u32) = (7, 0);

/// The oldest major version of Postgres that the tests have run on: Debian 12's. The schema needs
/// [`POSTGRES_VERSION_MIN`], for its identity column.
pub const POSTGRES_VERSION_TESTED: i32 = 15;
/// The oldest major version of Postgres that has what the schema needs.
pub const POSTGRES_VERSION_MIN: i32 = 10;
/// Default of `--database-timeout-ms`: the time that Postgres may work on one statement, and that a transaction may wait
/// for its next one. A transaction whose process is paused or cut off holds rows that every other worker needs, and
/// [`RECOVERY_MAX`] counts from then on.
pub const POSTGRES_TIMEOUT: Duration = Duration::from_secs(1);
/// Waiting time for a free Postgres connection, in time-outs of a statement.
pub const POSTGRES_ACQUIRE_TIMEOUTS: u32 = 2;
/// Pings of Postgres that fit into the waiting time for a connection.
pub const POSTGRES_PINGS: u32 = 4;

/// Default of `--batch-timeout-ms`: the time after which a batch is broken off, the wait for its connection included.
pub const BATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// How long closing the connections to Postgres may take.
pub const POSTGRES_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Longest time that one look for news in the logs of lanes at rest blocks in Redis. A lane that comes to rest meanwhile
/// is in the next look.
pub const LOG_WATCH_BLOCK: Duration = Duration::from_millis(200);
/// Period in which the logs of lanes at rest are looked at for what is no news: a group that has vanished.
pub const LOG_WATCH_PERIOD: Duration = Duration::from_secs(2);
/// Connections over which the workers of all lanes read entries.
pub const LOG_READERS: usize = 8;
/// Time without an entry after which a lane comes to rest; before, more of a burst may be on its way.
pub const LANE_LINGER: Duration = Duration::from_millis(50);
/// Within this time of a worker's death its entries are in Postgres.
pub const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// First pause after a failed pass; it doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause after a failed pass.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Pause before entries whose lock was held elsewhere are tried again.
pub const CONTENTION_PAUSE: Duration = Duration::from_millis(50);
/// At most one line about the same trouble in this time.
pub const LOG_LINE_PAUSE: Duration = Duration::from_secs(1);
/// How often the log is trimmed.
pub const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// Tasks of a process that write the orders of one lane while their batches are full; otherwise only the first does.
pub const WRITERS_MAX: usize = 3;
/// Pause of a writer after a batch that was not full. The batches in which orders are written grow with the rate by it,
/// and so do the claims for each of the disk's syncs.
pub const WRITE_PAUSE: Duration = Duration::from_millis(10);

/// Entries of the order log that one statement puts aside.
pub const DEAD_LETTERS_AT_A_TIME: usize = 1_000;

/// How often the number of lanes is read again.
pub const LANES_PERIOD: Duration = Duration::from_secs(1);
/// A consumer that holds nothing and hasn't moved for this long belonged to a process that died.
pub const CONSUMER_KEPT: Duration = Duration::from_secs(3600);
/// A change of a coupon that has reached Postgres is in Redis within this time, or somebody has to look.
pub const CHANGE_APPLIED_MAX: Duration = Duration::from_secs(10);
/// How long Postgres may count the live orders of one sale while `sold` is locked; the worker's batches for
/// that sale wait and come again.
pub const RECOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a process asks whether a comparison is due, and what the last one found.
pub const RECONCILE_POLL: Duration = Duration::from_secs(5);
/// How often the workers look the operator's numbers up.
pub const NUMBERS_PERIOD: Duration = Duration::from_secs(5);
/// Coupons that the metrics tell of, each by its id: the newest of those that Redis holds.
pub const METRIC_COUPONS_MAX: u32 = 100;
/// Shards of a sale that are counted for them; Redis needs less than a millisecond for so many.
pub const METRIC_SHARDS_MAX: u32 = 1_024;
/// What a comparison that never ended is taken to have taken.
pub const RECONCILE_ASSUMED: Duration = Duration::from_secs(30);
/// How long the records of comparisons are kept.
pub const RECONCILE_RUNS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Findings, and repairs, that the record of one comparison spells out.
pub const RUN_FINDINGS_MAX: usize = 100;
/// How long who asks for a comparison over HTTP waits for it; after that, its record tells.
pub const RECONCILE_WAIT_MAX: Duration = Duration::from_secs(8);
/// Comparisons on one page of a list.
pub const PAGE_RUNS_MAX: u32 = 100;
/// Disagreements that one alarm spells out; `flash-sale reconcile` prints them all.
pub const LOGGED_DISAGREEMENTS_MAX: usize = 20;

/// A claim on a regular coupon waits this long for the buyer's lock.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
/// Pause between two tries at a busy lock, where nobody tells when it is free.
pub const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How often a lock is given back if no answer comes; the answer to the first try is kept for the others.
pub const LOCK_RELEASE_TRIES: u32 = 3;
/// For how long it is kept.
pub const LOCK_LATCH_KEPT: Duration = Duration::from_secs(5);
/// Longest lease that is asked for on a buyer's lock: twice that of Redisson's watchdog. What is held for longer than that
/// was locked before Redis's clock was set back.
pub const LOCK_LEASE_MAX: Duration = Duration::from_secs(60);
/// Time in which a renewal of leases has to be answered, whatever `--redis-timeout-ms` says: three fit into a lease.
pub const LOCK_RENEWAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Locks whose leases are renewed by one call. A batch that was taken by one call is renewed by one, too.
pub const LOCK_RENEWAL_BATCH_MAX: usize = 100;

/// What is known about a coupon that Redis doesn't hold is believed for this long.
pub const WARM_UP_MEMORY: Duration = Duration::from_secs(1);
/// And for at most this many coupons.
pub const WARM_UP_MEMORY_COUPONS_MAX: u64 = 100_000;

/// Coupons that a pass takes from Postgres at a time.
pub const PASS_COUPONS_MAX: i64 = 100;
/// How often sales that open soon are looked for.
pub const WARM_UP_PERIOD: Duration = Duration::from_secs(10);
/// How often sales that are over are looked for.
pub const ARCHIVE_PERIOD: Duration = Duration::from_secs(60);
/// How often what has been decided about coupons is looked through for what Redis hasn't heard of.
pub const CHANGES_PERIOD: Duration = Duration::from_secs(1);

/// Period in which the revisions of all sales in Redis are compared with those in Postgres.
pub const REVISIONS_PERIOD: Duration = Duration::from_secs(10);

/// Calls of the claim script that may be under way for one coupon; further claims share the next.
pub const CLAIM_CALLS_MAX: usize = 2;
/// Claims in one call of the claim script, unless thousands wait: it holds up everybody else's for as long as it runs.
pub const CLAIM_CALL_CLAIMS: usize = 128;
/// And when they do. Lua can hand on some 8,000 values at once, and a claim has two.
pub const CLAIM_CALL_CLAIMS_MAX: usize = 512;
/// Default of `--claim-wait-ms`: the waiting time after which a claim without a call is refused. Not sooner, and not
/// before the claim has waited: a refusal costs a third of what a win costs, and a client that is refused at once comes
/// back at once.
pub const CLAIM_WAIT: Duration = Duration::from_millis(400);
/// How often a call under way looks for claims that have waited too long; between two calls one looks in any case.
pub const CLAIM_LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Buyers of a sold-out sale in each of its shards, on average. By default Redis keeps hashes of up to 512 fields as
/// compact as can be; chance makes some shards twice as full, restocks more, and a short one is read faster.
pub const SHARD_BUYERS: i64 = 32;
/// Shards of one sale; a larger sale has more buyers in each. All are counted in one call of a script, which takes some
/// milliseconds for so many.
pub const SHARDS_MAX: i64 = 16_384;
/// Shards that one call makes or removes: it holds up all claims for as long as it runs.
pub const SHARDS_AT_A_TIME: usize = 1_000;
/// Sales whose number of shards a process remembers.
pub const SHARDS_MEMORY_COUPONS_MAX: u64 = 100_000;

/// How often the memory of a sold-out sale takes somebody for a buyer who isn't; each costs a question to
/// Redis. At 0.01 % a filter needs some 20 bits for each buyer.
pub const SOLD_OUT_FALSE_BUYERS: f64 = 0.000_1;
/// Buyers that such a memory may have (25 MB); a larger sale goes on asking Redis.
pub const SOLD_OUT_BUYERS_MAX: usize = 10_000_000;
/// Buyers that are read into such a memory for each question that Redis has been asked without it. Reading so many costs
/// the service and Redis half as much as a question by itself, and twice as much as one of many that share a call.
pub const SOLD_OUT_BUYERS_PER_QUESTION: usize = 32;
/// A sold-out sale that nobody has asked about for this long is forgotten.
pub const SOLD_OUT_KEPT: Duration = Duration::from_secs(60);

/// Batches that one run of a pass over a table works through, at most: it goes on in its next run.
pub const PASS_BATCHES_MAX: usize = 10;
/// Pause before an item that a pass could not deal with is tried again; it doubles up to [`POSTPONED_PAUSE_MAX`].
pub const POSTPONED_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause before such an item is tried again.
pub const POSTPONED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Such items that one run of a pass tries again, at most: thousands that fail must not hold up those that don't.
pub const POSTPONED_TRIES_MAX: i64 = 20;
/// Length of the error that is kept with such an item, in characters.
pub const POSTPONED_ERROR_CHARS_MAX: usize = 1_000;
/// How often a worker looks for units that have to come back.
pub const STOCK_RETURN_PERIOD: Duration = Duration::from_millis(500);
/// Stock returns that are read at a time.
pub const STOCK_RETURNS_BATCH: u32 = 1_000;
/// Units in one call of the script that gives them back: it holds up all claims for as long as it runs.
pub const GIVE_BACK_UNITS_MAX: usize = 128;

/// How often the connection that tells of units that come back is asked whether it still is one.
pub const RETURNS_PING_PERIOD: Duration = Duration::from_millis(250);
/// How long after its last answer that connection is taken to tell of every unit. A Redis that answers in time never
/// lets this run out.
pub const RETURNS_HEARD_MAX: Duration = Duration::from_secs(1);

/// How often a worker looks for orders that have not been paid in time.
pub const EXPIRY_PERIOD: Duration = Duration::from_secs(1);
/// Orders that expire in one transaction, at most: others wait for the same sales meanwhile.
pub const EXPIRY_BATCH: u32 = 500;
/// How often a worker looks for payments that have to go back.
pub const REFUND_PERIOD: Duration = Duration::from_secs(1);
/// Payments that one run of that pass asks gateways about.
pub const REFUNDS_BATCH: u32 = 100;
/// Pause before a gateway that hasn't confirmed a refund is asked again.
pub const REFUND_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// How often a process looks how many accepted claims wait to be written. What all processes together
/// accept in this time may come on top of `--backlog-orders-max`.
pub const BACKLOG_PERIOD: Duration = Duration::from_millis(250);
/// Period in which that look takes in all logs, also those of which everything was written and which have nothing newer.
pub const BACKLOG_FULL_LOOK_PERIOD: Duration = Duration::from_secs(10);
/// When who was told `overloaded` may come back.
pub const OVERLOADED_RETRY_AFTER: Duration = Duration::from_secs(2);

/// How often the service's own memory is tidied up.
pub const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(5);

/// How long a day's order sequence is kept in Redis. Longer than any clock is wrong: see `kit/id.rs`.
pub const ID_SEQUENCE_KEPT: Duration = Duration::from_secs(40 * 24 * 3600);

/// Blocks of order ids that are left out when a new life of Redis begins, because other processes may have had them.
pub const ID_BLOCKS_LEFT_OUT: i64 = 100;
/// Order ids that are left out then, at most: a day has 2^32, for thousands of lives.
pub const ID_NUMBERS_LEFT_OUT_MAX: i64 = 1_000_000;
/// Newest orders among which the highest number of a day is looked for.
pub const NEWEST_ORDERS: i64 = 10_000;
/// Newest entries of a log among which it is looked for.
pub const NEWEST_ENTRIES: usize = 1_000;

/// How long the service takes to finish what it has begun when it is told to stop.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// What the two doors may use of it, so that the rest of the way out still fits.
pub const DOOR_DRAIN_MAX: Duration = Duration::from_secs(4);
/// How long a stopping service waits for requests that are on their way on open connections.
pub const LATE_REQUEST_MAX: Duration = Duration::from_millis(200);

/// Orders on one page of a list.
pub const PAGE_ORDERS_MAX: u32 = 100;
/// Dead letters on one page of a list.
pub const PAGE_DEAD_LETTERS_MAX: u32 = 100;
/// Postponed items on one page of a list.
pub const PAGE_POSTPONED_MAX: u32 = 100;
/// Coupons on one page of a list.
pub const PAGE_COUPONS_MAX: u32 = 100;
/// Tokens that one `flash-sale token` makes.
pub const TOKENS_MAX: u32 = 1_000_000;
/// Clocks that are further apart than this are worth a warning: windows are judged by Redis's clock, tokens
/// and order ids by the service's.
pub const CLOCKS_APART_MAX: Duration = Duration::from_secs(2);
/// The shortest secret that HMAC-SHA256 may have, in tokens (RFC 7518, section 3.2: as long as the hash) and elsewhere.
pub const SECRET_BYTES_MIN: usize = 32;

/// Units that one sale can have.
pub const STOCK_MAX: i64 = 100_000_000;
/// Money, in minor units; far above any coupon and far below any overflow.
pub const CENTS_MAX: i64 = 1_000_000_000_000;

const _: () = {
    assert!(WRITE_PAUSE.as_millis() < LANE_LINGER.as_millis());
    assert!(PREFER_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    let look = (POSTGRES_ACQUIRE_TIMEOUTS as u128 + 1) * POSTGRES_TIMEOUT.as_millis();
    assert!(PREFER_LOOK_MAX.as_millis() >= look);
    assert!(LOCK_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    let release_try = 2 * REDIS_TIMEOUT.as_millis() + REDIS_RECONNECT_PAUSE.as_millis();
    assert!(LOCK_RELEASE_TRIES as u128 * release_try < LOCK_LATCH_KEPT.as_millis());
    assert!(LATE_REQUEST_MAX.as_millis() + DOOR_DRAIN_MAX.as_millis() < DRAIN_MAX.as_millis());
    assert!(CLAIM_LOOK_PERIOD.as_millis() * 10 <= CLAIM_WAIT.as_millis());
    assert!(RECONCILE_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());
    let ping = RETURNS_PING_PERIOD.as_millis() + REDIS_TIMEOUT.as_millis();
    assert!(ping < RETURNS_HEARD_MAX.as_millis());
    assert!(POSTPONED_PAUSE_MIN.as_millis() < POSTPONED_PAUSE_MAX.as_millis());
    // Stock is counted by Lua, whose numbers are exact up to 2^53.
    assert!(STOCK_MAX < 1 << 53);
};
