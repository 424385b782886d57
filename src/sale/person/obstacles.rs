//! Obstacles to erasing a user, in sentences.

use sqlx::PgConnection;

use crate::base::limits;
use crate::sale::ids::UserId;

/// Sentences about what keeps this user from being erased, in the transaction that has locked these orders.
pub(super) async fn of(
    tx: &mut PgConnection,
    user: UserId,
    orders: &[i64],
) -> sqlx::Result<Vec<String>> {
    let most = i64::from(limits::OBSTACLES_NAMED_MAX);
    let mut found = live_orders(&mut *tx, orders, most).await?;
    found.extend(letters(&mut *tx, user, most).await?);
    found.extend(returns(&mut *tx, orders, most).await?);
    found.extend(money(&mut *tx, orders, most).await?);
    found.extend(receipts(tx, user, most).await?);
    Ok(found)
}

async fn live_orders(
    tx: &mut PgConnection,
    orders: &[i64],
    most: i64,
) -> sqlx::Result<Vec<String>> {
    let rows = sqlx::query!(
        r#"SELECT id, coupon_id, status FROM orders
           WHERE id = ANY($1)
             AND (status IN ('unpaid', 'paid', 'refunding')
                  OR status = 'redeemed' AND EXISTS (
                      SELECT FROM flash_sales WHERE flash_sales.coupon_id = orders.coupon_id
                        AND loaded_at IS NOT NULL AND removed_at IS NULL))
           ORDER BY id LIMIT $2"#,
        orders,
        most,
    );
    let sentence = |id: i64, coupon: i64, status: &str| match status {
        "redeemed" => format!(
            "Order {id} is redeemed, and Redis still has its sale: coupon {coupon} leaves Redis --archive-after-ms after its end."
        ),
        "refunding" => format!("Order {id} is refunding: its gateway has not confirmed yet."),
        status => {
            format!("Order {id} is {status}: it has to be cancelled, redeemed or refunded first.")
        }
    };
    let rows = rows.fetch_all(tx).await?.into_iter();
    Ok(rows.map(|row| sentence(row.id, row.coupon_id, &row.status)).collect())
}

async fn letters(tx: &mut PgConnection, user: UserId, most: i64) -> sqlx::Result<Vec<String>> {
    let letters = sqlx::query_scalar!(
        "SELECT id FROM dead_letters WHERE user_id = $1 AND resolved_at IS NULL ORDER BY id LIMIT $2",
        user.get(),
        most,
    );
    let sentence = |id| format!("Dead letter {id} is open: retry or discard it.");
    Ok(letters.fetch_all(tx).await?.into_iter().map(sentence).collect())
}

async fn returns(tx: &mut PgConnection, orders: &[i64], most: i64) -> sqlx::Result<Vec<String>> {
    let orders = sqlx::query_scalar!(
        "SELECT order_id FROM stock_returns WHERE order_id = ANY($1) AND done_at IS NULL
         ORDER BY order_id LIMIT $2",
        orders,
        most,
    );
    let sentence = |id| format!("Order {id} is on its way out of Redis: try again in a moment.");
    Ok(orders.fetch_all(tx).await?.into_iter().map(sentence).collect())
}

async fn money(tx: &mut PgConnection, orders: &[i64], most: i64) -> sqlx::Result<Vec<String>> {
    let payments = sqlx::query!(
        "SELECT id, status FROM payments
         WHERE order_id = ANY($1) AND status IN ('held', 'refunding') ORDER BY id LIMIT $2",
        orders,
        most,
    );
    let payments = payments.fetch_all(&mut *tx).await?.into_iter();
    let waits = payments.map(|row| {
        format!("Payment {} is {}: `flash-sale payments` says what to do.", row.id, row.status)
    });
    let mut found: Vec<String> = waits.collect();
    let opened = sqlx::query_scalar!(
        "SELECT order_id FROM opened_payments
         WHERE order_id = ANY($1) AND closed_at IS NULL ORDER BY id LIMIT $2",
        orders,
        most,
    );
    let asked =
        |id| format!("The gateway is still asked about a payment that was opened for order {id}.");
    found.extend(opened.fetch_all(tx).await?.into_iter().map(asked));
    Ok(found)
}

async fn receipts(tx: &mut PgConnection, user: UserId, most: i64) -> sqlx::Result<Vec<String>> {
    let orders = sqlx::query_scalar!(
        "SELECT order_id FROM receipts WHERE user_id = $1 ORDER BY order_id LIMIT $2",
        user.get(),
        most,
    );
    let sentence = |id| format!("A recovery has not settled the promise of order {id} yet.");
    Ok(orders.fetch_all(tx).await?.into_iter().map(sentence).collect())
}
