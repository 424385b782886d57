//! Orders and what belongs to them in Postgres, query by query: the rows that each finds, and those that it leaves alone.

use flash_sale::kit::postgres;
use flash_sale::sale::ids::{CouponId, OrderId, UserId};
use flash_sale::sale::log::LoggedClaim;
use flash_sale::sale::order::insert::{NotWritten, Written};
use flash_sale::sale::retention::months::{self, Month};
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction, raw_sql};
use tokio_util::sync::CancellationToken;

use crate::support::{TestApp, lane, sale, user};

// Moves of an order, and expiry.
mod moves;

// Jobs that cancel orders.
mod jobs;

// Rows of claims.
mod insert;

// Orders as they are read and listed.
mod reads;

// Searches in the orders and in the history.
mod search;

// The way into the history, and back.
mod history;

// A user's rows, erased and exported, and records that are forgotten.
mod past;

// Live orders, for comparisons and recoveries.
mod live;

// Running counts of orders.
mod counts;

// Units and places on their way back.
mod returns;

// Entries that could not become orders.
mod dead_letters;

fn pool(app: &TestApp) -> &PgPool {
    &app.app.stores.pool
}

async fn begin(app: &TestApp) -> Transaction<'static, Postgres> {
    postgres::begin(pool(app)).await.expect("Postgres answers")
}

fn order(id: i64) -> OrderId {
    OrderId::new(id).expect("a positive number")
}

/// Numbers of a list, sorted where its order doesn't matter.
fn sorted<T: Ord>(list: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list: Vec<T> = list.into_iter().collect();
    list.sort();
    list
}

fn id(order: OrderId) -> i64 {
    order.get()
}

fn user_id(user: UserId) -> i64 {
    user.get()
}

/// A dead letter that a test writes by hand: number of its coupon, user, order, and whether it is open.
type LetterRow = (i64, i64, i64, bool);

/// Writes letters by hand, whose ids are 1, 2, 3 and so on.
async fn write_letters(app: &TestApp, letters: &[LetterRow]) {
    let row = |(n, (coupon, user, order, is_open)): (usize, &LetterRow)| {
        format!("({n}, {coupon}::bigint << 10, {user}, {order}, {is_open})")
    };
    let rows: Vec<String> = (1..).zip(letters).map(row).collect();
    app.execute(&format!(
        "INSERT INTO dead_letters (lane, entry_id, payload, reason, detail, coupon_id, user_id, order_id, resolved_at)
         SELECT 0, n || '-1', '{{}}', 'conflict', 'why', coupon, buyer, order_id,
                CASE WHEN NOT is_open THEN '2024-01-01T00:00:00Z'::timestamptz END
         FROM (VALUES {}) AS letter (n, coupon, buyer, order_id, is_open) ORDER BY n",
        rows.join(", ")
    ))
    .await;
}

/// Moves orders into the history by hand, without what belongs to them.
async fn move_rows(app: &TestApp, orders: &[i64]) {
    for order in orders {
        months::make(pool(app), Month::of_order(*order)).await.expect("Postgres does it");
        app.execute(&format!(
            "WITH gone AS (DELETE FROM orders WHERE id = {order} RETURNING *)
             INSERT INTO order_history SELECT * FROM gone"
        ))
        .await;
    }
}

/// The claim of an order: its id, the number of its coupon, and its user.
fn claim(id: i64, coupon: i64, of: i64) -> LoggedClaim {
    LoggedClaim::without_entry(sale(coupon), user(of), order(id))
}

/// Writes a batch as the worker of the lane does.
async fn write(app: &TestApp, claims: &[LoggedClaim]) -> Result<Written, NotWritten> {
    app.app.orders.write((lane(), 1), claims, &CancellationToken::new()).await
}

/// Inserts an unpaid order by hand, of the user of the same number. False if another transaction is about to insert one
/// with this id.
async fn insert_by_hand(
    tx: &mut Transaction<'static, Postgres>,
    id: i64,
    coupon: CouponId,
) -> bool {
    let row = format!(
        "SET LOCAL lock_timeout = '2s';
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at) VALUES ({id}, {coupon}, 'flash', {id}, now())"
    );
    raw_sql(AssertSqlSafe(row)).execute(&mut **tx).await.is_ok()
}
