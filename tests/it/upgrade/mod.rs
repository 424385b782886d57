//! The upgrade from an older binary, which `make upgrade` builds: its processes are replaced by those of this tree one by
//! one, while a crowd claims at all live APIs.
//!
//! Each test has stores of its own, such as an installation has: what is answered is on disk. The older binary makes the
//! schema, the coupons and the orders. Then the present one migrates the database beside it, and a backlog of claims waits
//! to be written when the first process is replaced. The tests differ in the order in which the processes are replaced.
//!
//! The checks know nothing of the log: they go by replies, by `flash-sale reconcile` and by the rows of `orders`.

// The outcome: promises, units, and the agreement of the stores.
mod books;

// Coupons and orders of before the upgrade.
mod shop;

// Clients that claim the whole time.
mod crowd;

// Stores, and processes of two binaries.
mod installation;

// One process over HTTP.
mod api;

use flash_sale::kit::postgres;
use private_servers::testing::eventually;
use sqlx::{Postgres, Transaction};

use self::books::{
    assert_promises_kept, assert_sold_out_was_true, assert_stores_agree, assert_units_add_up,
};
use self::crowd::{Crowd, USER_MIN};
use self::installation::{Binary, Installation, Role};
use self::shop::Shop;

/// Claims between two steps.
const CLAIMS_BETWEEN: usize = 200;
/// Times as many claims when only present processes are left.
const ROUNDS_AFTER: usize = 5;
/// First user that claims after the crowd.
const LATE_USER_MIN: i64 = 1_000_000_000;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make upgrade"]
async fn an_api_and_a_worker_in_turn() {
    replaced_one_by_one(&[Role::Api, Role::Worker, Role::Api, Role::Worker]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make upgrade"]
async fn the_workers_first() {
    replaced_one_by_one(&[Role::Worker, Role::Worker, Role::Api, Role::Api]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make upgrade"]
async fn all_killed_in_the_middle() {
    let mut upgrade = Upgrade::begin().await;
    let held = upgrade.hold_back_writing().await;
    upgrade.replace(Role::Api).await;
    upgrade.crowd.accepts(CLAIMS_BETWEEN).await;
    upgrade.replace(Role::Worker).await;
    // Claims are under way at all APIs, and entries in all workers.
    let killed = upgrade.installation.kill_all().await;
    held.rollback().await.expect("Postgres answers");
    println!("killed {killed} processes of both binaries, with claims waiting to be written");
    // A supervisor starts each again as it was; 29a0812 does not look whether a newer binary has migrated the database.
    for binary in [Binary::Older, Binary::Present] {
        upgrade.installation.start(binary, Role::Worker).await;
        upgrade.installation.start(binary, Role::Api).await;
    }
    upgrade.balance().await;
    upgrade.crowd.accepts(CLAIMS_BETWEEN).await;
    upgrade.look_in_between().await;
    for role in [Role::Api, Role::Worker] {
        upgrade.replace(role).await;
        upgrade.look_in_between().await;
    }
    upgrade.end().await;
}

/// Redis loses everything while one older API is left, which knows nothing of recoveries. What the recovery builds has a
/// layout that the older one refuses.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make upgrade"]
async fn redis_emptied_while_an_older_api_lives() {
    let mut upgrade = Upgrade::begin().await;
    for role in [Role::Worker, Role::Worker, Role::Api] {
        upgrade.replace(role).await;
    }
    let Upgrade { mut installation, shop, crowd } = upgrade;
    let history = crowd.finish().await;
    assert_promises_kept(&installation, &history).await;
    let older = installation.api_of(Binary::Older).await;
    let present = installation.api_of(Binary::Present).await;
    let mut users = LATE_USER_MIN..;
    let mut wins_nothing = async || {
        let user = users.next().expect("there is no end of them");
        let reply = older.claim(user, shop.large).await;
        assert!(reply.status >= 400, "{reply:?}");
        user
    };
    installation.empty_redis().await;
    let open =
        "SELECT count(*) FROM lanes WHERE state = 'open' AND lane IN (SELECT lane FROM recoveries)";
    let lanes = i64::try_from(installation::LANES).expect("some");
    eventually("all lanes are open again", async || {
        wins_nothing().await;
        installation.number(open).await == lanes
    })
    .await;
    for _ in 0..CLAIMS_BETWEEN {
        let user = wins_nothing().await;
        eventually("a present API sells", async || {
            present.claim(user, shop.large).await.status != 503
        })
        .await;
    }
    let rows = format!("SELECT count(*) FROM orders WHERE user_id >= {LATE_USER_MIN}");
    let sold = i64::try_from(CLAIMS_BETWEEN).expect("some");
    eventually("all are written", async || installation.number(&rows).await == sold).await;
    println!("after the loss: {}", assert_stores_agree(&installation).await);
    installation.stop_all().await;
}

async fn replaced_one_by_one(roles: &[Role]) {
    let mut upgrade = Upgrade::begin().await;
    let mut held = Some(upgrade.hold_back_writing().await);
    let first_api = roles.iter().position(|role| *role == Role::Api);
    for (number, role) in roles.iter().enumerate() {
        upgrade.replace(*role).await;
        if let Some(held) = held.take() {
            held.rollback().await.expect("Postgres answers");
        }
        if Some(number) == first_api {
            // Both an older and a present API remember "sold out" now, and have to hear of the units.
            upgrade.crowd.meets_a_sold_out_sale().await;
            upgrade.shop.restock_small(&upgrade.installation.api().await).await;
        }
        upgrade.crowd.accepts(CLAIMS_BETWEEN).await;
        upgrade.look_in_between().await;
    }
    upgrade.end().await;
}

/// An upgrade under way.
struct Upgrade {
    installation: Installation,
    shop: Shop,
    crowd: Crowd,
}

impl Upgrade {
    /// Two older APIs and two older workers, a shop, a crowd that has begun, and a database that has been migrated.
    async fn begin() -> Self {
        let mut installation = Installation::new().await;
        for role in [Role::Api, Role::Api, Role::Worker, Role::Worker] {
            installation.start(Binary::Older, role).await;
        }
        let shop = Shop::fill(&installation).await;
        println!(
            "\nolder binary: 2 APIs and 2 workers, {} lanes; {}",
            installation::LANES,
            shop.describe()
        );
        let crowd = Crowd::start(installation.ready().await, &shop.crowded());
        crowd.accepts(CLAIMS_BETWEEN).await;
        let upgrade = Self { installation, shop, crowd };
        upgrade.migrate().await;
        upgrade.crowd.accepts(CLAIMS_BETWEEN).await;
        upgrade
    }

    /// The present binary migrates the database under load. Then the older one refuses to.
    async fn migrate(&self) {
        let migrated = self.installation.run(Binary::Present, &["migrate"]).await;
        assert_eq!(migrated.code, Some(0), "{}", migrated.stderr);
        let older = self.installation.run(Binary::Older, &["migrate"]).await;
        assert!(older.code.is_some_and(|code| code > 0), "{older:?}");
        assert!(older.last_words().contains("migration"), "{older:?}");
        println!(
            "migrated under load; the older binary's `migrate` then says: {}",
            older.last_words()
        );
    }

    /// Holds every row of `flash_sales`, so that no worker can write an order, until claims wait.
    async fn hold_back_writing(&self) -> Transaction<'static, Postgres> {
        let mut held = postgres::begin(&self.installation.pool).await.expect("Postgres answers");
        let lock =
            "SET LOCAL idle_in_transaction_session_timeout = 0; SELECT FROM flash_sales FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut *held).await.expect("Postgres answers");
        self.crowd.accepts(CLAIMS_BETWEEN).await;
        held
    }

    /// Replaces an older process by a present one. A new API is ready before the older one is told to stop.
    async fn replace(&mut self, role: Role) {
        let (before, failed) = (self.crowd.accepted(), self.crowd.failed());
        let rows = format!("SELECT count(*) FROM orders WHERE user_id >= {USER_MIN}");
        let rows = usize::try_from(self.installation.number(&rows).await).expect("a count");
        if role == Role::Api {
            self.installation.start(Binary::Present, role).await;
            self.balance().await;
            self.crowd.accepts(CLAIMS_BETWEEN).await;
        }
        let crowd = &self.crowd;
        let balance = async |installation: &Installation| crowd.send_to(installation.ready().await);
        self.installation.stop(Binary::Older, role, balance).await;
        if role == Role::Worker {
            self.installation.start(Binary::Present, role).await;
        }
        println!(
            "replaced a {role:?} while {} claims waited to be written; {} were accepted meanwhile, {} requests failed",
            before.saturating_sub(rows),
            self.crowd.accepted() - before,
            self.crowd.failed() - failed,
        );
    }

    async fn look_in_between(&self) {
        println!("in between: {}", assert_stores_agree(&self.installation).await);
    }

    /// Claims go to the APIs that say that they are ready.
    async fn balance(&self) {
        self.crowd.send_to(self.installation.ready().await);
    }

    /// The crowd goes on with present processes only, and comes to its end; then the books are checked.
    async fn end(self) {
        let Self { mut installation, shop, crowd } = self;
        for _ in 0..ROUNDS_AFTER {
            crowd.accepts(CLAIMS_BETWEEN).await;
        }
        let api = installation.api().await;
        eventually("the small sale is sold out", async || api.units(shop.small).await.1 == 0).await;
        crowd.meets_a_sold_out_sale().await;
        let history = crowd.finish().await;
        println!(
            "the crowd: {} answers 202, {} questions again, {} refusals, failed requests {:?}",
            history.accepted,
            history.repeated,
            history.told.iter().filter(|told| told.order.is_none()).count(),
            history.failed,
        );
        let rows = assert_promises_kept(&installation, &history).await;
        assert_units_add_up(&installation, &shop).await;
        assert_sold_out_was_true(&shop, &history, api.units(shop.small).await.0);
        println!(
            "{rows} rows, each as it was promised; {}",
            assert_stores_agree(&installation).await
        );

        shop.assert_kept(&api).await;
        shop.go_on(&api).await;
        assert_units_add_up(&installation, &shop).await;
        println!("older orders go on; {}", assert_stores_agree(&installation).await);

        let expired = let_unpaid_expire(&mut installation).await;
        assert_units_add_up(&installation, &shop).await;
        shop.archive_ended(&api).await;
        println!("{expired} orders expired; {}", assert_stores_agree(&installation).await);

        installation.stop_all().await;
        let alarms = installation.alarms(Binary::Present);
        assert!(alarms.is_empty(), "{}", alarms.join("\n"));
        println!(
            "alarms of the older binary: {}; of the present one: none",
            installation.alarms(Binary::Older).len()
        );
    }
}

/// The time to pay is over: by the deadline of an order that has one, and for others by workers with a window of a second,
/// which take the place of the present ones. Returns the number of orders that expire.
async fn let_unpaid_expire(installation: &mut Installation) -> i64 {
    let unpaid = "SELECT count(*) FROM orders WHERE status = 'unpaid'";
    let expired = installation.number(unpaid).await;
    let late = "WITH late AS (UPDATE orders SET pay_by = pay_by - interval '1 day' WHERE status = 'unpaid' RETURNING id)
        SELECT count(*) FROM late";
    assert_eq!(installation.number(late).await, expired);
    for _ in 0..2 {
        installation.stop(Binary::Present, Role::Worker, async |_| {}).await;
        let settings = ["--payment-window-s", "1"];
        installation.start_with(Binary::Present, Role::Worker, &settings).await;
    }
    eventually("unpaid orders expire", async || installation.number(unpaid).await == 0).await;
    expired
}
