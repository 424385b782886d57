//! A limit on everything, and how the limits relate.
//!
//! Units come last in the names. The assertions are part of the correctness argument: a number that breaks a relation
//! does not compile. Limits that an operator may change are settings (`base/config.rs`), and `Config::validate` checks
//! their relations.

use std::time::Duration;

/// Bits of a coupon id that name its lane.
pub const LANE_BITS: u32 = 10;
/// Largest number of lanes: an order id has six bits for the lane, and 63 stands for regular coupons.
pub const LANES_MAX: i32 = 63;
/// How far an order id may be ahead of Postgres's clock. A claim whose id is further ahead becomes a dead letter,
/// because one such entry could move all later ids to 2090.
pub const ORDER_AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);

/// Largest body of a request, in bytes. The longest coupon fits, even with each character as two escapes of six bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Most faults of a body that a reply lists.
pub const FAULTS_TOLD_MAX: usize = 10;
/// Largest head of a request, in bytes: request line and headers together.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Time for a client to send the first request head on a connection.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after which a connection without traffic is closed: longer than a balancer in front keeps it (nginx: 60 s).
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Least time for a client to take a part of a reply; it gets at most twice as long.
pub const REPLY_TURN_MS: u64 = 30_000;
/// Bytes of a reply that are handed to a connection at a time, and that HTTP/2 buffers for each reply.
pub const REPLY_PART_BYTES: usize = 16 * 1024;
/// Concurrent requests on an HTTP/2 connection.
pub const HTTP2_STREAMS_MAX: u32 = 32;
/// Bytes of a body that an HTTP/2 client may send before any of them is read.
pub const HTTP2_STREAM_WINDOW: u32 = 64 * 1024;
/// The same for all bodies of a connection together.
pub const HTTP2_CONNECTION_WINDOW: u32 = 128 * 1024;
/// Send buffer of the kernel for one client, in bytes; the kernel uses twice as much with its own data. Without a bound
/// it would keep megabytes for each client that doesn't read, and hide for hours that the client doesn't read.
pub const SEND_BUFFER: u32 = 32 * 1024;
/// Period of the search for overdue connections.
pub const CONNECTION_CHECK_PERIOD: Duration = Duration::from_millis(250);
/// Time for an overdue connection to end by itself.
pub const OVERDUE_CLOSE_MAX: Duration = Duration::from_secs(1);
/// Longest `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Idle time after which a connection may be closed to make room. A client between two requests comes back sooner.
pub const EVICTED_AFTER: Duration = Duration::from_secs(1);
/// Connections that may wait to be accepted in the kernel's queue.
pub const LISTEN_BACKLOG: u32 = 4_096;
/// Pause after a connection could not be accepted.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for the body of a request to arrive.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a browser may cache that pages of another origin are allowed.
pub const PREFLIGHT_KEPT: Duration = Duration::from_secs(600);
/// Time for a whole request, including its body and `Prefer: wait`.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);
/// Longest `Prefer: wait=N` that is honoured.
pub const PREFER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause that a 202 recommends before the client asks for its claim's status. Most orders are written sooner.
pub const CLAIM_POLL_PAUSE: Duration = Duration::from_millis(200);
/// Pause that other 202s recommend: a comparison, a change or a payment takes a second and more.
pub const WORK_POLL_PAUSE: Duration = Duration::from_secs(1);
/// Requests that may wait for their order at the same time. Further requests get their 202 at once.
pub const PREFER_WAITERS_MAX: usize = 256;
/// Period of the shared query for the orders that requests wait for.
pub const PREFER_CHECK_PERIOD: Duration = Duration::from_millis(10);
/// Pause after that query, as a multiple of its duration. This matters when Postgres is busy.
pub const PREFER_CHECK_PAUSES: u32 = 9;
/// Time for that query, including the wait for its connection.
pub const PREFER_CHECK_MAX: Duration = Duration::from_secs(3);

/// Period in which the state of a watched sale is read.
pub const LIVE_PERIOD: Duration = Duration::from_secs(1);
/// Time after which an unchanged state is sent to watchers again: proxies cut streams that are quiet for 15 s.
pub const LIVE_HEARTBEAT: Duration = Duration::from_secs(5);
/// Period in which a process reports its counts, and in which the board is computed and sent.
pub const BOARD_PERIOD: Duration = Duration::from_secs(1);
pub const BOARD_POSTGRES_PERIOD: Duration = Duration::from_secs(2);
/// Reads of Redis per count of the buyers of each sale.
pub const BOARD_CHECKS_PER_COUNT: u32 = 5;
/// Time for which the board is computed after a client without a place has asked for it. Such a client asks every 10 to
/// 20 s.
pub const BOARD_ASKED_MAX: Duration = Duration::from_secs(25);
/// Time after its last report for which a process counts as heard, and after a read of a store for which it is fresh.
pub const BOARD_HEARD_MAX: Duration = Duration::from_secs(5);
/// Time after its last report for which the board lists a process that has not announced its end.
pub const BOARD_SILENT_KEPT: Duration = Duration::from_secs(600);
/// Time that the board waits for its first reads before it is sent without them.
pub const BOARD_FIRST_CHECK_MAX: Duration = Duration::from_millis(500);
/// Seconds over which the board computes its quantiles.
pub const BOARD_QUANTILE_SECONDS: usize = 10;
/// Sales on the board: first the newest that aren't over, then the newest others.
pub const BOARD_SALES_MAX: u32 = 20;
/// Newest dead letters, findings and items of other lists on the board.
pub const BOARD_ITEMS_MAX: u32 = 20;
pub const BOARD_RUNS_MAX: u32 = 30;
pub const BOARD_RECOVERIES_MAX: u32 = 5;
/// Retry-After when there is no place for another watcher. Meanwhile it can poll the coupon.
pub const WATCHERS_RETRY_AFTER: Duration = Duration::from_secs(15);
/// Lifetime of the token of a demo's shopper.
pub const SHOPPER_TOKEN_TIME: Duration = Duration::from_secs(3_600);
/// Time that the page of a sale waits for the data to render. After that it is sent without the data.
pub const PAGE_WAIT_MAX: Duration = Duration::from_millis(300);
/// Most shoppers, and most units, of a storm.
pub const STORM_SHOPPERS_MAX: u32 = 100_000;
/// Most seconds in which the shoppers of a storm arrive.
pub const STORM_SECONDS_MAX: u32 = 60;
pub const STORM_CONNECTIONS_MAX: usize = 256;
/// Period in which a storm shows its state.
pub const STORM_PERIOD: Duration = Duration::from_millis(250);
/// Time for one read of the stores while a storm is shown.
pub const STORM_CHECK_MAX: Duration = Duration::from_secs(1);
/// Time that a storm waits until the accepted claims are written.
pub const STORM_SETTLE_MAX: Duration = Duration::from_secs(60);
/// Time without an answer from Redis after which a storm has no verdict.
pub const STORM_AWAY_MAX: Duration = Duration::from_secs(10);
/// Time after the last arrival for which a shopper keeps asking.
pub const STORM_PATIENCE: Duration = Duration::from_secs(60);
/// Time for one request of a shopper: longer than the service takes for any request.
pub const STORM_REQUEST_MAX: Duration = Duration::from_secs(15);
/// Longest pause of a shopper that was told to come back.
pub const STORM_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time until a worker that was killed in a storm comes back.
pub const STORM_WORKER_AWAY: Duration = Duration::from_secs(3);
/// Time for which a storm freezes Redis, in whole seconds.
pub const STORM_FROZEN: Duration = Duration::from_secs(4);
/// Pages that may watch storms at the same time.
pub const STORM_WATCHERS_MAX: usize = 64;
/// Newest measured claims that a process remembers.
pub const TRACED_CLAIMS_MAX: usize = 256;
/// Newest rows and acknowledged entries whose times a process remembers.
pub const TRACED_ROWS_MAX: usize = 32_768;
/// Time for which a printed link lets the administrator of a demo in.
pub const SESSION_TOKEN_TIME: Duration = Duration::from_secs(8 * 3_600);

/// Default of `--redis-timeout-ms`: time for Redis to answer, and for a connection to be established.
pub const REDIS_TIMEOUT: Duration = Duration::from_millis(500);
/// Silence on a connection to Redis after which the peer is probed.
pub const REDIS_KEEPALIVE: Duration = Duration::from_secs(5);
/// Time between two probes.
pub const REDIS_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// Unanswered probes after which the connection counts as broken.
pub const REDIS_KEEPALIVE_PROBES: u32 = 3;
/// Pause between two attempts to connect; requests in between fail at once instead of queueing.
pub const REDIS_RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Period in which sentinels and cluster nodes are asked for the masters.
pub const SENTINEL_PERIOD: Duration = Duration::from_secs(1);
/// Time for each node of a cluster to answer, when all are asked for their view of the cluster.
pub const CLUSTER_ANSWER_MAX: Duration = Duration::from_millis(250);
/// Time for which the combined view is reused.
pub const CLUSTER_MAP_MEMORY: Duration = Duration::from_millis(50);
/// Commands that may queue for the one multiplexed connection (the driver's default of 50 would throttle).
pub const REDIS_PIPELINE_BUFFER: usize = 4_096;
/// Oldest supported Redis, because of commands in the scripts: Debian 12's.
pub const REDIS_VERSION_MIN: (u32, u32) = (7, 0);

/// Oldest major version of Postgres that the tests have run on: Debian 12's.
pub const POSTGRES_VERSION_TESTED: i32 = 15;
/// Oldest supported major version of Postgres, because of `idle_session_timeout`.
pub const POSTGRES_VERSION_MIN: i32 = 14;
/// Default of `--database-timeout-ms`: how long Postgres may work on one statement, and how long a transaction may wait
/// for its next one. If a process is paused or cut off, its transaction holds rows that other workers need, and
/// [`RECOVERY_MAX`] counts from then on.
pub const POSTGRES_TIMEOUT: Duration = Duration::from_secs(1);
/// A statement waits for a lock for its time-out divided by this.
pub const POSTGRES_LOCK_TIMEOUTS: u32 = 2;
/// A caller waits for a free Postgres connection for this many time-outs of a statement.
pub const POSTGRES_ACQUIRE_TIMEOUTS: u32 = 2;
/// Tries of a transaction that Postgres rolls back in favour of others.
pub const POSTGRES_CONFLICT_TRIES: u32 = 5;
/// Least pause between two checks of Postgres sessions in use: a pool of 16 is checked within 4 s.
pub const SESSION_CHECK_PERIOD: Duration = Duration::from_millis(250);
/// Pings of Postgres that fit into the wait for a connection.
pub const POSTGRES_PINGS: u32 = 4;

pub const POSTGRES_CLOSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which Redis holds back the reply about a log without new entries.
pub const LOG_WAIT: Duration = Duration::from_millis(200);
/// Period in which a worker checks which lanes it may own.
pub const OWNER_PERIOD: Duration = Duration::from_millis(500);
/// Time without a query after which Postgres ends the session that owns lanes: its process is paused, or its machine is
/// gone.
pub const OWNER_SESSION_IDLE_MAX: Duration = Duration::from_secs(3);
/// Time without an answer from Redis after which a worker releases its lanes, because another worker may reach Redis.
pub const OWNER_REDIS_SILENCE_MAX: Duration = Duration::from_secs(3);
/// Longest time from a worker's death until its entries are in Postgres.
pub const RECOVERY_MAX: Duration = Duration::from_secs(5);
/// First pause after a failed job; it doubles up to [`BACKOFF_MAX`].
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest pause after a failed job.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Pause before claims whose lock was held elsewhere are retried.
pub const CONTENTION_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two checks of sales whose rows another session keeps locked in Postgres.
pub const LOCKED_SALES_PAUSE: Duration = Duration::from_millis(500);
/// Least pause between two log lines about the same trouble.
pub const LOG_LINE_PAUSE: Duration = Duration::from_secs(1);
pub const TRIM_PERIOD: Duration = Duration::from_secs(1);

/// Batches of one lane that are written at the same time while batches are full; otherwise one.
pub const BATCHES_AT_A_TIME: usize = 3;
/// Pause of a writer after a batch that was not full. It makes batches grow with the rate, so that each sync of the
/// disk covers more claims.
pub const WRITE_PAUSE: Duration = Duration::from_millis(10);

/// Entries of the order log that one command reads. An entry has up to [`CLAIM_CALL_CLAIMS_MAX`] claims.
pub const ENTRIES_AT_A_TIME: usize = 256;
/// Entries of the order log that one call acknowledges. Lua can pass on some 8,000 values at once.
pub const ACKNOWLEDGED_AT_A_TIME: usize = 4_000;

/// Entries of the order log that one statement turns into dead letters.
pub const DEAD_LETTERS_AT_A_TIME: usize = 1_000;

/// Period in which the leader compares the lanes with their approved states, and in which a process reports that it is
/// alive.
pub const LANE_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// Assumed difference between the clocks of Postgres and Redis where claims of a period are counted.
pub const CLOCKS_MARGIN: Duration = Duration::from_secs(10);
/// Silence after which a process no longer counts as alive, and no longer checks the lanes.
pub const PROCESS_SILENCE_MAX: Duration = Duration::from_secs(3);
/// Pause of a lane after a failed recovery.
pub const RECOVERY_RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Time for which the states of the lanes are believed after they were read.
pub const LANES_MEMORY: Duration = Duration::from_millis(100);
/// Time for the workers to write the order log of a recovering lane.
pub const RECOVERY_LOG_MAX: Duration = Duration::from_secs(60);
/// Time without progress after which a recovery stops waiting for that log.
pub const RECOVERY_LOG_STILL: Duration = Duration::from_secs(2);
/// Pause between two checks whether all processes have handed in their unwritten claims.
pub const RECOVERY_HAND_IN_PERIOD: Duration = Duration::from_millis(10);
pub const RECOVERING_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Lanes that are recovered at the same time.
pub const RECOVERIES_AT_A_TIME: usize = 8;
/// Pause between two checks of the log that a recovery waits for.
pub const RECOVERY_CHECK_PERIOD: Duration = Duration::from_millis(50);
/// Buyers that one call writes to Redis when a sale is rebuilt.
pub const BUYERS_AT_A_TIME: usize = 1_000;

/// Sales that may be suspected to be lost at the same time. The check of these sales covers their lanes.
pub const SUSPECTED_SALES_MAX: usize = 1_000;

/// Period in which a process checks which of its unwritten claims are committed.
pub const UNWRITTEN_CHECK_PERIOD: Duration = Duration::from_millis(500);
/// Age beyond which a lane's state with all orders written says nothing about later claims, because orders may have
/// been deleted.
pub const SETTLED_AGE_MAX: Duration = Duration::from_hours(24);
/// Unwritten claims that one statement hands in.
pub const UNWRITTEN_AT_A_TIME: usize = 5_000;
/// Least number of unwritten claims that a process keeps for a lane. If the bound on the backlog is larger, it keeps as
/// many as that.
pub const UNWRITTEN_MIN: usize = 100_000;
/// Time that a recovery waits for the unwritten claims of live processes.
pub const HAND_IN_WAIT_MAX: Duration = Duration::from_secs(2);

/// Time for a change of a coupon in Postgres to reach Redis. After that, an operator has to look into it.
pub const CHANGE_APPLIED_MAX: Duration = Duration::from_secs(10);
/// Time for Postgres to count the live orders of one sale while `sold` is locked. The worker's batches for that sale
/// are retried meanwhile.
pub const RECOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Period in which a process checks whether a comparison is due, and reads the result of the last one.
pub const RECONCILE_POLL: Duration = Duration::from_secs(5);
/// Period in which the workers collect the operator's gauges.
pub const NUMBERS_PERIOD: Duration = Duration::from_secs(5);
/// Newest coupons in Redis that have metrics of their own.
pub const METRIC_COUPONS_MAX: u32 = 100;
/// Shards of a sale that are counted for these metrics. That takes Redis less than a millisecond.
pub const METRIC_SHARDS_MAX: u32 = 1_024;
/// Assumed duration of a comparison that never finished.
pub const RECONCILE_ASSUMED: Duration = Duration::from_secs(30);
/// Most findings in the record of one comparison.
pub const RUN_FINDINGS_MAX: usize = 100;
/// Time that a request waits for its comparison. After that, the client reads the record.
pub const RECONCILE_WAIT_MAX: Duration = Duration::from_secs(8);
/// Time that a request waits for another comparison to end.
pub const TURN_WAIT_MAX: Duration = Duration::from_secs(2);
/// The same for the command line, and for a worker that needs the result.
pub const TURN_WAIT_LONG: Duration = Duration::from_secs(60);
/// Pause between two tries to take the turn to compare.
pub const TURN_PAUSE: Duration = Duration::from_millis(50);
/// Period in which a comparison shows Postgres that it goes on.
pub const TURN_BEAT: Duration = Duration::from_secs(2);
/// Silence after which Postgres gives the turn to the next comparison.
pub const TURN_SILENCE_MAX: Duration = Duration::from_secs(20);
/// Disagreements that one alarm lists; `flash-sale reconcile` prints all.
pub const LOGGED_DISAGREEMENTS_MAX: usize = 20;

/// Longest time that a claim on a regular coupon waits for the buyer's lock.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);
/// Tries to release a lock without an answer. The latch keeps the answer to the first try for the later ones.
pub const LOCK_RELEASE_TRIES: u32 = 3;
/// Time for which the latch of a release stays in Redis.
pub const LOCK_LATCH_KEPT: Duration = Duration::from_secs(5);
/// Lease on a buyer's lock. It is renewed at a third of it.
pub const LOCK_LEASE: Duration = Duration::from_secs(2);
/// Longest lease on a buyer's lock: twice that of Redisson's watchdog. A lock with a longer lease was taken before
/// Redis's clock was set back.
pub const LOCK_LEASE_MAX: Duration = Duration::from_secs(60);
/// Time for a renewal of leases to be answered, whatever `--redis-timeout-ms` says: three renewals fit into a lease.
pub const LOCK_RENEWAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Locks whose leases one call renews. A batch that one call took is also renewed by one call.
pub const LOCK_RENEWAL_BATCH_MAX: usize = 100;

/// Time for which Postgres's answer about a coupon outside Redis is believed.
pub const LOADER_MEMORY: Duration = Duration::from_secs(1);
/// Coupons outside Redis whose answers are remembered.
pub const LOADER_MEMORY_COUPONS_MAX: u64 = 100_000;

/// Longest time for which a process shows the same copy of a coupon, and of its sale's units left.
pub const LEFT_SHOWN_MAX: Duration = Duration::from_millis(200);
/// Coupon ids that a process remembers, whether the coupon exists or not. The longest coupon takes some 50 KB, a usual
/// one 2 KB.
pub const COUPONS_SHOWN_MAX: u64 = 4_000;

/// Coupons that the stock returns job reads from Postgres at a time.
pub const JOB_COUPONS_MAX: i64 = 100;
/// Period of the search for sales that open soon.
pub const LOAD_PERIOD: Duration = Duration::from_secs(10);
/// Time before its opening at which a missing sale is loaded. Usually a sale is in Redis since its creation.
pub const WARM_UP_AHEAD: Duration = Duration::from_secs(3_600);
/// Period of the search for sales that are over.
pub const ARCHIVE_PERIOD: Duration = Duration::from_secs(60);
/// Period of the search for changes of coupons that Redis doesn't have.
pub const CHANGES_PERIOD: Duration = Duration::from_secs(1);

/// Calls of the claim script that may run for one coupon at the same time. Further claims share the next call.
pub const CLAIM_CALLS_MAX: usize = 2;
/// Claims in one call of the claim script, unless thousands wait: a call blocks all other commands.
pub const CLAIM_CALL_CLAIMS: usize = 128;
/// Claims in one call while thousands wait. Lua can pass on some 8,000 values at once, and a claim has two.
pub const CLAIM_CALL_CLAIMS_MAX: usize = 512;
/// Default of `--claim-wait-ms`: time after which a claim that is in no call yet is refused. It is not refused sooner:
/// a refusal costs a third of what a win costs, and a client that is refused at once comes back at once.
pub const CLAIM_WAIT: Duration = Duration::from_millis(400);
/// Period in which a running call checks for claims that have waited too long. The end of each call checks, too.
pub const CLAIM_CHECK_PERIOD: Duration = Duration::from_millis(20);

/// Average number of buyers of a sold-out sale in each of its shards. By default Redis stores hashes of up to 512
/// fields compactly. Chance makes some shards twice as full and restocks add more; and a short shard is read faster.
pub const SHARD_BUYERS: i64 = 32;
/// Most shards of one sale; a larger sale has more buyers in each shard. One call of a script counts all shards, which
/// takes some milliseconds for this many.
pub const SHARDS_MAX: i64 = 16_384;
/// Shards that one call makes or removes. The call blocks all claims meanwhile.
pub const SHARDS_AT_A_TIME: usize = 1_000;
/// Sales whose number of shards a process remembers.
pub const SHARDS_MEMORY_COUPONS_MAX: usize = 100_000;

/// Time for which "sold out" and a buyer's order are believed before Redis is asked again.
pub const SOLD_OUT_MEMORY: Duration = Duration::from_secs(1);
/// Share of users that the memory of a sold-out sale mistakes for buyers. Each of them costs a call of Redis. At 0.01 %
/// a filter needs some 20 bits for each buyer.
pub const SOLD_OUT_FALSE_BUYERS: f64 = 0.000_1;
/// Most buyers in such a memory (25 MB). For a larger sale, Redis is still asked.
pub const SOLD_OUT_BUYERS_MAX: usize = 10_000_000;
/// Buyers that are read into such a memory for each call that Redis has answered without it. Reading this many costs
/// the service and Redis half as much as a call for one claim, and twice as much as a claim in a shared call.
pub const SOLD_OUT_BUYERS_PER_QUESTION: usize = 32;
/// Orders of one sale that a process remembers for repeats, some 50 bytes each.
pub const ACCEPTED_ORDERS_MAX: usize = 100_000;
/// Time without a claim after which a process forgets a sold-out sale and the orders of its buyers.
pub const SOLD_OUT_KEPT: Duration = Duration::from_secs(60);

/// Batches in one run of a job over a table. The next run continues there, without a pause where orders and units wait.
pub const JOB_BATCHES_MAX: usize = 10;
/// Pause before a postponed item is retried. It doubles up to [`POSTPONED_PAUSE_MAX`].
pub const POSTPONED_PAUSE_MIN: Duration = Duration::from_secs(1);
pub const POSTPONED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// Postponed items that one run of a job retries: thousands that fail must not hold up the others.
pub const POSTPONED_TRIES_MAX: i64 = 20;
/// Characters of an item's error that are kept.
pub const POSTPONED_ERROR_CHARS_MAX: usize = 1_000;
/// Period in which a worker checks for units to return to stock.
pub const STOCK_RETURN_PERIOD: Duration = Duration::from_millis(500);
/// Stock returns that are read at a time.
pub const STOCK_RETURNS_BATCH: u32 = 1_000;
/// Units that one call of the script releases. The call blocks all claims meanwhile.
pub const RELEASE_UNITS_MAX: usize = 128;

/// Period of the pings on the connection for messages about returned units.
pub const RETURNS_PING_PERIOD: Duration = Duration::from_millis(250);
/// Time after its last answer for which that connection is trusted to report every unit. While Redis answers in time,
/// this never runs out.
pub const RETURNS_HEARD_MAX: Duration = Duration::from_secs(1);

/// Period in which a worker checks for orders that were not paid in time.
pub const EXPIRY_PERIOD: Duration = Duration::from_secs(1);
/// Period in which a worker checks for orders and records that are too old.
pub const RETENTION_PERIOD: Duration = Duration::from_secs(60);
/// Orders that one transaction checks, and rows that it deletes.
pub const RETENTION_BATCH: u32 = 1_000;
/// Least `--orders-days`: an unknown order that is older may have been deleted.
pub const ORDER_KEPT_MIN: Duration = Duration::from_hours(24);
/// Period in which the closed orders of one user and one coupon count for `--closed-orders-max`.
pub const CLOSED_ORDERS_TIME: Duration = Duration::from_secs(3_600);
/// Most unpaid orders that are counted to say what keeps a sale from being archived.
pub const UNPAID_COUNTED_MAX: i64 = 10_000;
/// Orders that expire in one transaction. Other transactions wait for the same sales meanwhile.
pub const EXPIRY_BATCH: u32 = 500;
/// Unpaid orders that one transaction cancels, by ending their time to pay.
pub const CANCELLATIONS_BATCH: i64 = 1_000;
/// Period in which a worker checks for payments to refund.
pub const REFUND_PERIOD: Duration = Duration::from_secs(1);
/// Payments that one run of that job asks gateways about.
pub const REFUNDS_BATCH: u32 = 100;
/// Pause before a gateway that hasn't confirmed a refund is asked again.
pub const REFUND_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Least time for which an order may stay unpaid after it was written. It applies if it ends later than the time
/// counted from the claim, and if `--payment-window-s` isn't shorter.
pub const PAY_TIME_MIN: Duration = Duration::from_secs(300);
/// Prices that a process remembers, by coupon and revision.
pub const PRICES_REMEMBERED_MAX: u64 = 10_000;
/// Greatest age of a stamped signature, and greatest difference of the two clocks.
pub const SIGNATURE_AGE_MAX: Duration = Duration::from_secs(300);
pub const GATEWAY_REPLY_BYTES_MAX: usize = 64 * 1024;
/// Largest set of public keys from an issuer, in bytes. A set of a hundred keys has 50 KB.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;
pub const KEY_SET_TIMEOUT: Duration = Duration::from_secs(5);
pub const KEY_SET_PERIOD: Duration = Duration::from_secs(300);
/// Least pause between two fetches after a failure, or for a token that names an unknown key.
pub const KEY_SET_PAUSE: Duration = Duration::from_secs(60);
/// The same while there are no keys at all.
pub const KEY_SET_PAUSE_WITHOUT_KEYS: Duration = Duration::from_secs(1);
/// Pause before a gateway is first asked about an opened payment. Each further pause is twice as long, up to an hour.
/// The gateway reports by itself long before, unless its callback got lost.
pub const OPENED_CHECK_PAUSE: Duration = Duration::from_secs(60);
/// Most times that a gateway is asked about an opened payment. With these pauses that takes three days from the payer's
/// last visit.
pub const OPENED_CHECKS_MAX: i32 = 77;
/// Time after which an unanswered opened payment is shown to an operator.
pub const OPENED_UNHEARD_LONG: Duration = Duration::from_secs(3_600);
/// Time after which an opened payment that never gets an answer is given up.
pub const OPENED_UNHEARD_MAX: Duration = Duration::from_secs(30 * 86_400);
/// Longest payment id of a gateway, in bytes.
pub const PAYMENT_ID_BYTES_MAX: usize = 200;
/// Longest URL of a payer's page, in bytes.
pub const PAY_URL_BYTES_MAX: usize = 2_048;
/// Unanswered requests in a row after which one run of the job takes the gateway to be down.
pub const GATEWAY_UNANSWERED_MAX: u32 = 3;
/// Opened payments that one run of the job asks about.
pub const OPENED_BATCH: u32 = 20;
/// Pause before a held payment is checked again: its order may be written meanwhile.
pub const HELD_PAYMENT_PAUSE: Duration = Duration::from_secs(5);
/// Time after which a payment for an order that stays unknown is refunded. Entries wait in the order log for less,
/// unless no worker runs.
pub const HELD_PAYMENT_PATIENCE: Duration = Duration::from_secs(3_600);

/// Period in which a process reads the number of accepted claims that wait to be written. The claims that all processes
/// accept within a period may exceed `--backlog-orders-max`.
pub const BACKLOG_PERIOD: Duration = Duration::from_millis(250);
pub const OVERLOADED_RETRY_AFTER: Duration = Duration::from_secs(2);

/// Period in which the files of secrets are read again.
pub const SECRETS_PERIOD: Duration = Duration::from_secs(1);

/// Period in which the service cleans up its own memory.
pub const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(5);

/// Time for a stopping service to finish the work under way.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Part of that time for the API and the worker, so that the rest of the shutdown still fits.
pub const DOOR_DRAIN_MAX: Duration = Duration::from_secs(4);
/// Period in which Redis's ability to keep claims is checked.
pub const DURABILITY_CHECK_PERIOD: Duration = Duration::from_millis(500);
/// Time that a claim waits for its row. After that, its outcome is unknown.
pub const ROW_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time for an ending process to hand in its unwritten claims and to tell the others.
pub const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Time that a stopping service waits for requests on open connections that are still on their way.
pub const LATE_REQUEST_MAX: Duration = Duration::from_millis(200);

/// Largest `--batch-orders-max`.
pub const BATCH_ORDERS_LIMIT: u16 = 10_000;
/// Period in which a waiting reader of events checks for new ones.
pub const EVENTS_CHECK_PERIOD: Duration = Duration::from_millis(500);
/// Endpoints that events may be sent to. Each that is slow may keep a connection to Postgres busy in turn.
pub const WEBHOOKS_MAX: i64 = 100;
/// Period in which a worker checks which endpoints are to be sent something.
pub const WEBHOOKS_PERIOD: Duration = Duration::from_secs(1);
/// Events that are read for an endpoint at a time. One may have all orders of a batch.
pub const WEBHOOK_PAGE: u32 = 10;
/// Time for an endpoint to reply.
pub const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(15);
/// The same, when the staff waits for it.
pub const WEBHOOK_TEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a reply that are read.
pub const WEBHOOK_REPLY_BYTES_MAX: usize = 64 * 1024;
/// Time after which another process may send to an endpoint, from the last delivery on.
pub const WEBHOOK_LEASE: Duration = Duration::from_secs(60);
/// Pause after the first failure of an endpoint, and the longest.
pub const WEBHOOK_PAUSE_MIN: Duration = Duration::from_secs(5);
pub const WEBHOOK_PAUSE_MAX: Duration = Duration::from_hours(12);
/// Time after which an endpoint that keeps failing is disabled.
pub const WEBHOOK_FAILING_MAX: Duration = Duration::from_hours(72);
/// Time for which a secret signs after it was replaced.
pub const WEBHOOK_SECRET_AFTERLIFE: Duration = Duration::from_hours(24);
/// Orders that an export reads at a time.
pub const EXPORT_PAGE: u32 = 1_000;
/// Items on one page of a list.
pub const PAGE_MAX: u32 = 100;
/// Most tokens that one `flash-sale token` makes.
pub const TOKENS_MAX: u32 = 1_000_000;
/// Difference of clocks that is worth a warning. Redis's clock decides windows and order ids; the service's clock
/// decides whether tokens have expired.
pub const CLOCKS_APART_MAX: Duration = Duration::from_secs(2);
/// Difference from which a process is not ready: to it, sales would seem closed or tokens expired.
pub const CLOCKS_APART_USABLE: Duration = Duration::from_secs(60);
/// Shortest secret for HMAC-SHA256, in bytes, for tokens (RFC 7518, section 3.2: as long as the hash) and elsewhere.
pub const SECRET_BYTES_MIN: usize = 32;

/// Most units of one sale.
pub const TOTAL_MAX: i64 = 100_000_000;
/// Largest amount of money, in minor units: far above any coupon, and far below any overflow.
pub const CENTS_MAX: i64 = 1_000_000_000_000;

const _: () = {
    // A session with a query each period is not idle; and a dead host's lanes get another owner in time.
    assert!(3 * OWNER_PERIOD.as_millis() < OWNER_SESSION_IDLE_MAX.as_millis());
    let owned = OWNER_SESSION_IDLE_MAX.as_millis() + OWNER_PERIOD.as_millis();
    assert!(owned + POSTGRES_TIMEOUT.as_millis() < RECOVERY_MAX.as_millis());
    // A lease outlasts three renewals; and a dead worker's entries don't wait for its locks.
    assert!(3 * LOCK_RENEWAL_TIMEOUT.as_millis() < LOCK_LEASE.as_millis());
    assert!(LOCK_LEASE.as_millis() + OWNER_PERIOD.as_millis() < RECOVERY_MAX.as_millis());
    // Retry-After of a 202 is 1 s, the shortest that can be expressed.
    assert!(CLAIM_POLL_PAUSE.as_millis() <= 1_000);
    assert!(WORK_POLL_PAUSE.as_millis() == 1_000);
    assert!(PREFER_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    let check = (POSTGRES_ACQUIRE_TIMEOUTS as u128 + 1) * POSTGRES_TIMEOUT.as_millis();
    assert!(PREFER_CHECK_MAX.as_millis() >= check);
    assert!(CONNECTION_CHECK_PERIOD.as_millis() < EVICTED_AFTER.as_millis());
    assert!(BODY_TIMEOUT.as_millis() < REQUEST_TIMEOUT.as_millis());
    assert!(REQUEST_TIMEOUT.as_millis() < KEEP_ALIVE.as_millis());
    assert!(LOCK_WAIT_MAX.as_millis() < REQUEST_TIMEOUT.as_millis());
    assert!(WEBHOOK_TEST_TIMEOUT.as_millis() < REQUEST_TIMEOUT.as_millis());
    assert!(3 * WEBHOOK_TIMEOUT.as_millis() < WEBHOOK_LEASE.as_millis());
    let release_try = 2 * REDIS_TIMEOUT.as_millis() + REDIS_RECONNECT_PAUSE.as_millis();
    assert!(LOCK_RELEASE_TRIES as u128 * release_try < LOCK_LATCH_KEPT.as_millis());
    assert!(LATE_REQUEST_MAX.as_millis() + DOOR_DRAIN_MAX.as_millis() < DRAIN_MAX.as_millis());
    assert!(CLAIM_CHECK_PERIOD.as_millis() * 10 <= CLAIM_WAIT.as_millis());
    let asked = TURN_WAIT_MAX.as_millis() + RECONCILE_WAIT_MAX.as_millis();
    assert!(asked < REQUEST_TIMEOUT.as_millis());
    // A heartbeat may wait for a slow statement.
    assert!(TURN_BEAT.as_millis() + check < TURN_SILENCE_MAX.as_millis());
    assert!(3 * LANES_MEMORY.as_millis() < LANE_CHECK_PERIOD.as_millis());
    assert!(LANE_CHECK_PERIOD.as_millis() < PROCESS_SILENCE_MAX.as_millis());
    assert!(CLOSED_ORDERS_TIME.as_millis() < ORDER_KEPT_MIN.as_millis());
    assert!(BACKOFF_MIN.as_millis() < BACKOFF_MAX.as_millis());
    let ping = RETURNS_PING_PERIOD.as_millis() + REDIS_TIMEOUT.as_millis();
    assert!(ping < RETURNS_HEARD_MAX.as_millis());
    assert!(LANES_MAX < 1 << LANE_BITS);
    // At most five reads of each store for a hot coupon in any second.
    assert!(5 * LEFT_SHOWN_MAX.as_millis() >= 1_000);
    assert!(POSTPONED_PAUSE_MIN.as_millis() < POSTPONED_PAUSE_MAX.as_millis());
    assert!(BATCH_ORDERS_LIMIT as usize <= TRACED_ROWS_MAX);
    // Stock is counted by Lua, whose numbers are exact up to 2^53.
    assert!(TOTAL_MAX < 1 << 53);
};
