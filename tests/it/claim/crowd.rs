//! The whole promise at once: a crowd that asks again and again at every door gets the stock, one unit each, and
//! every winner is told so for ever.

use std::collections::BTreeMap;

use flash_sale::store::ids::CouponId;
use futures_util::{StreamExt, stream};

use crate::support::process::{Process, order_id, rows, try_claim, written};
use crate::support::{TestApp, eventually};

const USERS: i64 = 1_000;
const TRIES: i64 = 3;
const STOCK: i64 = 200;
/// Requests under way at one time.
const IN_FLIGHT: usize = 64;

#[tokio::test]
async fn a_crowd_gets_exactly_the_stock_with_1_lane() {
    sell_to_a_crowd(1).await;
}

#[tokio::test]
async fn a_crowd_gets_exactly_the_stock_with_4_lanes() {
    sell_to_a_crowd(4).await;
}

async fn sell_to_a_crowd(lanes: i32) {
    let app = TestApp::with_lanes(lanes).await;
    let coupon = app.create_flash(STOCK).await;
    let lanes = lanes.to_string();
    let start = |role| Process::serve(&app, &["--roles", role, "--lanes", &lanes]);
    let apis = [start("api"), start("api")];
    let _workers = [start("worker"), start("worker")];
    let crowd = Crowd { app: &app, coupon, urls: [apis[0].url().await, apis[1].url().await] };

    let promised = crowd.rush().await;
    eventually("all orders are written", async || rows(&app).await >= STOCK).await;
    // 200 rows, and the map has each user once: so they are 200 users.
    assert_eq!(written(&app).await, promised);
    assert_eq!(rows(&app).await, STOCK);
    assert_eq!(app.number("SELECT count(DISTINCT user_id) FROM orders").await, STOCK);
    assert_eq!(app.number("SELECT sold FROM flash_sales").await, STOCK);
    assert_eq!(app.number("SELECT count(*) FROM dead_letters").await, 0);

    let hash = app.keys().coupon(coupon);
    let active: String = app.redis(&["HGET", &hash, "state"]).await;
    crowd.assert_told(&promised, (410, "sold_out")).await;
    for (state, refusal) in [("paused", (409, "sale_paused")), ("ended", (410, "sale_ended"))] {
        let new_fields: i64 = app.redis(&["HSET", &hash, "state", state]).await;
        assert_eq!(new_fields, 0);
        crowd.assert_told(&promised, refusal).await;
    }
    // All of these questions have changed no row.
    app.redis::<i64>(&["HSET", &hash, "state", &active]).await;
    assert_eq!(app.buyers_count(coupon).await, STOCK);
    assert_eq!(written(&app).await, promised);
}

/// All users who want the coupon, and the two doors.
struct Crowd<'a> {
    app: &'a TestApp,
    coupon: CouponId,
    urls: [String; 2],
}

/// One reply: status, problem code ("" for a 202), and the order id if there has to be one.
type Told = (u16, String, Option<i64>);

impl Crowd<'_> {
    /// Every user's tries, at the same time and at both APIs. Returns the order id of each winner.
    async fn rush(&self) -> BTreeMap<i64, i64> {
        let tries = (1..=USERS).flat_map(|user| (0..TRIES).map(move |n| (user, user + n)));
        let replies = self.ask(tries.collect()).await;
        let mut of_user: BTreeMap<i64, Vec<Told>> = BTreeMap::new();
        for (user, told) in replies {
            of_user.entry(user).or_default().push(told);
        }
        let mut promised = BTreeMap::new();
        for (user, mut told) in of_user {
            told.sort();
            let winner = told.iter().find(|(status, ..)| *status == 202);
            let Some(&(_, _, Some(order))) = winner else {
                assert_eq!(told, vec![(410, "sold_out".to_owned(), None); 3], "user {user}");
                continue;
            };
            // One unit, however often the user asks; and no winner is told "sold out".
            let repeat = (409, "already_claimed".to_owned(), Some(order));
            let first = (202, String::new(), Some(order));
            assert_eq!(told, [first, repeat.clone(), repeat], "user {user}");
            promised.insert(user, order);
        }
        assert_eq!(promised.len() as i64, STOCK);
        promised
    }

    /// Checks that both APIs tell each winner the order again, and refuse the others with `code`.
    async fn assert_told(&self, promised: &BTreeMap<i64, i64>, refusal: (u16, &str)) {
        for api in 0..2 {
            eventually("what was remembered of the sale has run out", async || {
                self.claim(USERS + 1, api).await.1 == refusal.1
            })
            .await;
        }
        let losers = (1..=USERS).filter(|user| !promised.contains_key(user)).take(10);
        let asking = promised.keys().copied().chain(losers);
        let replies = self.ask(asking.flat_map(|user| [(user, 0), (user, 1)]).collect()).await;
        assert_eq!(replies.len() as i64, 2 * (STOCK + 10));
        for (user, told) in replies {
            let expected = match promised.get(&user) {
                Some(order) => (409, "already_claimed".to_owned(), Some(*order)),
                None => (refusal.0, refusal.1.to_owned(), None),
            };
            assert_eq!(told, expected, "user {user}");
        }
    }

    /// Claims for each of these users, at the API with this number, many at one time.
    async fn ask(&self, claims: Vec<(i64, i64)>) -> Vec<(i64, Told)> {
        stream::iter(claims)
            .map(async |(user, api)| (user, self.claim(user, api).await))
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await
    }

    /// Asks until the claim is carried out: on a slow machine the crowd may be too much for a moment.
    async fn claim(&self, user: i64, api: i64) -> Told {
        let url = if api % 2 == 0 { &self.urls[0] } else { &self.urls[1] };
        let (status, code, body) = loop {
            let reply = try_claim(self.app, url, user, self.coupon).await;
            let (status, body) = reply.expect("no process was killed");
            let code = body["code"].as_str().unwrap_or_default().to_owned();
            if code != "overloaded" {
                break (status, code, body);
            }
        };
        let has_order = status == 202 || code == "already_claimed";
        (status, code, has_order.then(|| order_id(&body)))
    }
}
