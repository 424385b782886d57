//! A cluster of three masters with two replicas each breaks in one way after the other, under a crowd.
//!
//! Each client asks until it is told what became of its claim. Nothing that was confirmed may be missing from Postgres
//! at the end, and nobody may have a second order. How long each fault keeps lanes silent is printed beside its goal; a
//! slow machine fails no test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use flash_sale::base::clock::Clock;
use flash_sale::store::ids::CouponId;
use futures_util::future::join_all;
use nix::unistd::{SysconfVar, sysconf};
use private_servers::testing::RedisServer;
use tokio::time::{Instant, sleep};

use super::nodes::{Node, Nodes};
use crate::support::load::Load;
use crate::support::process::{Process, rows, try_claim};
use crate::support::{
    Addresses, IMPATIENT_WITH_REDIS, TestApp, bounded_by, eventually, patience_of, shared,
};

/// Sales, each in a lane of its own.
const SALES: usize = 6;
/// The same where the work is measured: the slots of 16 lanes are spread over three masters 6, 6, 4.
const MEASURED_SALES: usize = 16;
const UNITS: i64 = 50_000;
/// Three times what a sale was seen to sell from a fault to the next.
const UNITS_OF_A_FAULT: i64 = 1_000;
/// As docs/operate.md has it: a master that is paused and replaced takes nothing when it wakes.
const NEEDS_A_REPLICA: [&str; 4] = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"];
/// Claims of each sale before a fault, and after it.
const CLAIMS: usize = 20;
/// A paused server is replaced after a second and an election.
const PAUSE: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
enum Fault {
    MasterKilled,
    MasterPaused,
    PlannedFailOver,
    SlotMoved,
    SlotMoveAbandoned,
    MasterFlushed,
    ReplicaPaused,
}

use Fault::{
    MasterFlushed, MasterKilled, MasterPaused, PlannedFailOver, ReplicaPaused, SlotMoveAbandoned,
    SlotMoved,
};

/// Each fault, and for how long its lanes may be silent: node time-outs are 1 s.
const FAULTS: [(Fault, Option<Duration>); 7] = [
    (MasterKilled, Some(Duration::from_millis(3_500))),
    (PlannedFailOver, Some(Duration::from_millis(300))),
    (SlotMoved, Some(Duration::from_millis(1_500))),
    (MasterPaused, Some(Duration::from_millis(3_500))),
    (SlotMoveAbandoned, None),
    (MasterFlushed, None),
    (ReplicaPaused, Some(OTHERS_MAX)),
];

/// For how long lanes may be silent that a fault doesn't concern.
const OTHERS_MAX: Duration = Duration::from_millis(150);

struct Storm {
    service: Process,
    app: TestApp,
    // Dropped behind the app, which compares the stores at its end.
    nodes: Nodes,
    sales: Vec<CouponId>,
}

/// The longest silences that a fault has made.
#[derive(Clone, Copy, Default)]
struct Silence {
    concerned: Duration,
    others: Duration,
}

impl Storm {
    async fn start(units: i64) -> Self {
        let nodes = Nodes::start(2, &NEEDS_A_REPLICA).await;
        let servers = Addresses { redis_url: nodes.url(), ..shared().clone() };
        let (service, app, sales) = serve(&servers, (SALES, units)).await;
        Self { service, app, nodes, sales }
    }

    fn key(&self, sale: usize) -> String {
        self.app.keys().coupon(self.sales[sale])
    }

    async fn master_of(&self, sale: usize) -> &Node {
        let key = self.key(sale);
        eventually("it has a master", async || self.nodes.master_of(&key).await.is_some()).await;
        self.nodes.master_of(&key).await.expect("it had one")
    }

    async fn slot_of(&self, sale: usize) -> String {
        let key = self.key(sale);
        let slot: Option<u16> = self.nodes.0[0].told(&["CLUSTER", "KEYSLOT", &key]).await;
        slot.expect("it answers").to_string()
    }

    async fn ports(&self) -> Vec<u16> {
        let mut ports = Vec::new();
        for sale in 0..SALES {
            ports.push(self.master_of(sale).await.port);
        }
        ports
    }

    async fn has_another_master(&self, sale: usize, before: u16) {
        let key = self.key(sale);
        eventually("another master", async || {
            self.nodes.master_of(&key).await.is_some_and(|node| node.port != before)
        })
        .await;
    }

    /// Breaks something that this sale stands on, and mends it. Returns the sales that it concerns.
    async fn breaks(&mut self, fault: Fault, sale: usize) -> Vec<usize> {
        let ports = self.ports().await;
        let port = ports[sale];
        let on_it = (0..SALES).filter(|other| ports[*other] == port).collect();
        let slot = self.slot_of(sale).await;
        let to = *ports.iter().find(|to| **to != port).expect("three");
        match fault {
            MasterKilled => {
                self.nodes.at(port).server.kill();
                self.has_another_master(sale, port).await;
                self.nodes.at(port).server.start_again();
                on_it
            }
            MasterPaused => {
                self.nodes.at(port).server.pause();
                sleep(PAUSE).await;
                self.has_another_master(sale, port).await;
                self.nodes.at(port).server.resume();
                on_it
            }
            PlannedFailOver => {
                let replica = self.nodes.replica_of(self.master_of(sale).await).await;
                replica.does(&["CLUSTER", "FAILOVER"]).await;
                self.has_another_master(sale, port).await;
                on_it
            }
            SlotMoved => {
                self.nodes.move_slot(&slot, port, to).await;
                vec![sale]
            }
            SlotMoveAbandoned => {
                self.nodes.abandon_slot(&slot, port, to).await;
                vec![sale]
            }
            MasterFlushed => {
                self.nodes.at(port).does(&["FLUSHALL"]).await;
                on_it
            }
            ReplicaPaused => {
                let replica = self.nodes.replica_of(self.master_of(sale).await).await.port;
                self.nodes.at(replica).server.pause();
                sleep(PAUSE).await;
                self.nodes.at(replica).server.resume();
                Vec::new()
            }
        }
    }

    async fn suffers(&mut self, fault: Fault, sale: usize, crowds: &[Load]) -> Silence {
        join_all(crowds.iter().map(|crowd| crowd.accepts(CLAIMS))).await;
        let began = Instant::now();
        let concerned = self.breaks(fault, sale).await;
        join_all(crowds.iter().map(|crowd| crowd.accepts(CLAIMS))).await;
        let mut silence = Silence::default();
        for (number, crowd) in crowds.iter().enumerate() {
            let silent = crowd.silence_since(began);
            let longest = match concerned.contains(&number) {
                true => &mut silence.concerned,
                false => &mut silence.others,
            };
            *longest = silent.max(*longest);
        }
        self.nodes.are_well().await;
        silence
    }
}

/// A service on these servers, and a sale in each lane.
async fn serve(
    servers: &Addresses,
    (count, units): (usize, i64),
) -> (Process, TestApp, Vec<CouponId>) {
    let lanes = count.to_string();
    let arguments = [&["--lanes", &lanes], &IMPATIENT_WITH_REDIS[..]].concat();
    let app = TestApp::on(servers, &arguments, Clock::System).await;
    let service = Process::serve(&app, &IMPATIENT_WITH_REDIS);
    let mut sales = Vec::new();
    for _ in 0..count {
        sales.push(app.create_flash(units).await);
    }
    (service, app, sales)
}

/// As many as the variable ROUNDS says, or each fault twice.
#[expect(clippy::disallowed_methods, reason = "no setting of the service")]
fn rounds() -> usize {
    let given = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    given.unwrap_or(2 * FAULTS.len())
}

fn verdict(found: Duration, goal: Option<Duration>) -> String {
    let found_ms = found.as_millis();
    match goal {
        Some(goal) if found <= goal => format!("{found_ms} ms (goal {} ms)", goal.as_millis()),
        Some(goal) => format!("{found_ms} ms (MORE than the goal, {} ms)", goal.as_millis()),
        None => format!("{found_ms} ms"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make cluster"]
async fn long_a_cluster_that_breaks_loses_nothing() {
    let rounds = rounds();
    let units = UNITS.max(UNITS_OF_A_FAULT * i64::try_from(rounds).expect("a few"));
    let mut storm = Storm::start(units).await;
    let url = storm.service.url().await;
    let crowds: Vec<Load> = storm.sales.iter().map(|sale| Load::start(&url, *sale, 1)).collect();
    let mut silences = [Silence::default(); FAULTS.len()];
    for round in 0..rounds {
        let (number, sale) = (round % FAULTS.len(), (round / FAULTS.len() + round) % SALES);
        let found = storm.suffers(FAULTS[number].0, sale, &crowds).await;
        println!(
            "{:?} under sale {sale}: {:?}, others {:?}",
            FAULTS[number].0, found.concerned, found.others
        );
        let worst = &mut silences[number];
        worst.concerned = worst.concerned.max(found.concerned);
        worst.others = worst.others.max(found.others);
    }
    let (mut accepted, mut unknown, mut orders) = (0, 0, 0);
    for (sale, crowd) in storm.sales.iter().zip(crowds) {
        let history = crowd.finish().await;
        (accepted, unknown) = (accepted + history.accepted, unknown + history.unknown);
        orders += history.promised.len();
        let of_sale = history.promised.len() as i64;
        eventually("all are rows, and there are no others", async || {
            storm.app.number(&format!("SELECT count(*) FROM orders WHERE coupon_id = {sale}")).await
                == of_sale
        })
        .await;
        assert_eq!(written(&storm.app, *sale).await, history.promised);
    }
    let mut table = String::new();
    for ((fault, goal), silence) in FAULTS.into_iter().zip(silences) {
        let (concerned, others) =
            (verdict(silence.concerned, goal), verdict(silence.others, Some(OTHERS_MAX)));
        let _ = write!(table, "\n  {fault:?}: silent for {concerned}; others {others}");
    }
    println!(
        "{rounds} faults: {accepted} claims confirmed, {unknown} told nothing on the way, {orders} orders, none lost, none twice. The longest silences of lanes:{table}"
    );
}

/// User id -> order id, as Postgres has them for a sale.
async fn written(app: &TestApp, sale: CouponId) -> BTreeMap<i64, i64> {
    let rows =
        sqlx::query_as("SELECT user_id, id FROM orders WHERE coupon_id = $1").bind(sale.get());
    let rows: Vec<(i64, i64)> = rows.fetch_all(&app.app.stores.pool).await.expect("it answers");
    rows.into_iter().collect()
}

/// CPU time of a process so far.
fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("the name stands in brackets");
    // utime and stime, proc_pid_stat(5).
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().expect("Linux has ticks");
    Duration::from_secs_f64(ticks.sum::<u64>() as f64 / per_second as f64)
}

/// The most CPU time of one of these processes for a claim, while so many clients claim from all sales.
async fn busiest(
    (mut service, app, sales): (Process, TestApp, Vec<CouponId>),
    pids: &[u32],
) -> Duration {
    let url = service.url().await;
    let crowds: Vec<Load> = sales.iter().map(|sale| Load::start(&url, *sale, CLIENTS)).collect();
    join_all(crowds.iter().map(|crowd| crowd.accepts(CLAIMS))).await;
    let count = || crowds.iter().map(Load::accepted).sum::<usize>();
    let before: Vec<Duration> = pids.iter().map(|pid| cpu(*pid)).collect();
    let counted = count();
    sleep(MEASURED).await;
    let claims = count() - counted;
    let used = pids.iter().zip(&before).map(|(pid, before)| cpu(*pid) - *before);
    let most = used.max().expect("there is one") / u32::try_from(claims).expect("a few");
    for crowd in crowds {
        crowd.finish().await;
    }
    app.write_orders().await;
    service.assert_stops().await;
    most
}

/// Clients of each sale: enough that calls carry 32 claims and more.
const CLIENTS: i64 = 64;
const MEASURED: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures: make cluster"]
async fn long_three_masters_share_the_work_of_one() {
    let server = RedisServer::start(&[]);
    let servers = Addresses { redis_url: server.url(), ..shared().clone() };
    let one = busiest(serve(&servers, (MEASURED_SALES, UNITS)).await, &[server.pid()]).await;
    let nodes = Nodes::start(0, &[]).await;
    let servers = Addresses { redis_url: nodes.url(), ..shared().clone() };
    let pids: Vec<u32> = nodes.0.iter().map(|node| node.server.pid()).collect();
    let busiest = busiest(serve(&servers, (MEASURED_SALES, UNITS)).await, &pids).await;
    println!(
        "CPU time of Redis for a claim: one server {one:.1?}, the busiest of three masters {busiest:.1?}, ratio {:.2} (goal 0.42)",
        busiest.as_secs_f64() / one.as_secs_f64()
    );
}

/// Buyers of the sale whose slot moves, with ids that the crowd doesn't have.
const BUYERS: i64 = 1_000_000;
const FIRST_BUYER: i64 = 1_000_000_000;
const BUILT_WITHIN: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: make cluster"]
async fn long_a_slot_with_a_million_buyers_moves() {
    let storm = Storm::start(2 * BUYERS).await;
    let (app, sale, master) = (&storm.app, storm.sales[0], storm.master_of(0).await);
    let first = app.claim(FIRST_BUYER, sale).await.order_id();
    eventually("it is a row", async || rows(app).await == 1).await;
    app.execute(&format!(
        "SET statement_timeout = 0;
         INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at)
         SELECT {first} - n, {sale}, 'flash', {FIRST_BUYER} + n, now() FROM generate_series(1, {BUYERS}) AS n;
         UPDATE flash_sales SET sold = sold + {BUYERS} WHERE coupon_id = {sale}"
    ))
    .await;
    master.does(&["FLUSHALL"]).await;
    let url = storm.service.url().await;
    let is_built = async {
        while try_claim(app, &url, FIRST_BUYER + BUYERS, sale)
            .await
            .is_none_or(|told| told.0 != 409)
        {
            sleep(Duration::from_millis(100)).await;
        }
    };
    bounded_by(patience_of(BUILT_WITHIN), "the sale is built", is_built).await;
    storm.nodes.are_well().await;
    let crowd = Load::start(&url, sale, 1);
    crowd.accepts(CLAIMS).await;
    let (slot, began) = (storm.slot_of(0).await, Instant::now());
    let to = *storm.ports().await.iter().find(|to| **to != master.port).expect("three");
    storm.nodes.move_slot(&slot, master.port, to).await;
    let moved = began.elapsed();
    crowd.accepts(CLAIMS).await;
    let goal = Some(Duration::from_millis(1_500));
    println!(
        "a slot with {BUYERS} buyers moved in {moved:.1?}; its lane was silent for {}",
        verdict(crowd.silence_since(began), goal)
    );
    crowd.finish().await;
}
