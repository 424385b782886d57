//! What happens to an order after it has been written, over HTTP and behind the curtain.

use flash_sale::sale::ids::CouponId;
use serde_json::json;

use super::{Reply, TestApp};

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

    /// Its status.
    pub async fn status(&self, user: i64, order: i64) -> String {
        self.show(user, order).await.text("status").to_owned()
    }

    /// Gives back what is due. Returns how many returns have been dealt with.
    pub async fn give_back(&self) -> usize {
        self.app.stock_returns.pass().await.expect("both stores answer")
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
