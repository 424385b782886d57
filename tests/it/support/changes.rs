//! Changing coupons, in the words of the business.

use chrono::TimeDelta;
use flash_sale::coupon::model::CouponState;
use flash_sale::coupon::rules::{Change, Refusal};
use flash_sale::coupon::stock::{self, StoredCoupon, StoredSale};
use flash_sale::store::ids::CouponId;
use serde_json::{Value, json};

use super::{Reply, TestApp, bounded};

impl TestApp {
    /// PATCH with an administrator's token.
    pub async fn edit(&self, coupon: CouponId, edit: &Value) -> Reply {
        let path = format!("/v1/coupons/{coupon}");
        let request = self.client().patch(self.url.clone() + &path);
        self.send(request.bearer_auth(self.admin_token()).json(edit), "PATCH", &path).await
    }

    /// `pause`, `resume` or `end`.
    pub async fn r#move(&self, coupon: CouponId, verb: &str) -> Reply {
        let path = format!("/v1/coupons/{coupon}/{verb}");
        let request = self.client().post(self.url.clone() + &path);
        self.send(request.bearer_auth(self.admin_token()), "POST", &path).await
    }

    /// Adds units under a key.
    pub async fn restock(&self, coupon: CouponId, units: i64, key: &str) -> Reply {
        let path = format!("/v1/coupons/{coupon}/restock");
        self.post(&path, &self.admin_token(), &json!({"units": units, "key": key})).await
    }

    /// The window of a sale has ended this long ago, in both stores.
    pub async fn let_window_end(&self, coupon: CouponId, ago: TimeDelta) {
        let ms = ago.num_milliseconds();
        self.execute(&format!(
            "UPDATE flash_sales SET opens_at = least(opens_at, now() - interval '9 days'),
                                    closes_at = now() - interval '{ms} ms' WHERE coupon_id = {coupon};
             UPDATE coupons SET revision = revision + 1 WHERE id = {coupon}"
        ))
        .await;
        assert!(self.app.coupon_changes.apply(coupon).await.expect("both stores answer"));
    }

    /// The first half of a change alone, as by a process that dies right after its commit.
    pub async fn decide(&self, coupon: CouponId, change: Change) -> Result<(), Refusal> {
        self.app.coupon_changes.decide(coupon, change, None).await.expect("Postgres answers")
    }

    /// Decides on this state and dies.
    pub async fn decide_on(&self, coupon: CouponId, state: CouponState) {
        self.decide(coupon, Change::Move(state, None)).await.expect("it may");
    }

    /// The sale of this coupon as Postgres has it now.
    pub async fn stored_sale(&self, coupon: CouponId) -> StoredSale {
        let found = stock::find(&self.app.stores.pool, coupon).await.expect("Postgres answers");
        match found.expect("there is such a coupon") {
            StoredCoupon::Flash(sale) => sale,
            StoredCoupon::Regular(_) => panic!("coupon {coupon} has no sale"),
        }
    }

    /// The job that applies what was decided. Returns how many coupons that was.
    pub async fn changes_job(&self) -> usize {
        let job = self.app.coupon_changes.run_once();
        bounded("the end of the job", job).await.expect("both stores answer")
    }

    /// Fields of a sale as Redis has them; "" for what isn't there.
    pub async fn in_redis<const N: usize>(
        &self,
        coupon: CouponId,
        fields: [&str; N],
    ) -> [String; N] {
        let key = self.keys().coupon(coupon);
        let words = [&["HMGET", &key], &fields[..]].concat();
        let values: Vec<Option<String>> = self.redis(&words).await;
        let values: Vec<String> = values.into_iter().map(Option::unwrap_or_default).collect();
        values.try_into().expect("as many as asked for")
    }
}
