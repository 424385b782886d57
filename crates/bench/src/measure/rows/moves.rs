//! Moves from unpaid to paid: how many stay on their page, and what each costs.
//!
//! An update is heap-only ("HOT") if it changes no column of an index, of its condition included, and its page has room.
//! Such an update touches no index.

use serde::Serialize;
use sqlx::Connection;

use super::claims::order;
use super::shapes::{MOVED, Shape};
use super::table::{Cost, Table};
use super::ways::run;
use crate::arguments::rows::Way;
use crate::service::target::Target;

/// Shares of a page that inserts fill, in percent.
const FILL_FACTORS: [u32; 3] = [100, 90, 80];
/// Rows in a batch, and moves in a transaction.
const BATCH: usize = 1_000;

/// Moves on one shape of the table.
#[derive(Debug, Serialize)]
pub struct Moves {
    pub shape: &'static str,
    pub fill_factor: u32,
    /// Share of the moves that were heap-only.
    pub hot: f64,
    pub insert: Cost,
    pub cost: Cost,
    /// Bytes of the table and its indexes for an order, behind the moves.
    pub bytes: f64,
}

/// Measures all shapes and fill factors.
pub async fn measure(target: &Target, orders: u64) -> anyhow::Result<Vec<Moves>> {
    let mut all = Vec::new();
    for (at, shape) in MOVED.into_iter().enumerate() {
        let mut table = Table::create(target, &format!("moves_{at}"), shape).await?;
        for fill_factor in FILL_FACTORS {
            table.empty().await?;
            all.push(moves(&mut table, shape, fill_factor, orders).await?);
        }
        table.remove(target).await?;
    }
    Ok(all)
}

async fn moves(
    table: &mut Table,
    shape: Shape,
    fill_factor: u32,
    orders: u64,
) -> anyhow::Result<Moves> {
    run(&mut table.connection, &format!("ALTER TABLE orders SET (fillfactor = {fill_factor})"))
        .await?;
    let first = table.next;
    let insert = table.write(Way::UnnestInList, orders, BATCH).await?;
    let mut hot = 0;
    let cost = table
        .measure(orders, async |table| {
            let mut number = first;
            while number < first + orders {
                let last = (number + BATCH as u64).min(first + orders);
                hot += pay(table, number..last).await?;
                number = last;
            }
            Ok(())
        })
        .await?;
    let bytes: i64 = sqlx::query_scalar("SELECT pg_total_relation_size('orders')")
        .fetch_one(&mut table.connection)
        .await?;
    let share = |all: i64| all as f64 / orders as f64;
    Ok(Moves { shape: shape.name, fill_factor, hot: share(hot), insert, cost, bytes: share(bytes) })
}

/// Makes orders paid, one at a time, in one transaction. Returns the number of heap-only updates.
async fn pay(table: &mut Table, numbers: std::ops::Range<u64>) -> anyhow::Result<i64> {
    let mut tx = table.connection.begin().await?;
    for number in numbers {
        let query = sqlx::query(
            "UPDATE orders SET status = 'paid', paid_at = now(), pay_method = $2, updated_at = now()
             WHERE id = $1 AND status = 'unpaid'",
        );
        let paid = query.bind(order(number)).bind("balance").execute(&mut *tx).await?;
        anyhow::ensure!(paid.rows_affected() == 1, "an order is not there");
    }
    let hot = "SELECT pg_stat_get_xact_tuples_hot_updated('orders'::regclass)";
    let hot = sqlx::query_scalar(hot).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(hot)
}
