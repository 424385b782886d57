//! All data of a user, as JSON: rows as Postgres has them, and what Redis has.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::in_redis::{self, Place, UnpaidList};
use crate::kit::postgres;
use crate::sale::audit::{self, AuditEntry, Kind};
use crate::sale::ids::UserId;
use crate::sale::order::past::export::{self, Rows};
use crate::sale::payment::past;
use crate::sale::receipts::table as receipts;
use crate::sale::reconcile::runs;
use crate::sale::recovery::records;
use crate::sale::{Failure, Stores};

/// Columns of ids whose names don't end in `_id`.
const IDS: [&str; 2] = ["id", "clerk"];

/// All data of a user. Rows have the names and values of their columns; ids are strings.
#[derive(Debug, Serialize)]
pub struct Export {
    /// The user.
    pub user_id: UserId,
    /// Time at which Postgres was read.
    pub exported_at: DateTime<Utc>,
    /// Rows of `orders`.
    pub orders: Vec<Value>,
    /// Rows of `redemptions`, of these orders.
    pub redemptions: Vec<Value>,
    /// Rows of `stock_returns`.
    pub stock_returns: Vec<Value>,
    /// Rows of `dead_letters`.
    pub dead_letters: Vec<Value>,
    /// Rows of `payments`, of these orders and letters.
    pub payments: Vec<Value>,
    /// Rows of `opened_payments`, of these orders.
    pub opened_payments: Vec<Value>,
    /// Rows of `receipts`.
    pub receipts: Vec<Value>,
    /// Changes by the staff that concern these orders, letters and payments.
    pub changes: Vec<AuditEntry>,
    /// Changes that the user made as a member of the staff.
    pub changes_by_user: Vec<AuditEntry>,
    /// Findings and repairs of comparisons that name the user.
    pub findings: Vec<Value>,
    /// Claims that recoveries could not keep.
    pub lost_claims: Vec<Value>,
    /// Places among the buyers of sales in Redis.
    places_in_redis: Vec<Place>,
    /// Lists of unpaid orders in Redis.
    unpaid_in_redis: Vec<UnpaidList>,
}

/// Reads all data of a user. The ids of orders in it are those inside.
pub async fn export(stores: &Stores, user: UserId) -> Result<Export, Failure> {
    let pool = &stores.pool;
    let exported_at = postgres::time(pool).await?;
    let places_in_redis = in_redis::places(stores, user).await?;
    let unpaid_in_redis = in_redis::unpaid(stores, user).await?;
    let mut tx = postgres::begin(pool).await?;
    let Rows { orders, redemptions, stock_returns, dead_letters } =
        export::rows(&mut tx, user).await?;
    let letters = numbers(&dead_letters, "id");
    let mut promised = numbers(&dead_letters, "order_id");
    promised.extend(places_in_redis.iter().map(|place| place.order_id.get()));
    let unwritten = export::unwritten(&mut tx, &promised).await?;
    let claims = [numbers(&orders, "id"), unwritten].concat();
    let (payments, opened_payments) = past::rows(&mut tx, &claims).await?;
    let subjects = [
        (Kind::Order, numbers(&orders, "id")),
        (Kind::DeadLetter, letters),
        (Kind::Payment, numbers(&payments, "id")),
    ];
    let changes = audit::about(&mut tx, &subjects).await?;
    let changes_by_user = audit::by(&mut tx, user).await?;
    tx.commit().await?;
    Ok(Export {
        user_id: user,
        exported_at,
        orders: with_ids_as_text(orders),
        redemptions: with_ids_as_text(redemptions),
        stock_returns: with_ids_as_text(stock_returns),
        dead_letters: with_ids_as_text(dead_letters),
        payments: with_ids_as_text(payments),
        opened_payments: with_ids_as_text(opened_payments),
        receipts: with_ids_as_text(receipts::rows_of(pool, user).await?),
        changes,
        changes_by_user,
        findings: with_ids_as_text(runs::naming(pool, user).await?),
        lost_claims: with_ids_as_text(records::lost_of(pool, user).await?),
        places_in_redis,
        unpaid_in_redis,
    })
}

/// The numbers in this column.
fn numbers(rows: &[Value], column: &str) -> Vec<i64> {
    rows.iter().filter_map(|row| row[column].as_i64()).collect()
}

/// JavaScript rounds numbers above 2^53.
fn with_ids_as_text(mut rows: Vec<Value>) -> Vec<Value> {
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        for (name, value) in row.iter_mut() {
            if (IDS.contains(&name.as_str()) || name.ends_with("_id")) && value.is_number() {
                *value = Value::String(value.to_string());
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_are_strings_and_amounts_stay_numbers() {
        let row = json!({"id": i64::MAX, "order_id": 7, "clerk": null, "pay_cents": 5, "gateway_payment_id": "g"});
        let text = json!({"id": "9223372036854775807", "order_id": "7", "clerk": null, "pay_cents": 5, "gateway_payment_id": "g"});
        assert_eq!(numbers(std::slice::from_ref(&row), "order_id"), [7]);
        assert_eq!(with_ids_as_text(vec![row]), [text]);
    }
}
