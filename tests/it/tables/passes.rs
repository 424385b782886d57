//! Each pass that works in batches or pages, with no item, one, a batch, and one more: done in as many runs as
//! promised. Then a batch of stuck items, or one more, in front of a good one, which is dealt with all the same.

use std::fs;
use std::path::Path;
use std::time::Duration;

use flash_sale::base::limits::{
    CANCELLATIONS_BATCH, EXPIRY_BATCH, GIVE_BACK_UNITS_MAX, HISTORY_BATCH, PASS_COUPONS_MAX,
    REFUNDS_BATCH, STOCK_RETURNS_BATCH,
};
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{CouponId, Lane};
use flash_sale::sale::order::cancellations::Asked;
use flash_sale::sale::pass::Pass;
use flash_sale::worker::{LaneWorker, WorkerSettings, consumer_name};
use serde_json::Value;

use crate::support::{Bounded, TestApp, bounded, calls, eventually, lane, user, write_all};

/// First order id of rows that are written by hand, as `support/buyers.rs` writes their buyers; the user's id is
/// added.
const BY_HAND: i64 = 1 << 60;

/// File and tests that show the batches of a pass; none for a pass that has no batches.
fn shown(pass: Pass) -> Option<(&'static str, &'static [&'static str])> {
    let shown: (&str, &[&str]) = match pass {
        // It looks at each table once.
        Pass::Numbers => return None,
        Pass::Write => ("tables/passes.rs", &["entries", "entries_behind_others_that_are_stuck"]),
        Pass::Recover => ("tables/passes.rs", &["entries_that_were_left_behind"]),
        Pass::TidyUp => ("tables/passes.rs", &["trimming"]),
        Pass::Reconcile => ("tables/passes.rs", &["findings", "counts_of_orders"]),
        Pass::Load | Pass::Changes | Pass::Revisions | Pass::Archive => (
            "tables/passes.rs",
            &["sales_from_their_load_to_their_end", "a_sale_behind_others_that_are_stuck"],
        ),
        Pass::StockReturns => ("tables/passes.rs", &["units", "units_of_many_sales"]),
        Pass::Withdrawals => ("tables/passes.rs", &["letters_in_front_of_units"]),
        Pass::Places => ("tables/passes.rs", &["places"]),
        Pass::Expiry => ("tables/passes.rs", &["expiry"]),
        Pass::Cancellations => ("tables/passes.rs", &["cancellations"]),
        Pass::Refunds => ("tables/passes.rs", &["refunds"]),
        Pass::History => ("tables/passes.rs", &["history"]),
        Pass::Openings => (
            "payment/rows/opened_again.rs",
            &["a_payment_behind_a_batch_of_stuck_ones", "a_payment_behind_unanswered_ones"],
        ),
        Pass::Audit => ("http/audit.rs", &["old_entries_are_deleted_and_no_others"]),
        Pass::Retention => (
            "retention/records.rs",
            &["a_batch_of_old_returns_goes", "open_returns_in_front_hold_up_no_done_one"],
        ),
        Pass::OrderCounts => (
            "worker/bounds.rs",
            &["ten_batches_of_ten_thousand_changes_of_counts_are_added_up_in_one_run"],
        ),
        Pass::Rebuild => (
            "recovery/steps/keeper/stuck.rs",
            &["look_at_sales_tries_a_sale_behind_many_that_are_stuck"],
        ),
    };
    Some(shown)
}

#[test]
fn each_pass_that_works_in_batches_is_shown() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for (file, tests) in Pass::ALL.into_iter().filter_map(shown) {
        let text = fs::read_to_string(folder.join(file)).expect(file);
        for test in tests {
            let head = format!("#[tokio::test]\nasync fn {test}() {{");
            assert!(text.contains(&head), "{file} has no test {test}");
        }
    }
}

fn around(batch: u32) -> [i64; 4] {
    let batch = i64::from(batch);
    [0, 1, batch, batch + 1]
}

/// Writes orders of users `first..first + count`, with these further columns, and adds them to `sold`.
pub async fn orders(
    app: &TestApp,
    coupon: CouponId,
    (first, count): (i64, i64),
    columns: (&str, &str),
) {
    let (names, values) = columns;
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at {names})
         SELECT {BY_HAND} + n, {coupon}, 'flash', n, now() {values}
         FROM generate_series({first}, {first} + {count} - 1) AS n;
         UPDATE flash_sales SET sold = (SELECT count(*) FROM orders WHERE orders.coupon_id = flash_sales.coupon_id
             AND status IN ('unpaid', 'paid', 'redeemed', 'refunding')) WHERE coupon_id = {coupon}"
    ))
    .await;
}

pub async fn sold_is(app: &TestApp, coupon: CouponId, sold: i64) {
    app.execute(&format!("UPDATE flash_sales SET sold = {sold} WHERE coupon_id = {coupon}")).await;
}

/// An app whose rows are unknown to Redis.
async fn in_postgres_only(arguments: &[&str]) -> TestApp {
    let app = TestApp::configured(arguments).await;
    app.expect_disagreements();
    app
}

// ---- orders and payments ----

/// Further columns of unpaid orders whose time is over.
pub const LATE: (&str, &str) = (", created_at", ", now() - interval '1 day'");
const LATER: (&str, &str) = (", created_at", ", now() - interval '1 hour'");

#[tokio::test]
async fn expiry() {
    let app = in_postgres_only(&[]).await;
    let mut next = 1;
    for count in around(EXPIRY_BATCH) {
        let coupon = app.create_flash(10_000).await;
        orders(&app, coupon, (next, count), LATE).await;
        next += count;
        assert_eq!(i64::try_from(app.expire().await).unwrap(), count, "in one run");
        assert_eq!(app.sold(coupon).await, 0);
    }
    for stuck in &around(EXPIRY_BATCH)[2..] {
        let bad = app.create_flash(10_000).await;
        let good = app.create_flash(10_000).await;
        orders(&app, bad, (next, *stuck), LATE).await;
        orders(&app, good, (next + stuck, 1), LATER).await;
        sold_is(&app, bad, 0).await;
        assert_eq!(app.expire().await, 1, "the good one, in the same run");
        app.let_postponed_be_due().await;
        orders(&app, good, (next + stuck + 1, 1), LATER).await;
        assert_eq!(app.expire().await, 1, "also when all others are due again");
        sold_is(&app, bad, *stuck).await;
        app.let_postponed_be_due().await;
        let runs = usize::try_from(*stuck).unwrap().div_ceil(20);
        let mut expired = 0;
        for _ in 0..runs {
            expired += app.expire().await;
        }
        assert_eq!(i64::try_from(expired).unwrap(), *stuck, "20 in a run");
        assert_eq!(app.postponed().await, [""; 0]);
        next += stuck + 2;
    }
}

/// Orders of a regular coupon that have been over for long, by these ids.
async fn over(app: &TestApp, coupon: CouponId, (first, count): (i64, i64)) {
    app.execute(&format!(
        "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at, updated_at)
         SELECT n, {coupon}, 'regular', n, now(), 'cancelled', now(), now() - interval '1 year'
         FROM generate_series({first}, {first} + {count} - 1) AS n"
    ))
    .await;
}

#[tokio::test]
async fn history() {
    let app = in_postgres_only(&[]).await;
    let coupon = app.create_regular().await;
    let moved = async || {
        i64::try_from(app.app.history.pass().bounded().await.expect("Postgres answers")).unwrap()
    };
    let mut next = 1;
    for count in around(HISTORY_BATCH) {
        over(&app, coupon, (next, count)).await;
        next += count;
        assert_eq!(moved().await, count, "in one run");
    }
    for stuck in &around(HISTORY_BATCH)[2..] {
        let bad = format!("NEW.id < {}", next + stuck);
        app.refuse("INSERT", "order_history", &bad, "23514").await;
        over(&app, coupon, (next, stuck + 1)).await;
        assert_eq!(moved().await, 1, "the good one, in the same run");
        next += stuck + 1;
        app.let_postponed_be_due().await;
        over(&app, coupon, (next, 1)).await;
        next += 1;
        assert_eq!(moved().await, 1, "also when all others are due again");
        app.accept("order_history").await;
        app.let_postponed_be_due().await;
        let mut later = 0;
        for _ in 0..stuck.unsigned_abs().div_ceil(20) {
            later += moved().await;
        }
        assert_eq!(later, *stuck, "20 in a run");
        assert_eq!(app.postponed().await, [""; 0]);
    }
}

/// Asks for all unpaid orders of a coupon to be cancelled.
async fn cancel_all(app: &TestApp, coupon: CouponId) {
    let job = app.app.cancellations.ask(coupon, "k", "wrong price", &Actor::command_line()).await;
    assert!(matches!(job, Ok(Asked::Job(_))), "{job:?}");
}

#[tokio::test]
async fn cancellations() {
    let app = in_postgres_only(&[]).await;
    let batch = u32::try_from(CANCELLATIONS_BATCH).expect("a small number");
    let open = "SELECT count(*) FROM jobs WHERE finished_at IS NULL";
    let mut next = 1;
    for count in around(batch) {
        let coupon = app.create_flash(10_000).await;
        orders(&app, coupon, (next, count), ("", "")).await;
        next += count;
        cancel_all(&app, coupon).await;
        assert_eq!(i64::try_from(app.cancel_for_jobs().await).unwrap(), count, "in one run");
        assert_eq!((app.sold(coupon).await, app.number(open).await), (0, 0));
    }
    for stuck in &around(batch)[2..] {
        let bad = app.create_flash(10_000).await;
        let good = app.create_flash(10_000).await;
        orders(&app, bad, (next, *stuck), ("", "")).await;
        orders(&app, good, (next + stuck, 1), ("", "")).await;
        sold_is(&app, bad, 0).await;
        cancel_all(&app, bad).await;
        cancel_all(&app, good).await;
        assert_eq!(app.cancel_for_jobs().await, 1, "the good one, in the same run");
        assert_eq!(app.number(open).await, 1, "the job with stuck orders stays open");
        sold_is(&app, bad, *stuck).await;
        app.let_postponed_be_due().await;
        let mut cancelled = 0;
        for _ in 0..usize::try_from(*stuck).unwrap().div_ceil(20) {
            cancelled += app.cancel_for_jobs().await;
        }
        assert_eq!(i64::try_from(cancelled).unwrap(), *stuck, "20 in a run");
        assert_eq!((app.postponed().await, app.number(open).await), (vec![], 0));
        let counted = format!("SELECT cancelled FROM jobs WHERE coupon_id = {bad}");
        assert_eq!(app.number(&counted).await, *stuck, "each once");
        next += stuck + 1;
    }
}

/// Payments that go back, of orders that wait for it.
pub async fn refunding(app: &TestApp, coupon: CouponId, (first, count): (i64, i64)) {
    let columns =
        (", status, paid_at, pay_method, refunding_at", ", 'refunding', now(), 'balance', now()");
    orders(app, coupon, (first, count), columns).await;
    app.execute(&format!(
        "INSERT INTO payments (order_id, gateway, gateway_payment_id, method, amount_cents, status, refund_reason)
         SELECT {BY_HAND} + n, 'in_process', 'p' || n, 'balance', 1, 'refunding', 'asked_for'
         FROM generate_series({first}, {first} + {count} - 1) AS n"
    ))
    .await;
}

#[tokio::test]
async fn refunds() {
    let app = in_postgres_only(&[]).await;
    let mut next = 1;
    let batch = i64::from(REFUNDS_BATCH);
    for count in around(REFUNDS_BATCH) {
        let coupon = app.create_flash(1_000).await;
        refunding(&app, coupon, (next, count)).await;
        next += count;
        for left in [count, count - batch] {
            let refunded = i64::try_from(app.refund_payments().await).unwrap();
            assert_eq!(refunded, left.clamp(0, batch), "a batch in each run");
        }
        assert_eq!(app.sold(coupon).await, 0);
    }
    for stuck in &around(REFUNDS_BATCH)[2..] {
        let bad = app.create_flash(1_000).await;
        let good = app.create_flash(1_000).await;
        refunding(&app, bad, (next, *stuck)).await;
        refunding(&app, good, (next + stuck, 1)).await;
        sold_is(&app, bad, 0).await;
        let refunded = app.refund_payments().await + app.refund_payments().await;
        assert_eq!(refunded, 1, "once the stuck ones are put aside");
        app.let_postponed_be_due().await;
        refunding(&app, good, (next + stuck + 1, 1)).await;
        assert_eq!(app.refund_payments().await, 1, "also when all others are due again");
        sold_is(&app, bad, *stuck).await;
        app.let_postponed_be_due().await;
        let mut refunded = 0;
        for _ in 0..usize::try_from(*stuck).unwrap().div_ceil(20) {
            refunded += app.refund_payments().await;
        }
        assert_eq!(i64::try_from(refunded).unwrap(), *stuck, "20 in a run");
        assert_eq!(app.postponed().await, [""; 0]);
        next += stuck + 2;
    }
    // More payments than a run reads of a gateway elsewhere, which takes no requests and confirms nothing.
    let coupon = app.create_flash(1_000).await;
    refunding(&app, coupon, (next, batch + 1)).await;
    app.execute("UPDATE payments SET gateway = 'external' WHERE status = 'refunding'").await;
    refunding(&app, coupon, (next + batch + 1, 1)).await;
    assert_eq!(app.refund_payments().await, 1);
    let asked = "SELECT count(*) FROM payments WHERE refund_asked_at IS NOT NULL";
    assert_eq!(app.number(asked).await, 0, "there is no gateway to ask");
}

// ---- units and places on their way back ----

/// Further columns of closed orders, and of paid ones.
pub const CANCELLED: (&str, &str) = (", status, cancelled_at", ", 'cancelled', now()");
pub const PAID: (&str, &str) = (", status, paid_at, pay_method", ", 'paid', now(), 'balance'");

/// Returns of units, or of places, of users `first..first + count`, that have waited for a while.
pub async fn returns(app: &TestApp, coupon: CouponId, (first, count): (i64, i64), what: &str) {
    app.execute(&format!(
        "INSERT INTO stock_returns (order_id, coupon_id, user_id, what, updated_at)
         SELECT {BY_HAND} + n, {coupon}, n, '{what}', now() - interval '1 hour'
         FROM generate_series({first}, {first} + {count} - 1) AS n"
    ))
    .await;
}

fn sizes_of_returns() -> [i64; 6] {
    let part = i64::try_from(GIVE_BACK_UNITS_MAX).unwrap();
    let batch = i64::from(STOCK_RETURNS_BATCH);
    [0, 1, part, part + 1, batch, batch + 1]
}

#[tokio::test]
async fn units() {
    for count in sizes_of_returns() {
        let app = TestApp::start().await;
        let coupon = app.create_flash(count.max(1)).await;
        if count > 0 {
            app.sell_out_by_hand(coupon, count).await;
            orders(&app, coupon, (1, count), CANCELLED).await;
            returns(&app, coupon, (1, count), "unit").await;
        }
        assert_eq!(i64::try_from(app.give_back().await).unwrap(), count, "in one run");
        assert_eq!((app.stock(coupon).await, app.buyers_count(coupon).await), (count.max(1), 0));
    }
}

/// One unit of each of so many sales, and of one behind them while all of these are lost.
#[tokio::test]
async fn units_of_many_sales() {
    for count in around(u32::try_from(PASS_COUPONS_MAX).unwrap()) {
        let app = in_postgres_only(&[]).await;
        let many = sales(&app, count).await;
        let last = app.create_flash(1).await;
        Step::Load.run(&app).await;
        app.execute(&format!(
            "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
                 SELECT coupon_id, coupon_id, 'flash', 1, now(), 'cancelled', now() FROM flash_sales WHERE coupon_id <> {last};
             INSERT INTO stock_returns (order_id, coupon_id, user_id) SELECT id, coupon_id, user_id FROM orders"
        ))
        .await;
        assert_eq!(i64::try_from(app.give_back().await).unwrap(), count, "in one run");
        app.execute("UPDATE stock_returns SET done_at = NULL").await;
        for coupon in &many {
            app.lose_sale(*coupon).await;
        }
        let order = app.order(1, last).await;
        assert_eq!(app.cancel(1, order).await.status, 200);
        assert_eq!((app.give_back().await, app.stock(last).await), (1, 1), "behind {count}");
    }
}

#[tokio::test]
async fn places() {
    for count in sizes_of_returns() {
        let app = in_postgres_only(&["--unpaid-orders-max", "9", "--lanes", "2"]).await;
        let mut coupons = [app.create_flash(2_000).await, app.create_flash(2_000).await];
        coupons.sort_by_key(|coupon| coupon.get());
        let [first, second] = coupons;
        orders(&app, first, (1, count), PAID).await;
        returns(&app, first, (1, count), "place").await;
        for user in 1..=count {
            let key = app.keys().unpaid(first.lane());
            let list = (BY_HAND + user).to_string();
            let _: i64 = app.redis(&["HSET", &key, &user.to_string(), &list]).await;
        }
        assert_eq!(i64::try_from(app.give_back().await).unwrap(), count, "in one run");
        let key = app.keys().unpaid(first.lane());
        assert_eq!(app.redis::<i64>(&["HLEN", &key]).await, 0);
        // All of them stuck, in front of another lane's.
        app.execute("UPDATE stock_returns SET done_at = NULL").await;
        let _: String = app.redis(&["SET", &key, "junk"]).await;
        orders(&app, second, (5_000, 1), PAID).await;
        returns(&app, second, (5_000, 1), "place").await;
        assert_eq!(app.give_back().await, 1, "beside {count}");
        let _: i64 = app.redis(&["DEL", &key]).await;
        app.let_postponed_be_due().await;
        assert_eq!(i64::try_from(app.give_back().await).unwrap(), count);
    }
}

/// Discarded dead letters whose units can't be told to exist, and a closed order of the same sale behind them.
#[tokio::test]
async fn letters_in_front_of_units() {
    for letters in [1, i64::from(STOCK_RETURNS_BATCH), i64::from(STOCK_RETURNS_BATCH) + 1] {
        let app = in_postgres_only(&["--sold-out-memory-ms", "0"]).await;
        let coupon = app.create_flash(2_000).await;
        orders(&app, coupon, (1, letters), CANCELLED).await;
        returns(&app, coupon, (1, letters), "unit").await;
        app.execute(&format!(
            "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
             SELECT 0, '1-' || user_id, '{{}}', 'oversold', '', coupon_id, user_id, order_id, now() FROM stock_returns
             WHERE coupon_id = {coupon}"
        ))
        .await;
        // Redis lacks some other buyers of the sale, so the units of the letters can't be told to exist.
        let mut shards = app.shard_keys(coupon).await;
        let own = app.shard_of(coupon, 5_001).await;
        let other = app.shard_of(coupon, 5_002).await;
        shards.retain(|key| *key != own && *key != other);
        let hidden = format!("{}:hidden", shards[0]);
        let _: String = app.redis(&["RENAME", &shards[0], &hidden]).await;
        // The letters are tried again and again, and the others never wait for them.
        for user in [5_001, 5_002, 5_001, 5_002] {
            let order = app.order(user, coupon).await;
            assert_eq!(app.cancel(user, order).await.status, 200);
            let back = app.give_back().await + app.give_back().await;
            assert_eq!((back, app.stock(coupon).await), (1, 2_000), "beside {letters} letters");
        }
        let noted = app.postponed().await;
        assert!(noted.len() == 1 && noted[0].starts_with("withdrawals "), "{noted:?}");
        // Once the cause has gone, all returns end.
        let _: String = app.redis(&["RENAME", &hidden, &shards[0]]).await;
        app.let_postponed_be_due().await;
        assert_eq!(i64::try_from(app.give_back().await).unwrap(), letters);
        assert_eq!(app.postponed().await, [""; 0]);
    }
}

// ---- sales ----

/// Sales that are open, in Postgres only.
pub async fn sales(app: &TestApp, count: i64) -> Vec<CouponId> {
    let ids: Vec<i64> = sqlx::query_scalar(
        "WITH new AS (INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
             SELECT nextval('coupon_sequence') << 10, 'flash', 't', '', '', 1, 2 FROM generate_series(1, $1)
             RETURNING id)
         INSERT INTO flash_sales (coupon_id, opens_at, closes_at, total)
         SELECT id, now() - interval '1 h', now() + interval '1 h', 3 FROM new RETURNING coupon_id",
    )
    .bind(count)
    .fetch_all(&app.app.stores.pool)
    .await
    .expect("Postgres does it");
    let mut ids = ids;
    ids.sort_unstable();
    ids.into_iter().map(|id| CouponId::new(id).expect("an id")).collect()
}

/// The passes over sales, in the order of a sale's life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    Load,
    Changes,
    Revisions,
    End,
    ChangesAgain,
    Archive,
}

pub const LIFE: [Step; 6] =
    [Step::Load, Step::Changes, Step::Revisions, Step::End, Step::ChangesAgain, Step::Archive];

impl Step {
    /// Makes these sales ready for the pass; with the `broken` ones the pass can't deal.
    pub async fn prepare(self, app: &TestApp, sales: &[CouponId], broken: bool) {
        let field = |field, value| ["HSET", field, value];
        for coupon in sales {
            let key = app.keys().coupon(*coupon);
            match (self, broken) {
                (Self::Load, true) => {
                    let _: i64 = app.redis(&["LPUSH", &key, "x"]).await;
                }
                (Self::Revisions, _) => {
                    let _: i64 = app.redis(&["HSET", &key, "revision", "0"]).await;
                }
                _ => {}
            }
            if broken && ![Self::Load, Self::End].contains(&self) {
                let [command, name, value] = match self {
                    Self::Archive => field("stock", "few"),
                    _ => field("layout", "9"),
                };
                let _: i64 = app.redis(&[command, &key, name, value]).await;
            }
        }
        if self == Self::End {
            app.execute(
                "UPDATE flash_sales SET opens_at = now() - interval '2 h', closes_at = now() - interval '1 h';
                 UPDATE coupons SET revision = revision + 1",
            )
            .await;
        }
    }

    /// One run. Returns the number of sales that it has dealt with.
    pub async fn run(self, app: &TestApp) -> i64 {
        let ahead = Duration::from_secs(3_600);
        let done = match self {
            Self::Load => app.app.loader.pass(ahead).bounded().await,
            Self::Changes | Self::ChangesAgain => app.app.coupon_changes.pass().bounded().await,
            Self::Revisions => app.app.coupon_changes.catch_up().bounded().await,
            Self::End | Self::Archive => app.app.archive.pass().bounded().await,
        };
        let done = i64::try_from(done.expect("both stores answer")).expect("a few");
        match self {
            Self::End => app.number("SELECT count(*) FROM coupons WHERE state = 'ended'").await,
            _ => done,
        }
    }
}

async fn keys_of_sales(app: &TestApp) -> i64 {
    let script = "local found = 0
        for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
            if string.find(key, 'coupon') or string.find(key, 'buyers') then found = found + 1 end
        end
        return found";
    let (prefix, _) = app
        .keys()
        .additions_channel()
        .rsplit_once(':')
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .expect("a prefix");
    app.redis(&["EVAL", script, "0", &format!("{prefix}:*")]).await
}

#[tokio::test]
async fn sales_from_their_load_to_their_end() {
    for count in around(u32::try_from(PASS_COUPONS_MAX).unwrap()) {
        let app = TestApp::configured(&["--archive-after-ms", "0"]).await;
        let sales = sales(&app, count).await;
        for step in LIFE {
            step.prepare(&app, &sales, false).await;
            assert_eq!(step.run(&app).await, count, "{step:?} of {count} in one run");
        }
        assert_eq!(keys_of_sales(&app).await, 0);
        assert_eq!(
            app.number("SELECT count(*) FROM flash_sales WHERE removed_at IS NULL").await,
            0
        );
        for step in LIFE.into_iter().filter(|step| *step != Step::End) {
            assert_eq!(step.run(&app).await, 0, "{step:?}: nothing is left");
        }
    }
}

#[tokio::test]
async fn a_sale_behind_others_that_are_stuck() {
    for stuck in &around(u32::try_from(PASS_COUPONS_MAX).unwrap())[2..] {
        for at in [Step::Load, Step::Changes, Step::Revisions, Step::Archive] {
            let app = in_postgres_only(&["--archive-after-ms", "0"]).await;
            let bad = sales(&app, *stuck).await;
            let good = sales(&app, 1).await;
            let all = [&bad[..], &good].concat();
            for step in LIFE.into_iter().take_while(|step| *step != at) {
                step.prepare(&app, &all, false).await;
                assert_eq!(step.run(&app).await, stuck + 1);
            }
            at.prepare(&app, &all, false).await;
            at.prepare(&app, &bad, true).await;
            // Changes count each sale that was found to be behind, the other passes those that they have dealt with.
            let found = if at == Step::Revisions { stuck + 1 } else { 1 };
            assert_eq!(at.run(&app).await, found, "{at:?} behind {stuck}, in the same run");
            let is_done = match at {
                Step::Load => "loaded_at IS NOT NULL",
                Step::Archive => "removed_at IS NOT NULL",
                _ => "applied_revision = (SELECT revision FROM coupons WHERE id = coupon_id)",
            };
            let done = format!(
                "SELECT count(*) FROM flash_sales WHERE coupon_id = {} AND {is_done}",
                good[0]
            );
            assert_eq!(app.number(&done).await, 1, "{at:?} behind {stuck}");
            let [revision] = app.in_redis(good[0], ["revision"]).await;
            assert!(at != Step::Revisions || revision == "1", "{revision}");
        }
    }
}

// ---- the order log ----

const BATCH: i64 = 5;

fn worker(app: &TestApp) -> LaneWorker {
    let settings =
        WorkerSettings { take_over_idle: Duration::ZERO, ..WorkerSettings::from(&app.config) };
    LaneWorker::new(app.app.clone(), calls(lane()), consumer_name(), settings)
}

async fn small_batches() -> (TestApp, CouponId) {
    let app = TestApp::configured(&["--batch-orders-max", &BATCH.to_string()]).await;
    let coupon = app.create_flash(100).await;
    (app, coupon)
}

async fn claims(app: &TestApp, coupon: CouponId, users: std::ops::RangeInclusive<i64>) {
    for user in users {
        assert_eq!(app.claim(user, coupon).await.status, 202);
    }
}

#[tokio::test]
async fn entries() {
    for count in around(u32::try_from(BATCH).unwrap()) {
        let (app, coupon) = small_batches().await;
        let mut worker = worker(&app);
        worker.ensure_group().bounded().await.unwrap();
        claims(&app, coupon, 1..=count).await;
        let mut sizes = Vec::new();
        bounded("the log is empty", async {
            while let entries @ 1.. = worker.write_pass().bounded().await.unwrap().positions {
                sizes.push(i64::try_from(entries).unwrap());
            }
        })
        .await;
        let expected = [BATCH.min(count), count - BATCH].into_iter().filter(|size| *size > 0);
        assert_eq!(sizes, expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn entries_that_were_left_behind() {
    let more = [3 * BATCH + 1];
    for count in around(u32::try_from(BATCH).unwrap()).into_iter().chain(more) {
        let (app, coupon) = small_batches().await;
        let dead = worker(&app);
        dead.log().ensure_group().bounded().await.unwrap();
        claims(&app, coupon, 1..=count).await;
        let held = dead.log().read_new(100).await.unwrap().len();
        // More unread entries come.
        claims(&app, coupon, 51..=52).await;
        let mut worker = worker(&app);
        worker.ensure_group().bounded().await.unwrap();
        assert_eq!(worker.recover_pass().bounded().await.unwrap(), held, "in one run");
        assert_eq!(i64::try_from(write_all(&mut worker).await.inserted).unwrap(), count + 2);
    }
}

/// Entries whose locks are held elsewhere, and a good one behind them: unread, or handed out before as they were.
#[tokio::test]
async fn entries_behind_others_that_are_stuck() {
    for stuck in [BATCH, BATCH + 1, 2 * BATCH + 1] {
        for handed_out in [false, true] {
            let (app, coupon) = small_batches().await;
            let mut worker = worker(&app);
            worker.ensure_group().bounded().await.unwrap();
            let other = app.another_instance().await;
            let locks = (1..=stuck).map(|n| app.keys().order_lock(lane(), user(n)));
            let guard = other.locks.try_acquire_batch(locks.collect()).await.unwrap();
            claims(&app, coupon, 1..=stuck + 1).await;
            if handed_out {
                worker.log().read_new(100).await.unwrap();
            }
            let rows = async || app.number("SELECT count(*) FROM orders").await;
            let what = format!("the one behind {stuck} is a row; handed out: {handed_out}");
            eventually(&what, async || {
                worker.write_pass().bounded().await.unwrap();
                rows().await == 1
            })
            .await;
            guard.release().await;
            eventually("all are rows", async || {
                worker.write_pass().bounded().await.unwrap();
                rows().await == stuck + 1
            })
            .await;
        }
    }
}

/// More entries than one statement puts aside, in one batch.
#[tokio::test]
async fn entries_that_cannot_be_read() {
    for count in [0, 1, 1_000, 1_001] {
        let app = TestApp::configured(&["--batch-orders-max", "2000"]).await;
        let coupon = app.create_flash(1).await;
        append(&app, lane(), count).await;
        claims(&app, coupon, 1..=1).await;
        let mut worker = worker(&app);
        worker.ensure_group().bounded().await.unwrap();
        let report = worker.write_pass().bounded().await.unwrap();
        assert_eq!((report.dead_letters, report.inserted), (usize::try_from(count).unwrap(), 1));
    }
}

/// Appends entries that aren't claims.
async fn append(app: &TestApp, lane: Lane, count: i64) {
    let script = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'x', 'y') end return 1";
    let _: i64 = app.redis(&["EVAL", script, "1", &app.log(lane), &count.to_string()]).await;
}

#[tokio::test]
async fn trimming() {
    // A node of Redis holds 100 entries, and a call trims some 10,000.
    for count in [0, 1, 100, 101, 10_100, 20_300] {
        let app = in_postgres_only(&[]).await;
        let mut worker = worker(&app);
        worker.ensure_group().bounded().await.unwrap();
        append(&app, lane(), count).await;
        let key = app.log(lane());
        assert_eq!(worker.tidy_up_pass().bounded().await.unwrap(), 0, "no consumer has read them");
        let _: String = app.redis(&["XGROUP", "SETID", &key, "order-writers", "$"]).await;
        worker.tidy_up_pass().bounded().await.unwrap();
        let left: i64 = app.redis(&["XLEN", &key]).await;
        assert!(left <= 100, "{left} of {count} are left after one run");
    }
}

// ---- lists and comparisons ----

/// Lists over HTTP: path, name of the items, and a statement that makes so many.
const LISTS: [(&str, &str, &str); 5] = [
    ("/v1/dead-letters", "dead_letters", "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail)
        SELECT 0, '1-' || n, '{}', 'undecodable', '' FROM generate_series(1, {count}) AS n"),
    ("/v1/postponed", "postponed", "INSERT INTO postponed (pass, item, error, next_try_at)
        SELECT 'expiry', n, '', now() FROM generate_series(1, {count}) AS n"),
    ("/v1/coupons", "coupons", "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
        SELECT nextval('coupon_sequence') << 10, 'regular', 't', '', '', 1, 2 FROM generate_series(1, {count})"),
    ("/v1/orders", "orders", "INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, status, cancelled_at)
        SELECT n, 1024, 'regular', 1, now(), 'cancelled', now() FROM generate_series(1, {count}) AS n"),
    ("/v1/reconcile/runs", "runs", "INSERT INTO reconcile_runs (asked_by) SELECT 'api' FROM generate_series(1, {count})"),
];

#[tokio::test]
async fn lists() {
    for (path, name, insert) in LISTS {
        for count in around(100) {
            let app = in_postgres_only(&[]).await;
            app.execute(&insert.replace("{count}", &count.to_string())).await;
            let mut listed = 0;
            let mut pages = 0;
            let mut cursor = String::new();
            loop {
                let page = app.get(&format!("{path}?limit=100{cursor}"), &app.admin_token()).await;
                assert_eq!(page.status, 200, "{path}: {page:?}");
                let items =
                    page.body[name].as_array().unwrap_or_else(|| panic!("{path}: {page:?}"));
                listed += i64::try_from(items.len()).unwrap();
                pages += 1;
                match &page.body["next_cursor"] {
                    Value::String(next) => cursor = format!("&cursor={next}"),
                    _ => break,
                }
                assert!(pages < 10, "{path} never ends");
            }
            assert_eq!((listed, pages), (count, if count > 100 { 2 } else { 1 }), "{path}");
        }
    }
}

/// Makes as many findings of a kind: more than fit on a page of either store.
#[tokio::test]
async fn findings() {
    for (code, has_buyers, rows) in [
        ("order_lost", true, None),
        ("buyer_missing", false, Some(PAID)),
        ("not_given_back", true, Some(CANCELLED)),
        // Nothing is wrong.
        ("", true, Some(PAID)),
    ] {
        for count in [1, 1_000, 1_001] {
            let app = in_postgres_only(&[]).await;
            let coupon = app.create_flash(count).await;
            if has_buyers {
                app.sell_out_by_hand(coupon, count).await;
            }
            if let Some(columns) = rows {
                orders(&app, coupon, (1, count), columns).await;
            }
            let report = app.reconcile().await;
            let found = report.disagreements.iter().filter(|found| found.code() == code).count();
            let expected = if code.is_empty() { 0 } else { count };
            assert_eq!(i64::try_from(found).unwrap(), expected, "{code}");
            assert_eq!(report.disagreements.len(), found, "{code}: nothing else");
        }
    }
}

/// Claims on their way to Postgres: unread ones, pending ones, and pending ones that the log has lost.
#[tokio::test]
async fn entries_in_flight() {
    for count in [1, 1_000, 1_001] {
        let app = in_postgres_only(&[]).await;
        let coupon = app.create_flash(count).await;
        app.sell_out_by_hand(coupon, count).await;
        let script = "for n = 1, ARGV[1] do
                local order = string.sub(ARGV[3], 1, -5) .. string.format('%04d', 6976 + n)
                redis.call('XADD', KEYS[1], '*', 'coupon', ARGV[2], 'first', n, 'claims', n .. ' ' .. order)
            end
            return redis.call('HINCRBY', KEYS[2], 'promised', ARGV[1])";
        let log = app.log(lane());
        let coupon_text = coupon.to_string();
        let (of_lane, count_text) = (app.keys().lane(lane()), count.to_string());
        let words =
            ["EVAL", script, "2", &log, &of_lane, &count_text, &coupon_text, &BY_HAND.to_string()];
        let _: i64 = app.redis(&words).await;
        let worker = worker(&app);
        worker.log().ensure_group().bounded().await.unwrap();
        let agrees = async |when: &str| {
            let report = app.reconcile().await;
            let first = report.disagreements.first();
            assert!(first.is_none(), "{when} {count}: {first:?}");
            assert_eq!(i64::try_from(report.in_flight).unwrap(), count, "{when}");
        };
        agrees("unread").await;
        assert_eq!(
            i64::try_from(worker.log().read_new(2_000).await.unwrap().len()).unwrap(),
            count
        );
        agrees("pending").await;
        let _: i64 = app.redis(&["XTRIM", &log, "MAXLEN", "0"]).await;
        let found = app.reconcile().await.disagreements;
        for code in ["pending_deleted", "order_lost"] {
            let named = found.iter().filter(|found| found.code() == code).count();
            assert_eq!(i64::try_from(named).unwrap(), count, "{code}");
        }
    }
}

/// Pages of live orders, and of all rows: one, and one row more.
#[tokio::test]
async fn counts_of_orders() {
    for count in [10_000, 10_001] {
        let app = in_postgres_only(&[]).await;
        let coupon = app.create_flash(count).await;
        app.sell_out_by_hand(coupon, count).await;
        orders(&app, coupon, (1, count), PAID).await;
        assert!(counted(&app, count).await, "also in Redis");
    }
    let app = in_postgres_only(&[]).await;
    app.execute("SET statement_timeout = '60s'").await;
    let page = 100_000;
    let coupon = app.create_flash(100_001).await;
    orders(&app, coupon, (1, page), PAID).await;
    counted(&app, page).await;
    orders(&app, coupon, (page + 1, 1), PAID).await;
    counted(&app, page + 1).await;
}

/// Fails if the comparison counts others than these; returns whether Redis has the same.
async fn counted(app: &TestApp, count: i64) -> bool {
    let report = app.reconcile().await;
    assert_eq!(report.orders["paid"], count);
    assert_eq!(i64::try_from(report.sales[0].live_orders).unwrap(), count);
    report.sales[0].identical
}
