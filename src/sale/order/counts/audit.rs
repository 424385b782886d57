//! The slow full count: one coupon at a time, in one process at a time.
//!
//! The mark in Postgres moves on before a coupon is counted, and holds off all processes until the count has ended or
//! its time is over. So a process may die in a count: the next one goes on with the next coupon. A coupon that can't be
//! counted stops no other, and is counted in the next round.

use std::time::Duration;

use tokio::time::Instant;

use super::OrderCounts;
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::coupon::stock;
use crate::sale::ids::CouponId;
use crate::sale::pass::Pass;
use crate::sale::postponed;

/// Time of a count to the pause behind it: the audit takes at most a twentieth of the time.
const PAUSES: u32 = 20;

impl OrderCounts {
    /// Counts the orders of the next coupon, if that is due, and corrects its counts. Returns the coupon.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer, or takes more than [`limits::ORDER_AUDIT_TIMEOUT`].
    pub async fn audit_next(&self) -> sqlx::Result<Option<CouponId>> {
        let Some(coupon) = self.next_coupon().await? else {
            return Ok(None);
        };
        let began = Instant::now();
        let wrong = self.correct(coupon).await?;
        if !wrong.is_empty() {
            self.metrics.order_counts_corrected.increment(1);
            tracing::error!(%coupon, ?wrong, "ALARM: the running counts of a coupon's orders were wrong, and are corrected");
        }
        self.rest(PAUSES * began.elapsed(), !wrong.is_empty()).await?;
        Ok(Some(coupon))
    }

    /// `None` if no count is due, or all coupons have been counted.
    async fn next_coupon(&self) -> sqlx::Result<Option<CouponId>> {
        let next = sqlx::query_scalar!(
            r#"UPDATE order_count_audit SET
                   after_coupon_id = coalesce(least(
                       (SELECT min(coupon_id) FROM orders WHERE coupon_id > after_coupon_id),
                       (SELECT min(coupon_id) FROM order_counts WHERE coupon_id > after_coupon_id)), 0),
                   next_at = now() + make_interval(secs => $1)
               WHERE next_at <= now() RETURNING after_coupon_id"#,
            limits::ORDER_AUDIT_TIMEOUT.as_secs_f64(),
        );
        let next = next.fetch_optional(&self.pool).await?;
        if next == Some(0) {
            self.rest(limits::ORDER_AUDIT_REST, false).await?;
        }
        Ok(next.and_then(|coupon| CouponId::new(coupon).ok()))
    }

    /// Counts the orders of a coupon, and notes the difference to its counts as a change: both are of one moment, so
    /// writers go on. Keeps what was corrected. Returns the difference by status.
    async fn correct(&self, coupon: CouponId) -> sqlx::Result<Vec<(String, i64)>> {
        let mut tx = postgres::begin(&self.pool).await?;
        stock::allow_statements(&mut tx, limits::ORDER_AUDIT_TIMEOUT).await?;
        let wrong = sqlx::query!(
            "INSERT INTO order_count_changes (coupon_id, status, orders, digest)
             SELECT $1, status, sum(orders), sum(digest)
             FROM (SELECT status, count(*) AS orders, sum(digest_of_order(status, id, user_id)) AS digest
                   FROM orders WHERE coupon_id = $1 GROUP BY status
                   UNION ALL
                   SELECT status, -orders, -digest FROM order_counts WHERE coupon_id = $1
                   UNION ALL
                   SELECT status, -orders, -digest FROM order_count_changes WHERE coupon_id = $1) AS counted
             GROUP BY status HAVING sum(orders) <> 0 OR sum(digest) <> 0
             RETURNING status, orders",
            coupon.get(),
        )
        .fetch_all(&mut *tx)
        .await?;
        let mut wrong: Vec<(String, i64)> =
            wrong.into_iter().map(|row| (row.status, row.orders)).collect();
        wrong.sort();
        if !wrong.is_empty() {
            let error = in_words(&wrong);
            postponed::note_settled(&mut tx, Pass::OrderCounts, coupon.get(), &error).await?;
        }
        tx.commit().await?;
        Ok(wrong)
    }

    async fn rest(&self, pause: Duration, is_corrected: bool) -> sqlx::Result<()> {
        sqlx::query!(
            "UPDATE order_count_audit
             SET next_at = now() + make_interval(secs => $1), corrected = corrected + $2::boolean::integer",
            pause.max(limits::ORDER_AUDIT_PAUSE).as_secs_f64(),
            is_corrected,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// The correction of a coupon's counts, for the history. A digest alone is wrong where as many orders were missing as
/// were too many.
fn in_words(wrong: &[(String, i64)]) -> String {
    let parts = wrong.iter().map(|(status, orders)| match orders {
        0 => format!("{status}: the digest alone"),
        orders => format!("{status}: {orders:+}"),
    });
    let parts: Vec<String> = parts.collect();
    format!("the running counts of orders were wrong, and are corrected: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correction_is_told_with_its_sign_or_as_that_of_a_digest() {
        let wrong = [("expired", 2), ("paid", -3), ("unpaid", 0)];
        let wrong = wrong.map(|(status, orders)| (status.to_owned(), orders));
        let begin = "the running counts of orders were wrong, and are corrected: ";
        let words = format!("{begin}expired: +2, paid: -3, unpaid: the digest alone");
        assert_eq!(in_words(&wrong), words);
    }
}
