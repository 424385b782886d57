//! A limit on everything, and their relations.
//!
//! Units stand last in the names. The assertions are part of the correctness argument: a number that breaks
//! a relation does not compile. Limits that an operator may move are
//! settings (`base/config.rs`), and their relations are checked by `Config::validate`.

use std::time::Duration;

/// Bits of a coupon id that name its lane.
pub const LANE_BITS: u32 = 10;
/// Largest number of lanes: an order id has six bits for the lane, and 63 stands for regular coupons.
pub const LANES_MAX: i32 = 63;
/// Time by which an order id may be ahead of Postgres's clock. A claim whose id is further ahead becomes a dead letter:
/// one entry could move all later ids to 2090.
pub const ORDER_AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// Largest body of a request, in bytes: the longest coupon fits, with each character as two escapes of six bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Faults of a body that are told.
pub const FAULTS_TOLD_MAX: usize = 10;
/// Largest head of a request, in bytes: request line and headers together.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Time in which a client has to send the first head of a request on a connection.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a connection is kept on which nothing moves: longer than a balancer in front keeps it (nginx: 60 s).
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Time in which a client has to take a part of a reply, at least; at most twice as long.
pub const REPLY_TURN_MS: u64 = 30_000;
/// Part of a reply that is handed to a connection at a time, and room that HTTP/2 has for each of its replies, in bytes.
pub const REPLY_PART_BYTES: usize = 16 * 1024;
/// Requests under way on a connection of HTTP/2.
pub const HTTP2_STREAMS_MAX: u32 = 32;
/// Bytes of a body that a client of HTTP/2 may send before any of it is read.
pub const HTTP2_STREAM_WINDOW: u32 = 64 * 1024;
/// The same for all bodies of a connection.
pub const HTTP2_CONNECTION_WINDOW: u32 = 128 * 1024;
/// Room that the kernel has for what a client has not read, in bytes; it takes twice as much for its own notes. Without
/// a bound it would keep megabytes for each client that doesn't read, and hide for hours that the client doesn't.
pub const SEND_BUFFER: u32 = 32 * 1024;
/// Period in which connections are searched for those that are overdue.
pub const CONNECTION_LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Time in which a connection that is overdue has to have ended by itself.
pub const OVERDUE_CLOSE_MAX: Duration = Duration::from_secs(1);
/// Longest key of a request (`Idempotency-Key`).
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Idle time after which a connection may be closed to make room: a client between two requests comes back sooner.
pub const EVICTED_AFTER: Duration = Duration::from_secs(1);
/// Connections that may wait in the kernel's queue to be accepted.
pub const LISTEN_BACKLOG: u32 = 4_096;
/// Pause after a connection could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time in which the body of a request has to come.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a browser remembers that a page of another origin may ask.
pub const PREFLIGHT_KEPT: Duration = Duration::from_secs(600);
/// Time for a whole request, its body and `Prefer: wait` included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);
/// Longest `Prefer: wait=N` that is honoured.
pub const PREFER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause that a 202 advises before the status of the claim is asked for: most orders are written in less.
pub const CLAIM_POLL_PAUSE: Duration = Duration::from_millis(200);
/// Pause that the other 202s advise: a comparison, a change or a payment takes a second and more.
pub const WORK_POLL_PAUSE: Duration = Duration::from_secs(1);
/// Requests that may wait for their order at one time; further ones get their 202 at once.
pub const PREFER_WAITERS_MAX: usize = 256;
/// Period of the common look for the orders that requests wait for.
pub const PREFER_LOOK_PERIOD: Duration = Duration::from_millis(10);
/// Pause after such a look, in durations of the look, which counts when Postgres is busy.
pub const PREFER_LOOK_PAUSES: u32 = 9;
/// Time for such a look, the wait for its connection included.
pub const PREFER_LOOK_MAX: Duration = Duration::from_secs(3);

/// Period in which the state of a watched sale is read.
pub const LIVE_PERIOD: Duration = Duration::from_secs(1);
/// Time after which a state is sent to watchers although it hasn't changed: proxies cut streams that are quiet for 15 s.
pub const LIVE_HEARTBEAT: Duration = Duration::from_secs(5);
/// Period in which a process tells the board its counts, and in which the board is looked up and sent.
pub const BOARD_PERIOD: Duration = Duration::from_secs(1);
/// Period in which the board looks at Postgres.
pub const BOARD_POSTGRES_PERIOD: Duration = Duration::from_secs(2);
/// Looks at Redis from one count of the buyers of each sale to the next.
pub const BOARD_LOOKS_PER_CENSUS: u32 = 5;
/// Time for which the board is looked up after a client without a place has asked for it: it asks every 10 to 20 s.
pub const BOARD_ASKED_MAX: Duration = Duration::from_secs(25);
/// Time after its last word for which a process counts as heard, and a look at a store as fresh.
pub const BOARD_HEARD_MAX: Duration = Duration::from_secs(5);
/// Time after its last word for which the board lists a process that has not said that it ends.
pub const BOARD_SILENT_KEPT: Duration = Duration::from_secs(600);
/// Time that the board waits for the first looks before it is sent without them.
pub const BOARD_FIRST_LOOK_MAX: Duration = Duration::from_millis(500);
/// Seconds over which the board takes its quantiles.
pub const BOARD_QUANTILE_SECONDS: usize = 10;
/// Sales on the board: the newest that aren't over, then the newest others.
pub const BOARD_SALES_MAX: u32 = 20;
/// Dead letters, findings and items of other lists on the board: the newest.
pub const BOARD_ITEMS_MAX: u32 = 20;
/// Comparisons on the board: the newest.
pub const BOARD_RUNS_MAX: u32 = 30;
/// Recoveries on the board: the newest.
pub const BOARD_RECOVERIES_MAX: u32 = 5;
/// Retry-After of a watcher too many, who asks for the coupon meanwhile.
pub const WATCHERS_RETRY_AFTER: Duration = Duration::from_secs(15);
/// Time for which the token of a demo's shopper is valid.
pub const SHOPPER_TOKEN_TIME: Duration = Duration::from_secs(3_600);
/// Time for which the page of a sale waits for what it shows before its script runs: then it is sent without that.
pub const PAGE_WAIT_MAX: Duration = Duration::from_millis(300);
/// Shoppers of a storm, and its units.
pub const STORM_SHOPPERS_MAX: u32 = 100_000;
/// Seconds in which the shoppers of a storm arrive.
pub const STORM_SECONDS_MAX: u32 = 60;
/// Connections of a storm.
pub const STORM_CONNECTIONS_MAX: usize = 256;
/// Period in which the state of a storm is shown.
pub const STORM_PERIOD: Duration = Duration::from_millis(250);
/// Time for one look at the stores while a storm is shown.
pub const STORM_LOOK_MAX: Duration = Duration::from_secs(1);
/// Time for which a storm waits until the accepted claims are written.
pub const STORM_SETTLE_MAX: Duration = Duration::from_secs(60);
/// Time without an answer of Redis after which a storm has no verdict.
pub const STORM_AWAY_MAX: Duration = Duration::from_secs(10);
/// Time after the last arrival for which a shopper asks again.
pub const STORM_PATIENCE: Duration = Duration::from_secs(60);
/// Time for one request of a shopper: longer than the service takes for any.
pub const STORM_REQUEST_MAX: Duration = Duration::from_secs(15);
/// Longest pause of a shopper that was asked to come back.
pub const STORM_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time for which the worker stays away that was killed in a storm.
pub const STORM_WORKER_AWAY: Duration = Duration::from_secs(3);
/// Time for which Redis is frozen in a storm; in whole seconds.
pub const STORM_FROZEN: Duration = Duration::from_secs(4);
/// Pages that may watch storms at one time.
pub const STORM_WATCHERS_MAX: usize = 64;
/// Measured claims that a process remembers: the newest.
pub const TRACED_CLAIMS_MAX: usize = 256;
/// Rows, and acknowledged entries, whose times a process remembers: the newest.
pub const TRACED_ROWS_MAX: usize = 32_768;
/// Time for which an administrator of a demo is let in by a printed link.
pub const SESSION_TOKEN_TIME: Duration = Duration::from_secs(8 * 3_600);

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
/// Period in which the sentinels are asked for the master.
pub const SENTINEL_PERIOD: Duration = Duration::from_secs(1);
/// Time that each node of a cluster has to answer when all are asked what they know of each other.
pub const CLUSTER_ANSWER_MAX: Duration = Duration::from_millis(250);
/// Time for which that is taken for the newest.
pub const CLUSTER_MAP_MEMORY: Duration = Duration::from_millis(50);
/// Commands that may queue for the one multiplexed connection (the default of 50 would throttle).
pub const REDIS_PIPELINE_BUFFER: usize = 4_096;
/// Oldest Redis with the commands of the scripts: Debian 12's.
pub const REDIS_VERSION_MIN: (u32, u32) = (7, 0);

/// Oldest major version of Postgres on which the tests have run: Debian 12's.
pub const POSTGRES_VERSION_TESTED: i32 = 15;
/// Oldest major version of Postgres, because of `idle_session_timeout`.
pub const POSTGRES_VERSION_MIN: i32 = 14;
/// Default of `--database-timeout-ms`: the time that Postgres may work on one statement, and that a transaction may wait
/// for its next one. A transaction whose process is paused or cut off holds rows that every other worker needs, and
/// [`RECOVERY_MAX`] counts from then on.
pub const POSTGRES_TIMEOUT: Duration = Duration::from_secs(1);
/// Waits for a lock that fit into the time of a statement.
pub const POSTGRES_LOCK_TIMEOUTS: u32 = 2;
/// Waiting time for a free Postgres connection, in time-outs of a statement.
pub const POSTGRES_ACQUIRE_TIMEOUTS: u32 = 2;
/// Tries of a transaction that Postgres rolls back in favour of others.
pub const POSTGRES_CONFLICT_TRIES: u32 = 5;
/// Shortest pause between two looks at sessions of Postgres that have been in use: a pool of 16 is through after 4 s.
pub const SESSION_LOOK_PERIOD: Duration = Duration::from_millis(250);
/// Pings of Postgres that fit into the waiting time for a connection.
pub const POSTGRES_PINGS: u32 = 4;

/// Time for closing the connections to Postgres.
pub const POSTGRES_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which Redis holds back the answer about a log without a new entry.
pub const LOG_WAIT: Duration = Duration::from_millis(200);
/// Period in which a worker looks which lanes it may own.
pub const OWNER_PERIOD: Duration = Duration::from_millis(500);
/// Time without a query after which Postgres ends the session that owns lanes: its process is paused, or its machine gone.
pub const OWNER_SESSION_IDLE_MAX: Duration = Duration::from_secs(3);
/// Time without an answer of Redis after which a worker lets go of its lanes: another one may reach it.
pub const OWNER_REDIS_SILENCE_MAX: Duration = Duration::from_secs(3);
/// Longest time from a worker's death until its entries are in Postgres.
pub const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// First pause after a failed pass; it doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause after a failed pass.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Pause before entries whose lock was held elsewhere are tried again.
pub const CONTENTION_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two looks at sales whose rows another session keeps locked in Postgres.
pub const LOCKED_SALES_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two log lines about the same trouble.
pub const LOG_LINE_PAUSE: Duration = Duration::from_secs(1);
/// Period in which the log is trimmed.
pub const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// Batches of one lane that are under way at one time while batches are full; otherwise there is one.
pub const BATCHES_AT_A_TIME: usize = 3;
/// Pause of a writer after a batch that was not full. The batches in which orders are written grow with the rate by it,
/// and so do the claims for each of the disk's syncs.
pub const WRITE_PAUSE: Duration = Duration::from_millis(10);

/// Entries of the order log that one command reads. An entry has up to [`CLAIM_CALL_CLAIMS_MAX`] claims.
pub const ENTRIES_AT_A_TIME: usize = 256;
/// Entries of the order log that one call acknowledges. Lua can hand on some 8,000 values at once.
pub const ACKNOWLEDGED_AT_A_TIME: usize = 4_000;

/// Entries of the order log that one statement turns into dead letters.
pub const DEAD_LETTERS_AT_A_TIME: usize = 1_000;

/// Period in which the keeper of the lanes compares them with their approved states, and in which a process says that it
/// lives.
pub const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Difference between the clocks of Postgres and Redis that is reckoned with where claims of a time are counted.
pub const CLOCKS_MARGIN: Duration = Duration::from_secs(10);
/// Silence after which a process is no longer taken for one that lives, and looks after the lanes no more.
pub const PROCESS_SILENCE_MAX: Duration = Duration::from_secs(3);
/// Pause of a lane after a recovery that failed.
pub const RECOVERY_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time for which the states of the lanes are believed after they have been read.
pub const LANES_MEMORY: Duration = Duration::from_millis(100);
/// Time that the workers have to write the order log of a lane that is recovering.
pub const RECOVERY_LOG_MAX: Duration = Duration::from_secs(60);
/// Time after which a recovery no longer waits for such a log in which nothing moves.
pub const RECOVERY_LOG_STILL: Duration = Duration::from_secs(2);
/// Time between two looks at whether all processes have handed their receipts in.
pub const RECOVERY_RECEIPT_PERIOD: Duration = Duration::from_millis(10);
/// Retry-After of a claim in a lane that is recovering.
pub const RECOVERING_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Lanes that are recovered at the same time.
pub const RECOVERIES_AT_A_TIME: usize = 8;
/// Time between two looks at that log.
pub const RECOVERY_LOOK_PERIOD: Duration = Duration::from_millis(50);
/// Buyers that are written to Redis at a time, when a sale is built anew.
pub const BUYERS_AT_A_TIME: usize = 1_000;

/// Sales that may be suspected to be lost at a time; the look at them finds out about their lanes.
pub const SUSPECTED_SALES_MAX: usize = 1_000;

/// Period in which a process looks which of its promises are committed.
pub const RECEIPT_LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Age beyond which a state of a lane with all orders written says nothing of the promises since: orders may have been
/// deleted.
pub const SETTLED_AGE_MAX: Duration = Duration::from_hours(24);
/// Receipts that are handed in with one statement.
pub const RECEIPTS_AT_A_TIME: usize = 5_000;
/// Least number of receipts that a process keeps for a lane; at a larger bound on the backlog, as many as that.
pub const RECEIPTS_MIN: usize = 100_000;
/// Time that a recovery waits for the receipts of processes that live.
pub const RECEIPT_WAIT_MAX: Duration = Duration::from_secs(2);

/// Time in which a change of a coupon in Postgres reaches Redis; later, an operator has to look.
pub const CHANGE_APPLIED_MAX: Duration = Duration::from_secs(10);
/// Time in which Postgres counts the live orders of one sale while `sold` is locked; the worker's batches for
/// that sale wait and come again.
pub const RECOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Period in which a process asks whether a comparison is due, and for the result of the last one.
pub const RECONCILE_POLL: Duration = Duration::from_secs(5);
/// Period in which the workers look up the operator's gauges.
pub const NUMBERS_PERIOD: Duration = Duration::from_secs(5);
/// Coupons with metrics of their own: the newest of those in Redis.
pub const METRIC_COUPONS_MAX: u32 = 100;
/// Shards of a sale that are counted for these metrics; Redis needs less than a millisecond for so many.
pub const METRIC_SHARDS_MAX: u32 = 1_024;
/// Assumed duration of a comparison that never finished.
pub const RECONCILE_ASSUMED: Duration = Duration::from_secs(30);
/// Findings that the record of one comparison spells out.
pub const RUN_FINDINGS_MAX: usize = 100;
/// Time for which a request waits for its comparison; after that, the client reads the record.
pub const RECONCILE_WAIT_MAX: Duration = Duration::from_secs(8);
/// Time for which a request waits until another comparison has ended.
pub const TURN_WAIT_MAX: Duration = Duration::from_secs(2);
/// The same for the command line, and for a worker that has to know.
pub const TURN_WAIT_LONG: Duration = Duration::from_secs(60);
/// Pause between two tries at the turn to compare.
pub const TURN_PAUSE: Duration = Duration::from_millis(50);
/// Period in which a comparison tells Postgres that it goes on.
pub const TURN_BEAT: Duration = Duration::from_secs(2);
/// Silence after which Postgres gives the turn of a comparison to the next one.
pub const TURN_SILENCE_MAX: Duration = Duration::from_secs(20);
/// Disagreements that one alarm spells out; `flash-sale reconcile` prints them all.
pub const LOGGED_DISAGREEMENTS_MAX: usize = 20;

/// Longest wait of a claim on a regular coupon for the buyer's lock.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
/// Tries to release a lock if no answer comes; the latch keeps the answer to the first try for the others.
pub const LOCK_RELEASE_TRIES: u32 = 3;
/// Time for which the latch of a release stays in Redis.
pub const LOCK_LATCH_KEPT: Duration = Duration::from_secs(5);
/// Lease on a buyer's lock, renewed at a third of it.
pub const LOCK_LEASE: Duration = Duration::from_secs(2);
/// Longest lease on a buyer's lock: twice that of Redisson's watchdog. A lock with a longer one was taken before Redis's
/// clock was set back.
pub const LOCK_LEASE_MAX: Duration = Duration::from_secs(60);
/// Time in which a renewal of leases has to be answered, whatever `--redis-timeout-ms` says: three fit into a lease.
pub const LOCK_RENEWAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Locks whose leases are renewed by one call. A batch that was taken by one call is renewed by one, too.
pub const LOCK_RENEWAL_BATCH_MAX: usize = 100;

/// Time for which the answer about a coupon outside Redis is believed.
pub const LOADER_MEMORY: Duration = Duration::from_secs(1);
/// Coupons outside Redis whose answers are remembered.
pub const LOADER_MEMORY_COUPONS_MAX: u64 = 100_000;

/// Longest time for which a process shows a coupon, and the units left of its sale.
pub const LEFT_SHOWN_MAX: Duration = Duration::from_millis(200);
/// Ids that a process remembers, with a coupon or without. The longest coupon takes some 50 KB, a usual one 2 KB.
pub const COUPONS_SHOWN_MAX: u64 = 4_000;

/// Coupons that the pass over stock returns takes from Postgres at a time.
pub const PASS_COUPONS_MAX: i64 = 100;
/// Period in which sales that open soon are looked for.
pub const LOAD_PERIOD: Duration = Duration::from_secs(10);
/// Time before its opening at which a sale is loaded that isn't in Redis yet; usually it is there since its creation.
pub const WARM_UP_AHEAD: Duration = Duration::from_secs(3_600);
/// Period in which sales that are over are looked for.
pub const ARCHIVE_PERIOD: Duration = Duration::from_secs(60);
/// Period in which coupons are searched for changes that Redis does not have.
pub const CHANGES_PERIOD: Duration = Duration::from_secs(1);

/// Calls of the claim script that may be under way for one coupon; further claims share the next.
pub const CLAIM_CALLS_MAX: usize = 2;
/// Claims in one call of the claim script, unless thousands wait: a running call holds up all other commands.
pub const CLAIM_CALL_CLAIMS: usize = 128;
/// Claims in one call while thousands wait. Lua can hand on some 8,000 values at once, and a claim has two.
pub const CLAIM_CALL_CLAIMS_MAX: usize = 512;
/// Default of `--claim-wait-ms`: the waiting time after which a claim without a call is refused. Not sooner, and not
/// before the claim has waited: a refusal costs a third of what a win costs, and a client that is refused at once comes
/// back at once.
pub const CLAIM_WAIT: Duration = Duration::from_millis(400);
/// Period in which a call under way looks for claims that have waited too long; the end of each call looks, too.
pub const CLAIM_LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Buyers of a sold-out sale in each of its shards, on average. By default Redis keeps hashes of up to 512 fields as
/// compact as can be; chance makes some shards twice as full, restocks more, and a short one is read faster.
pub const SHARD_BUYERS: i64 = 32;
/// Shards of one sale; a larger sale has more buyers in each. All are counted in one call of a script, which takes some
/// milliseconds for so many.
pub const SHARDS_MAX: i64 = 16_384;
/// Shards that one call makes or removes; the call holds up all claims meanwhile.
pub const SHARDS_AT_A_TIME: usize = 1_000;
/// Sales whose number of shards a process remembers.
pub const SHARDS_MEMORY_COUPONS_MAX: usize = 100_000;

/// Time for which "sold out" and a buyer's order are believed before Redis is asked again.
pub const SOLD_OUT_MEMORY: Duration = Duration::from_secs(1);
/// Share of users whom the memory of a sold-out sale takes for buyers by mistake; each costs a question to
/// Redis. At 0.01 % a filter needs some 20 bits for each buyer.
pub const SOLD_OUT_FALSE_BUYERS: f64 = 0.000_1;
/// Buyers that such a memory may have (25 MB); a larger sale goes on asking Redis.
pub const SOLD_OUT_BUYERS_MAX: usize = 10_000_000;
/// Buyers that are read into such a memory for each question that Redis has been asked without it. Reading so many costs
/// the service and Redis half as much as a question by itself, and twice as much as one of many that share a call.
pub const SOLD_OUT_BUYERS_PER_QUESTION: usize = 32;
/// Orders of one sale that a process remembers for repeats; some 50 bytes each.
pub const PROMISED_ORDERS_MAX: usize = 100_000;
/// Time without a claim after which a sold-out sale is forgotten, and the orders that its buyers were told.
pub const SOLD_OUT_KEPT: Duration = Duration::from_secs(60);

/// Batches in one run of a pass over a table; the next run goes on from there, without a pause where orders and units wait.
pub const PASS_BATCHES_MAX: usize = 10;
/// Pause before an item that a pass could not deal with is tried again; it doubles up to [`POSTPONED_PAUSE_MAX`].
pub const POSTPONED_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause before such an item is tried again.
pub const POSTPONED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Such items that one run of a pass tries again: thousands that fail must not hold up the others.
pub const POSTPONED_TRIES_MAX: i64 = 20;
/// Characters of the error that are kept with such an item.
pub const POSTPONED_ERROR_CHARS_MAX: usize = 1_000;
/// Period in which a worker looks for units that have to come back.
pub const STOCK_RETURN_PERIOD: Duration = Duration::from_millis(500);
/// Stock returns that are read at a time.
pub const STOCK_RETURNS_BATCH: u32 = 1_000;
/// Units in one call of the script that gives them back; the call holds up all claims meanwhile.
pub const GIVE_BACK_UNITS_MAX: usize = 128;

/// Period in which the connection for news of returned units is pinged.
pub const RETURNS_PING_PERIOD: Duration = Duration::from_millis(250);
/// Time after its last answer for which that connection is trusted to tell of each unit. A Redis that answers in time
/// never lets this run out.
pub const RETURNS_HEARD_MAX: Duration = Duration::from_secs(1);

/// Period in which a worker looks for orders that have not been paid in time.
pub const EXPIRY_PERIOD: Duration = Duration::from_secs(1);
/// Period in which a worker looks for orders and records that are too old.
pub const RETENTION_PERIOD: Duration = Duration::from_secs(60);
/// Orders that are looked at, and rows that are deleted, in one transaction.
pub const RETENTION_BATCH: u32 = 1_000;
/// Least time for which an order is kept: an unknown one from longer ago may have been deleted. The least `--orders-days`.
pub const ORDER_KEPT_MIN: Duration = Duration::from_hours(24);
/// Time in which the closed orders of one user and one coupon are counted for `--closed-orders-max`.
pub const CLOSED_ORDERS_TIME: Duration = Duration::from_secs(3_600);
/// Unpaid orders of a sale that are counted to tell what keeps it from being archived.
pub const UNPAID_COUNTED_MAX: i64 = 10_000;
/// Orders that expire in one transaction; other transactions wait for the same sales meanwhile.
pub const EXPIRY_BATCH: u32 = 500;
/// Unpaid orders whose time one transaction ends.
pub const CANCELLATIONS_BATCH: i64 = 1_000;
/// Period in which a worker looks for payments that have to go back.
pub const REFUND_PERIOD: Duration = Duration::from_secs(1);
/// Payments that one run of that pass asks gateways about.
pub const REFUNDS_BATCH: u32 = 100;
/// Pause before a gateway that hasn't confirmed a refund is asked again.
pub const REFUND_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Time that an order may stay unpaid after it was written, if that ends later than the time from its claim, and if
/// `--payment-window-s` isn't shorter.
pub const PAY_TIME_MIN: Duration = Duration::from_secs(300);
/// Prices that a process remembers: by coupon and revision.
pub const PRICES_REMEMBERED_MAX: u64 = 10_000;
/// Age of a stamped signature, and the difference of two clocks, at most.
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(300);
/// Bytes of a gateway's reply, at most.
pub const GATEWAY_REPLY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a set of public keys that an issuer serves, at most; one of a hundred keys has 50 KB.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;
/// Time for fetching such a set.
pub const KEY_SET_TIMEOUT: Duration = Duration::from_secs(5);
/// Period in which it is fetched.
pub const KEY_SET_PERIOD: Duration = Duration::from_secs(300);
/// Pause between two looks at it, at least, after a failure or for a token that names an unknown key.
pub const KEY_SET_PAUSE: Duration = Duration::from_secs(60);
/// The same while there are no keys at all.
pub const KEY_SET_PAUSE_WITHOUT_KEYS: Duration = Duration::from_secs(1);
/// Pause before an opened payment is first asked about; the next ones are twice as long each, up to an hour. The
/// gateway confirms by itself long before, unless its callback got lost.
pub const OPENED_LOOK_PAUSE: Duration = Duration::from_secs(60);
/// Number of looks at an opened payment after which it is asked about no more: with these pauses they take three days
/// from the payer's last visit on.
pub const OPENED_LOOKS_MAX: i32 = 77;
/// Time after which an opened payment that has no answer waits for an operator.
pub const OPENED_UNHEARD_LONG: Duration = Duration::from_secs(3_600);
/// Time after which an opened payment that never has an answer is given up.
pub const OPENED_UNHEARD_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Bytes of a gateway's id of a payment, at most.
pub const PAYMENT_ID_BYTES_MAX: usize = 200;
/// Bytes of the address of a payer's page, at most.
pub const PAY_URL_BYTES_MAX: usize = 2_048;
/// Requests in a row without an answer after which one run of the pass takes the gateway for away.
pub const GATEWAY_UNANSWERED_MAX: u32 = 3;
/// Opened payments that one run of the pass asks about.
pub const OPENED_BATCH: u32 = 20;
/// Pause before a held payment is looked at again: its order may be written meanwhile.
pub const HELD_PAYMENT_PAUSE: Duration = Duration::from_secs(5);
/// Time after which a payment for an order that stays unknown goes back. Entries wait in the order log for less, unless
/// no worker runs.
pub const HELD_PAYMENT_PATIENCE: Duration = Duration::from_secs(3_600);

/// Period in which a process looks up the number of accepted claims that wait to be written. The claims that all
/// processes accept in this time may come on top of `--backlog-orders-max`.
pub const BACKLOG_PERIOD: Duration = Duration::from_millis(250);
/// Retry-After of the refusal `overloaded`.
pub const OVERLOADED_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Period in which the files of secrets are read again.
pub const SECRETS_PERIOD: Duration = Duration::from_secs(1);

/// Period in which the service tidies up its own memory.
pub const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(5);

/// Time in which a stopping service finishes work that has begun.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Share of the two doors in that time, so that the rest of the way out still fits.
pub const DOOR_DRAIN_MAX: Duration = Duration::from_secs(4);
/// Period in which Redis is looked at for what keeps claims.
pub const DURABILITY_LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Time for which a claim waits for its row before its outcome is unknown.
pub const ROW_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time in which a process that ends hands in its receipts and tells the others.
pub const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Time for which a stopping service waits for requests that are on their way on open connections.
pub const LATE_REQUEST_MAX: Duration = Duration::from_millis(200);

/// Largest `--batch-orders-max`.
pub const BATCH_ORDERS_LIMIT: u16 = 10_000;
/// Period in which a waiting reader of events looks for new ones.
pub const EVENTS_LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Orders that an export looks at in one page.
pub const EXPORT_PAGE: u32 = 1_000;
/// Items on one page of a list.
pub const PAGE_MAX: u32 = 100;
/// Tokens that one `flash-sale token` makes.
pub const TOKENS_MAX: u32 = 1_000_000;
/// Difference of clocks that is worth a warning: Redis's clock judges windows, the service's tokens and order
/// ids.
pub const CLOCKS_APART_MAX: Duration = Duration::from_secs(2);
/// Difference from which on a process is not ready: sales are closed for it, or tokens have expired.
pub const CLOCKS_APART_USABLE: Duration = Duration::from_secs(60);
/// Shortest secret of HMAC-SHA256, in bytes, in tokens (RFC 7518, section 3.2: as long as the hash) and elsewhere.
pub const SECRET_BYTES_MIN: usize = 32;

/// Units that one sale can have.
pub const TOTAL_MAX: i64 = 100_000_000;
/// Money, in minor units; far above any coupon and far below any overflow.
pub const CENTS_MAX: i64 = 1_000_000_000_000;

const _: () = {
    // A session with a query in each look is not idle; and a dead host's lanes have another owner in time.
    assert!(3 * OWNER_PERIOD.as_millis() < OWNER_SESSION_IDLE_MAX.as_millis());
    let owned = OWNER_SESSION_IDLE_MAX.as_millis() + OWNER_PERIOD.as_millis();
    assert!(owned + POSTGRES_TIMEOUT.as_millis() < RECOVERY_MAX.as_millis());
    // A lease outlasts three renewals; and a dead worker's entries don't wait for its locks.
    assert!(3 * LOCK_RENEWAL_TIMEOUT.as_millis() < LOCK_LEASE.as_millis());
    assert!(LOCK_LEASE.as_millis() + OWNER_PERIOD.as_millis() < RECOVERY_MAX.as_millis());
    // Retry-After of a 202 is 1 s, the shortest that can be said.
    assert!(CLAIM_POLL_PAUSE.as_millis() <= 1_000);
    assert!(WORK_POLL_PAUSE.as_millis() == 1_000);
    assert!(PREFER_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    let look = (POSTGRES_ACQUIRE_TIMEOUTS as u128 + 1) * POSTGRES_TIMEOUT.as_millis();
    assert!(PREFER_LOOK_MAX.as_millis() >= look);
    assert!(CONNECTION_LOOK_PERIOD.as_millis() < EVICTED_AFTER.as_millis());
    assert!(BODY_TIMEOUT.as_millis() < REQUEST_TIMEOUT.as_millis());
    assert!(REQUEST_TIMEOUT.as_millis() < KEEP_ALIVE.as_millis());
    assert!(LOCK_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    let release_try = 2 * REDIS_TIMEOUT.as_millis() + REDIS_RECONNECT_PAUSE.as_millis();
    assert!(LOCK_RELEASE_TRIES as u128 * release_try < LOCK_LATCH_KEPT.as_millis());
    assert!(LATE_REQUEST_MAX.as_millis() + DOOR_DRAIN_MAX.as_millis() < DRAIN_MAX.as_millis());
    assert!(CLAIM_LOOK_PERIOD.as_millis() * 10 <= CLAIM_WAIT.as_millis());
    let asked = TURN_WAIT_MAX.as_millis() + RECONCILE_WAIT_MAX.as_millis();
    assert!(asked < REQUEST_TIMEOUT.as_millis());
    // A beat may wait for a slow statement.
    assert!(TURN_BEAT.as_millis() + look < TURN_SILENCE_MAX.as_millis());
    assert!(3 * LANES_MEMORY.as_millis() < LOOK_PERIOD.as_millis());
    assert!(LOOK_PERIOD.as_millis() < PROCESS_SILENCE_MAX.as_millis());
    assert!(CLOSED_ORDERS_TIME.as_millis() < ORDER_KEPT_MIN.as_millis());
    assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());
    let ping = RETURNS_PING_PERIOD.as_millis() + REDIS_TIMEOUT.as_millis();
    assert!(ping < RETURNS_HEARD_MAX.as_millis());
    assert!(LANES_MAX < 1 << LANE_BITS);
    // At most five questions to each store about a hot coupon in any second.
    assert!(5 * LEFT_SHOWN_MAX.as_millis() >= 1_000);
    assert!(POSTPONED_PAUSE_MIN.as_millis() < POSTPONED_PAUSE_MAX.as_millis());
    assert!(BATCH_ORDERS_LIMIT as usize <= TRACED_ROWS_MAX);
    // Stock is counted by Lua, whose numbers are exact up to 2^53.
    assert!(TOTAL_MAX < 1 << 53);
};
