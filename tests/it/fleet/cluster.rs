//! A Redis Cluster under the whole service.

use std::collections::HashMap;

use flash_sale::base::clock::Clock;
use flash_sale::store::ids::CouponId;
use redis::{Value, from_redis_value};

use super::nodes::Nodes;
use crate::support::process::{Process, flash_sale, rows, run, try_claim};
use crate::support::{Addresses, IMPATIENT_WITH_REDIS, TestApp, eventually, shared};

/// Nodes, an app on them, a service of its own process, and a sale in each of three lanes.
struct Scene {
    _service: Process,
    app: TestApp,
    // Dropped behind the app, which compares the stores at its end.
    nodes: Nodes,
    url: String,
    sales: Vec<CouponId>,
    claimed: i64,
}

impl Scene {
    async fn start() -> Self {
        let nodes = Nodes::start(1, &[]).await;
        let servers = Addresses { redis_url: nodes.url(), ..shared().clone() };
        let arguments = [&["--lanes", "3"], &IMPATIENT_WITH_REDIS[..]].concat();
        let app = TestApp::on(&servers, &arguments, Clock::System).await;
        let service = Process::serve(&app, &IMPATIENT_WITH_REDIS);
        let url = service.url().await;
        let mut sales = Vec::new();
        for _ in 0..3 {
            sales.push(app.create_flash(100).await);
        }
        let mut this = Self { nodes, app, url, _service: service, sales, claimed: 0 };
        this.all_sell().await;
        this
    }

    async fn claim(&self, user: i64, coupon: CouponId) -> u16 {
        try_claim(&self.app, &self.url, user, coupon).await.expect("it runs").0
    }

    /// A new user gets a unit of each sale, in time, and all users before have theirs still.
    async fn all_sell(&mut self) {
        self.claimed += 1;
        for coupon in &self.sales {
            self.sells(*coupon, self.claimed).await;
            for user in 1..=self.claimed {
                self.has(*coupon, user).await;
            }
        }
        let all = 3 * self.claimed;
        eventually("all rows", async || rows(&self.app).await == all).await;
    }

    async fn sells(&self, coupon: CouponId, user: i64) {
        eventually("a claim", async || [202, 409].contains(&self.claim(user, coupon).await)).await;
    }

    /// A lane may be closed for a moment, but no user is ever sold a second unit.
    async fn has(&self, coupon: CouponId, user: i64) {
        eventually("a repeat", async || {
            let status = self.claim(user, coupon).await;
            assert!([409, 503].contains(&status), "user {user}, coupon {coupon}: {status}");
            status == 409
        })
        .await;
    }

    /// Port of the master that a sale is on. Nothing in this process follows the cluster but its questions.
    async fn master_of(&self, coupon: CouponId) -> u16 {
        let redis = self.app.app.stores.redis(coupon.lane());
        let mut commands = redis::pipe();
        commands.cmd("EXISTS").arg(self.app.keys().coupon(coupon));
        commands.cmd("CONFIG").arg("GET").arg("port");
        let mut port = 0;
        eventually("the master of the sale answers", async || {
            if redis.check().await.is_err() {
                return false;
            }
            let Ok(replies) = redis.query_each::<Value>(&commands).await else { return false };
            let [Ok(_), Ok(ports)] = &replies[..] else { return false };
            let ports: HashMap<String, u16> = from_redis_value(ports.clone()).expect("a map");
            port = ports["port"];
            true
        })
        .await;
        port
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lanes_of_a_dead_master_open_on_its_replica_and_the_others_go_on() {
    let mut scene = Scene::start().await;
    let mut masters = Vec::new();
    for coupon in &scene.sales {
        masters.push(scene.master_of(*coupon).await);
    }
    let dead = masters[0];
    scene.nodes.at(dead).server.kill();
    let others = || scene.sales.iter().zip(&masters).filter(|(_, master)| **master != dead);
    assert!(others().count() > 0, "the lanes are on several masters: {masters:?}");
    for (coupon, _) in others() {
        assert_eq!(scene.claim(900, *coupon).await, 202, "on another master");
    }
    assert_eq!(scene.claim(900, scene.sales[0]).await, 503);
    for coupon in &scene.sales {
        scene.sells(*coupon, 900).await;
        scene.has(*coupon, 1).await;
    }
    eventually("their rows", async || rows(&scene.app).await == 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_fail_over_and_a_moved_slot_are_losses_like_any_other() {
    let mut scene = Scene::start().await;
    let coupon = scene.sales[0];
    let before = scene.master_of(coupon).await;
    let replica = 3 + scene.nodes.0.iter().position(|node| node.port == before).expect("a master");
    scene.nodes.0[replica].does(&["CLUSTER", "FAILOVER"]).await;
    let after = scene.nodes.0[replica].port;
    eventually("the replica is the master", async || scene.master_of(coupon).await == after).await;
    scene.all_sell().await;

    let key = scene.app.keys().coupon(coupon);
    let slot: u16 = scene.nodes.0[0].told(&["CLUSTER", "KEYSLOT", &key]).await.expect("it answers");
    let slot = slot.to_string();
    let to = scene.nodes.0[..3].iter().map(|node| node.port).find(|port| *port != before);
    let to = to.expect("three masters");
    scene.nodes.move_slot(&slot, after, to).await;
    scene.all_sell().await;
    assert_eq!(scene.master_of(coupon).await, to);

    let unwise = [["cluster-require-full-coverage", "yes"], ["min-replicas-to-write", "1"]];
    for [name, value] in unwise {
        for node in &scene.nodes.0 {
            node.does(&["CONFIG", "SET", name, value]).await;
        }
    }
    let mut doctor = flash_sale(&["doctor"]);
    doctor.args(scene.app.store_arguments());
    let found = run(doctor).await.stdout;
    for [name, value] in unwise {
        assert!(found.contains(&format!("{name} is {value}")), "{name}: {found}");
    }
}
