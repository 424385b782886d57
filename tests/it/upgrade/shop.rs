//! The contents of an installation before its upgrade: made through the API of the older binary, and used further
//! through the API of the present one.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use private_servers::testing::eventually;
use serde_json::{Value, json};

use super::api::{Api, PAY_CENTS};
use super::crowd::USER_MIN;
use super::installation::{Installation, LANES, PAYMENT_WINDOW_S};
use crate::support::now;

/// Units of the sale that has units for the whole crowd.
const LARGE: i64 = 100_000;
/// Units of the sale that the crowd buys out while processes are replaced.
const SMALL: i64 = 600;
/// Units that the same sale gets once it is sold out.
const MORE: i64 = 1_000;
/// Units of the sale with the orders of the set-up.
const MIXED: i64 = 100;
/// Orders of the set-up in each state.
const IN_EACH_STATE: usize = 10;
/// Seconds after the set-up in which some orders expire.
const DUE_IN_S: i64 = 20;
/// Bits of a coupon's id that name its lane.
const LANE_BITS: i64 = 0x3ff;

/// State of an order of the set-up, when the upgrade begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    Unpaid,
    /// Unpaid, and about to expire.
    Due,
    /// By a gateway elsewhere.
    Paid,
    /// By the older binary itself, which was a gateway without being asked to.
    PaidInProcess,
    /// Its gateway elsewhere has not confirmed the refund.
    Refunding,
    Cancelled,
}

const STATES: [Was; 6] =
    [Was::Unpaid, Was::Due, Was::Paid, Was::PaidInProcess, Was::Refunding, Was::Cancelled];

/// An order of the set-up.
#[derive(Clone, Copy, Debug)]
struct Order {
    user: i64,
    id: i64,
    was: Was,
}

/// Coupons and orders of an installation.
pub struct Shop {
    /// A sale with units for the whole crowd.
    pub large: i64,
    /// A sale that the crowd buys out.
    pub small: i64,
    /// The sale of `orders`.
    pub mixed: i64,
    orders: Vec<Order>,
    /// A sale that has ended, with buyers.
    ended: i64,
    /// A regular coupon.
    regular: i64,
    /// Unpaid orders of the other two coupons: coupon, user, order id.
    others: [(i64, i64, i64); 2],
}

impl Shop {
    /// Fills an empty installation. Workers run.
    pub async fn fill(installation: &Installation) -> Self {
        let api = installation.api().await;
        let [large, small, mixed] = [LARGE, SMALL, MIXED].map(flash);
        let [large, small, mixed] =
            [api.create(&large).await, api.create(&small).await, api.create(&mixed).await];
        let lanes = BTreeSet::from([large, small, mixed].map(|coupon| coupon & LANE_BITS));
        assert_eq!(lanes.len(), LANES, "each sale has a lane of its own");
        let ended = api.create(&flash(MIXED)).await;
        let regular =
            json!({"kind": "regular", "title": "t", "pay_cents": PAY_CENTS, "value_cents": 2});
        let regular = api.create(&regular).await;

        let mut orders = Vec::new();
        for (user, was) in (1..).zip(STATES.repeat(IN_EACH_STATE)) {
            orders.push(Order { user, id: claimed(&api, user, mixed).await, was });
        }
        let user = USER_MIN - 1;
        let of_ended = (ended, user, claimed(&api, user, ended).await);
        let of_regular = (regular, user, claimed(&api, user, regular).await);
        let others = [of_ended, of_regular];
        let shop = Self { large, small, mixed, orders, ended, regular, others };
        shop.orders_are_written(installation).await;
        shop.move_orders(&api, installation).await;
        let path = format!("/v1/coupons/{ended}/end");
        assert_eq!(api.administrate(&path, None).await.status, 200);
        shop
    }

    /// Coupons that the crowd claims.
    pub fn crowded(&self) -> [i64; 2] {
        [self.large, self.small]
    }

    /// Number of orders in each state, in words.
    pub fn describe(&self) -> String {
        let states: Vec<String> =
            STATES.iter().map(|was| format!("{} {was:?}", self.which(*was).count())).collect();
        format!("orders: {}; a sale that has ended; a regular coupon", states.join(", "))
    }

    fn which(&self, was: Was) -> impl Iterator<Item = Order> {
        self.orders.iter().filter(move |order| order.was == was).copied()
    }

    async fn orders_are_written(&self, installation: &Installation) {
        let all = self.orders.len() + self.others.len();
        let query = format!("SELECT count(*) FROM orders WHERE user_id < {USER_MIN}");
        eventually("the orders are written", async || {
            installation.number(&query).await == i64::try_from(all).expect("a few")
        })
        .await;
    }

    /// Brings each order into its state.
    async fn move_orders(&self, api: &Api, installation: &Installation) {
        for Order { user, id, was } in &self.orders {
            let replies = match was {
                Was::Unpaid | Was::Due => vec![],
                Was::Paid => vec![api.confirm_payment(*id).await],
                Was::PaidInProcess => vec![api.act(*user, *id, "pay").await],
                Was::Refunding => {
                    vec![api.confirm_payment(*id).await, api.act(*user, *id, "refund").await]
                }
                Was::Cancelled => vec![api.act(*user, *id, "cancel").await],
            };
            for reply in replies {
                assert_eq!(reply.status, 200, "{was:?}: {reply:?}");
            }
        }
        let due: Vec<i64> = self.which(Was::Due).map(|order| order.id).collect();
        sqlx::query(
            "UPDATE orders SET created_at = now() - make_interval(secs => $1) WHERE id = ANY($2)",
        )
        .bind((PAYMENT_WINDOW_S - DUE_IN_S) as f64)
        .bind(due)
        .execute(&installation.pool)
        .await
        .expect("Postgres does it");
    }

    /// Each order is in the state that it was in, or has expired in time.
    pub async fn assert_kept(&self, api: &Api) {
        for Order { user, id, was } in &self.orders {
            let expected = match was {
                Was::Unpaid => "unpaid",
                Was::Due => "expired",
                Was::Paid | Was::PaidInProcess => "paid",
                Was::Refunding => "refunding",
                Was::Cancelled => "cancelled",
            };
            reaches(api, *user, *id, expected).await;
        }
        for (coupon, user, id) in self.others {
            assert_eq!(api.my_claim(user, coupon).await.order_id(), id);
            reaches(api, user, id, "unpaid").await;
        }
    }

    /// Users and a gateway go on with orders of before the upgrade, as if there had been none.
    pub async fn go_on(&self, api: &Api) {
        for Order { user, id, .. } in self.which(Was::Unpaid).take(IN_EACH_STATE / 2) {
            let again = api.claim(user, self.mixed).await;
            assert_eq!((again.refusal(), again.order_id()), ((409, "already_claimed"), id));
            assert_eq!(outcome(&api.confirm_payment(id).await), (200, "accepted", ""));
            reaches(api, user, id, "paid").await;
        }
        for Order { user, id, .. } in self.which(Was::Due).take(IN_EACH_STATE / 2) {
            assert_eq!(outcome(&api.confirm_payment(id).await), (200, "handed_back", "too_late"));
            reaches(api, user, id, "expired").await;
        }
        for Order { user, id, .. } in self.which(Was::Refunding).take(IN_EACH_STATE / 2) {
            assert_eq!(outcome(&api.confirm_refund(id).await), (200, "refunded", ""));
            reaches(api, user, id, "refunded").await;
        }
        for Order { user, id, .. } in self.which(Was::Paid).take(IN_EACH_STATE / 2) {
            assert_eq!(api.act(user, id, "refund").await.text("status"), "refunding");
        }
        for Order { user, id, .. } in self.which(Was::PaidInProcess).take(IN_EACH_STATE / 2) {
            assert_eq!(api.act(user, id, "refund").await.status, 200);
            reaches(api, user, id, "refunded").await;
        }
        for Order { user, id, .. } in self.which(Was::Cancelled).take(IN_EACH_STATE / 2) {
            let again = claimed(api, user, self.mixed).await;
            assert_ne!(again, id);
            reaches(api, user, again, "unpaid").await;
        }
        self.go_on_with_others(api).await;
    }

    async fn go_on_with_others(&self, api: &Api) {
        let [(ended, buyer, order), (regular, ..)] = self.others;
        assert_eq!((ended, regular), (self.ended, self.regular));
        let late = api.claim(1, ended).await;
        assert_eq!(late.refusal(), (410, "sale_ended"));
        let again = api.claim(buyer, regular).await;
        assert_eq!(again.refusal(), (409, "already_claimed"));
        assert_eq!(api.my_claim(buyer, ended).await.order_id(), order);
    }

    /// The sale that has ended leaves Redis, now that none of its orders is unpaid.
    pub async fn archive_ended(&self, api: &Api) {
        let path = format!("/v1/coupons/{}/archive", self.ended);
        let archived = api.administrate(&path, Some(&json!({"accept_loss": false}))).await;
        assert_eq!(archived.status, 200, "{archived:?}");
        let [(_, buyer, order), _] = self.others;
        assert_eq!(api.my_claim(buyer, self.ended).await.order_id(), order);
    }

    /// The small sale gets more units.
    pub async fn restock_small(&self, api: &Api) {
        let path = format!("/v1/coupons/{}/restock", self.small);
        let restocked = api.administrate(&path, Some(&json!({"key": "more", "units": MORE}))).await;
        assert!([200, 202].contains(&restocked.status), "{restocked:?}");
    }
}

fn flash(units: i64) -> Value {
    let opens_at = now() - TimeDelta::seconds(1);
    // The name of the total that the older binary knows.
    let sale =
        json!({"stock": units, "opens_at": opens_at, "closes_at": now() + TimeDelta::hours(1)});
    json!({"kind": "flash", "title": "t", "pay_cents": PAY_CENTS, "value_cents": 2, "sale": sale})
}

/// The order id of a first claim.
async fn claimed(api: &Api, user: i64, coupon: i64) -> i64 {
    let reply = api.claim(user, coupon).await;
    assert!([201, 202].contains(&reply.status), "{reply:?}");
    reply.order_id()
}

/// Waits until an order is written and has this status.
async fn reaches(api: &Api, user: i64, order: i64, status: &str) {
    eventually(&format!("order {order} is {status}"), async || {
        let reply = api.order(user, order).await;
        reply.status == 200 && reply.text("status") == status
    })
    .await;
}

/// Status, outcome and reason of a reply to a gateway.
fn outcome(reply: &crate::support::Reply) -> (u16, &str, &str) {
    let text = |name: &str| reply.body[name].as_str().unwrap_or("");
    (reply.status, text("outcome"), text("reason"))
}
