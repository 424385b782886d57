//! What happens to an order after it has been written, over HTTP and behind the curtain.

use flash_sale::kit::signature::Signatures;
use flash_sale::order::moves::Moved;
use flash_sale::payment::Paying;
use flash_sale::store::ids::CouponId;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{Reply, SECRET, TestApp, bounded};

/// What became of an order that was to be paid at a gateway that is there.
pub fn moved(paying: Paying) -> Moved {
    match paying {
        Paying::Moved(moved) => moved,
        _ => panic!("{paying:?}"),
    }
}

impl TestApp {
    /// A written, unpaid order of `user`. Returns its id.
    pub async fn order(&self, user: i64, coupon: CouponId) -> i64 {
        let claimed = self.claim(user, coupon).await;
        assert!([201, 202].contains(&claimed.status), "{claimed:?}");
        self.write_orders().await;
        claimed.order_id()
    }

    /// An order of `user` that has been paid. Returns its id.
    pub async fn paid_order(&self, user: i64, coupon: CouponId) -> i64 {
        let order = self.order(user, coupon).await;
        assert_eq!(self.pay(user, order).await.status, 200);
        order
    }

    /// `user` pays `order`.
    pub async fn pay(&self, user: i64, order: i64) -> Reply {
        let path = format!("/v1/orders/{order}/pay");
        self.post(&path, &self.token(user), &json!({"method": "balance"})).await
    }

    /// `user` cancels `order`.
    pub async fn cancel(&self, user: i64, order: i64) -> Reply {
        self.act(user, order, "cancel").await
    }

    /// `user` does something to `order` that needs no words.
    pub async fn act(&self, user: i64, order: i64, action: &str) -> Reply {
        let path = format!("/v1/orders/{order}/{action}");
        let request = self.client().post(self.url.clone() + &path).bearer_auth(self.token(user));
        self.send(request, "POST", &path).await
    }

    /// `user`'s order as it is now.
    pub async fn show(&self, user: i64, order: i64) -> Reply {
        self.get(&format!("/v1/orders/{order}"), &self.token(user)).await
    }

    pub async fn status(&self, user: i64, order: i64) -> String {
        self.show(user, order).await.text("status").to_owned()
    }

    /// An administrator redeems `order`.
    pub async fn redeem(&self, order: i64) -> Reply {
        self.redeem_under(&self.admin_token(), order, None).await
    }

    /// The bearer of this token redeems `order` by a request of this name.
    pub async fn redeem_under(&self, token: &str, order: i64, key: Option<&str>) -> Reply {
        let path = format!("/v1/orders/{order}/redeem");
        let request = self.client().post(self.url.clone() + &path).bearer_auth(token);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        self.send(request, "POST", &path).await
    }

    /// The redemption code of `user`'s paid order.
    pub async fn code(&self, user: i64, order: i64) -> String {
        self.show(user, order).await.text("redemption_code").to_owned()
    }

    /// The gateway confirms something, signed as it should be.
    pub async fn confirm(&self, notice: &Value) -> Reply {
        self.confirm_text(notice.to_string()).await
    }

    /// The gateway sends these bytes, signed as they should be.
    pub async fn confirm_text(&self, body: String) -> Reply {
        let signature = Signatures::new(&SecretString::from(SECRET)).sign(body.as_bytes());
        self.post_signed(body, &signature).await
    }

    /// Sends a notice with this signature.
    pub async fn post_signed(&self, body: String, signature: &str) -> Reply {
        let path = "/v1/payments/callback";
        let request = self.client().post(self.url.clone() + path).body(body);
        self.send(request.header("x-signature", signature), "POST", path).await
    }

    /// The time of every unpaid order is over.
    pub async fn let_time_pass(&self) {
        self.execute(
            "UPDATE orders SET pay_by = pay_by - interval '1 day', created_at = created_at - interval '1 day'
             WHERE status = 'unpaid'",
        )
        .await;
    }

    /// The time of this order is over.
    pub async fn let_time_pass_for(&self, order: i64) {
        let statement =
            format!("UPDATE orders SET pay_by = pay_by - interval '1 day' WHERE id = {order}");
        self.execute(&statement).await;
    }

    /// Expires what is due. Returns how many orders that were.
    pub async fn expire(&self) -> usize {
        let job = async { self.app.expiry.run_once().await.map(|ran| ran.items) };
        bounded("the end of the job", job).await.expect("Postgres answers")
    }

    /// Asks gateways for what has to go back. Returns how many payments are back.
    pub async fn refund_payments(&self) -> usize {
        let job = self.app.payments.refund_job();
        bounded("the end of the job", job).await.expect("Postgres answers")
    }

    /// Payments by order status, status and reason, for comparing in one line.
    pub async fn payments(&self) -> Vec<String> {
        let query = "SELECT concat_ws(' ', orders.status, gateway, payments.status, refund_reason) FROM payments
                     JOIN orders ON orders.id = order_id ORDER BY payments.id";
        sqlx::query_scalar(query).fetch_all(&self.app.stores.pool).await.expect("Postgres answers")
    }

    /// Releases the units that are due. Returns how many returns have been dealt with.
    pub async fn release(&self) -> usize {
        let job = async { self.app.stock_returns.run_once().await.map(|ran| ran.items) };
        bounded("the end of the job", job).await.expect("both stores answer")
    }

    /// Units that can be claimed, by Redis.
    pub async fn stock(&self, coupon: CouponId) -> i64 {
        self.redis(&["HGET", &self.keys().coupon(coupon), "stock"]).await
    }

    /// Units counted as sold, by Postgres.
    pub async fn sold(&self, coupon: CouponId) -> i64 {
        self.number(&format!("SELECT sold FROM flash_sales WHERE coupon_id = {coupon}")).await
    }
}
