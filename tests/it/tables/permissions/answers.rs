//! Things on which operations are tried, and the check that a refusal leaves both stores as they were.

use std::collections::{BTreeMap, BTreeSet};

use flash_sale::store::ids::CouponId;
use serde_json::{Value, json};

use crate::support::{Reply, TestApp, lane};

/// A thing on which an action is tried.
#[derive(Clone, Copy, Debug)]
pub struct Thing {
    /// The id in the path.
    pub id: i64,
    /// The coupon whose keys are watched.
    pub coupon: Option<CouponId>,
    /// The order that only its user may see.
    pub order: Option<i64>,
}

/// All rows in Postgres, and the keys of one sale and its lane in Redis, without the times of the last write.
pub struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Rows of all tables, and keys of the thing's sale.
    pub async fn of(app: &TestApp, thing: &Thing) -> Self {
        let mut all: BTreeSet<String> = rows(app).await.into_iter().collect();
        if let Some(coupon) = thing.coupon {
            let sale: BTreeMap<String, String> =
                app.redis(&["HGETALL", &app.keys().coupon(coupon)]).await;
            all.extend(sale.into_iter().map(|(name, value)| format!("in Redis: {name} = {value}")));
            let buyers = app.buyers(coupon).await.into_iter();
            all.extend(buyers.map(|(user, order)| format!("in Redis: user {user} = {order}")));
        }
        let entries: i64 = app.redis(&["XLEN", &app.log(lane())]).await;
        all.insert(format!("in Redis: {entries} entries"));
        Self(all)
    }

    /// Lines of only one of the two.
    pub fn changes(&self, after: &Self) -> BTreeSet<String> {
        self.0.symmetric_difference(&after.0).cloned().collect()
    }
}

/// The rows of all tables, each behind the name of its table.
async fn rows(app: &TestApp) -> Vec<String> {
    let queries = "SELECT format('SELECT %L || (to_jsonb(line) - ''updated_at'')::text FROM %I AS line',
                                 relname || ' ', relname)
                   FROM pg_class
                   WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition";
    app.texts(&app.texts(queries).await.join(" UNION ALL ")).await
}

/// One request. The body `null` means none.
pub async fn request(
    app: &TestApp,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &Value,
) -> Reply {
    let method = method.to_uppercase();
    let request = app.client().request(method.parse().expect("a method"), app.url.clone() + path);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let request = if body.is_null() { request } else { request.json(body) };
    let reply = app.send(request, &method, path).await;
    match (path, reply.status) {
        ("/v1/reconcile", 202) => app.finished(reply).await,
        _ => reply,
    }
}

/// A gateway's notice of a payment for this order; each payment has an id of its own.
pub fn notice_of(order: i64) -> Value {
    let order_id = order.to_string();
    let payment_id = format!("payment-of-{order}");
    json!({"kind": "payment", "payment_id": payment_id, "order_id": order_id, "method": 3, "amount_cents": 1})
}

/// A promise of a unit that Postgres doesn't have at that moment: an open dead letter. Returns the order id that the
/// claim was told.
pub async fn in_review(app: &TestApp, user: i64, coupon: CouponId) -> i64 {
    let sale = format!("WHERE coupon_id = {coupon}");
    let sold = app.sold(coupon).await;
    app.execute(&format!("UPDATE flash_sales SET sold = total {sale}")).await;
    let order = app.claim(user, coupon).await.order_id();
    assert_eq!(app.write_orders().await.dead_letters, 1);
    app.execute(&format!("UPDATE flash_sales SET sold = {sold} {sale}")).await;
    order
}

/// The record of a new comparison.
pub async fn comparison(app: &TestApp) -> Thing {
    let run = app.compare().await;
    Thing { id: run.text("run_id").parse().expect("an id"), coupon: None, order: None }
}
