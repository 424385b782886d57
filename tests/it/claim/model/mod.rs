//! The claim script, and the scripts that take a claim back, against a model: random commands on one sale. Both give
//! the same answers and keep the same state.

mod real;

use std::collections::{BTreeMap, BTreeSet};

use flash_sale::coupon::buyers::shards::Shards;
use flash_sale::log::Entries;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use real::Real;

use crate::support::plans::for_all;
use crate::support::{TestApp, user};

/// Times far enough away to be no race with Redis's clock.
const FAR: i64 = 9_999_999_999_999;

/// Shards of the sale, for a dozen users.
const SHARDS: u32 = 3;

/// Second of the lane's order ids, which no clock has reached: so the model knows the next id.
const SECOND: i64 = 2_000_000_000;
/// The first order id of a case: in this second, of lane 0 under epoch 1.
const FIRST_ORDER: i64 = (SECOND << 32) | (1 << 20);

/// Commands on the sale. All but `Claim` and `Create` have no effect while the sale isn't there.
#[derive(Clone, Debug)]
enum Command {
    /// One call of the script. The caller believes in this epoch, these shards and this room for more orders, and
    /// lets users hold so many unpaid orders.
    Claim {
        epoch: i64,
        shards: u32,
        has_room: bool,
        unpaid_max: usize,
        claims: Vec<i64>,
    },
    /// Units of these users come back, by the order that each holds, or by another one.
    Release {
        epoch: i64,
        shards: u32,
        units: Vec<(i64, bool)>,
    },
    /// An order of each of these users is unpaid no longer: the first on their list, or another one.
    FreePlaces(Vec<(i64, bool)>),
    /// The hash is written anew, around the existing buyers, with all of its shards.
    Create(Sale),
    Delete,
    State(State),
    Window(Window),
    Epoch(i64),
    /// Whether the lane is open.
    Lane(bool),
    /// Written by hand.
    AddStock(i64),
    /// Written by hand.
    LoseShard(u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Loading,
    Active,
    Paused,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Window {
    Before,
    Open,
    After,
}

/// The coupon's hash.
#[derive(Clone, Debug)]
struct Sale {
    state: State,
    window: Window,
    stock: i64,
    total: i64,
    epoch: i64,
}

/// An order that nobody holds.
const ANOTHER_ORDER: i64 = 7;

/// The promise of `lua/claim.lua`.
#[derive(Default)]
struct Model {
    sale: Option<Sale>,
    buyers: BTreeMap<i64, i64>,
    /// Shards that are gone.
    lost: BTreeSet<u32>,
    /// Unpaid orders of users.
    unpaid: BTreeMap<i64, Vec<i64>>,
    log: Vec<(i64, i64)>,
    /// Calls that have brought units back.
    returns: i64,
    tampered: bool,
    /// Whether the lane is recovering.
    lane_closed: bool,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    // Few users, so that they come again: in one call, and in later ones.
    let claims = prop::collection::vec(1..=12_i64, 1..=8);
    let of_users = || prop::collection::vec((1..=12_i64, prop::bool::weighted(0.8)), 1..=6);
    let has_room = prop::bool::weighted(0.9);
    let unpaid_max = prop_oneof![1 => Just(0_usize), 2 => 1..=2_usize];
    let claim = (ones(), shards(), has_room, unpaid_max, claims).prop_map(
        |(epoch, shards, has_room, unpaid_max, claims)| Command::Claim {
            epoch,
            shards,
            has_room,
            unpaid_max,
            claims,
        },
    );
    let release = (ones(), shards(), of_users())
        .prop_map(|(epoch, shards, units)| Command::Release { epoch, shards, units });
    let command = prop_oneof![
        20 => claim,
        6 => release,
        6 => of_users().prop_map(Command::FreePlaces),
        3 => sales().prop_map(Command::Create),
        1 => Just(Command::Delete),
        4 => states().prop_map(Command::State),
        4 => windows().prop_map(Command::Window),
        1 => ones().prop_map(Command::Epoch),
        1 => prop::bool::weighted(0.7).prop_map(Command::Lane),
        1 => prop_oneof![Just(-1), Just(1)].prop_map(Command::AddStock),
        1 => (0..SHARDS).prop_map(Command::LoseShard),
    ];
    (sales(), prop::collection::vec(command, 1..=60))
        .prop_map(|(sale, commands)| [vec![Command::Create(sale)], commands].concat())
}

fn sales() -> impl Strategy<Value = Sale> {
    (states(), windows(), 0..=12_i64, ones()).prop_map(|(state, window, stock, epoch)| {
        // The total depends on the buyers, and is set with them.
        Sale { state, window, stock, total: 0, epoch }
    })
}

/// An epoch: 1, which is ours, and 2 now and then.
fn ones() -> impl Strategy<Value = i64> {
    prop_oneof![15 => Just(1_i64), 1 => Just(2)]
}

/// The right number, and another one now and then.
fn shards() -> impl Strategy<Value = u32> {
    prop_oneof![15 => Just(SHARDS), 1 => Just(1_u32), 1 => Just(SHARDS + 2)]
}

fn shard_of(id: i64) -> u32 {
    Shards::new(SHARDS).expect("there are some").of(user(id))
}

fn states() -> impl Strategy<Value = State> {
    prop_oneof![
        8 => Just(State::Active),
        1 => Just(State::Paused),
        1 => Just(State::Ended),
        1 => Just(State::Loading),
    ]
}

fn windows() -> impl Strategy<Value = Window> {
    prop_oneof![6 => Just(Window::Open), 1 => Just(Window::Before), 1 => Just(Window::After)]
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

impl Window {
    /// Opening and closing of the sale.
    fn ms(self) -> (i64, i64) {
        match self {
            Self::Before => (FAR, FAR + 1),
            Self::Open => (0, FAR),
            Self::After => (0, 1),
        }
    }
}

impl Model {
    fn buyers_count(&self) -> i64 {
        i64::try_from(self.buyers.len()).expect("a few")
    }

    /// Code and detail for each claim of one call.
    fn claim(
        &mut self,
        epoch: i64,
        shards: u32,
        has_room: bool,
        unpaid_max: usize,
        claims: &[i64],
    ) -> Vec<(String, String)> {
        let refusal = self.unusable(epoch);
        let reply = |&user: &i64| {
            let (code, detail) = match refusal {
                Some(code) => (code, String::new()),
                None if shards != SHARDS => ("RESHARDED", SHARDS.to_string()),
                None if self.lost.contains(&shard_of(user)) => ("LOST", String::new()),
                None => self.decide(user, has_room, unpaid_max),
            };
            (code.to_owned(), detail)
        };
        claims.iter().map(reply).collect()
    }

    /// Reason why no script can work on this sale.
    fn unusable(&self, epoch: i64) -> Option<&'static str> {
        match &self.sale {
            _ if self.lane_closed => Some("RECOVERING"),
            None => Some("NOT_LOADED"),
            Some(sale) if sale.state == State::Loading => Some("NOT_LOADED"),
            // The lane has the epoch 1.
            Some(sale) if sale.epoch != epoch || epoch != 1 => Some("STALE"),
            Some(_) => None,
        }
    }

    /// A code for each unit, or one for all.
    fn release(&mut self, epoch: i64, shards: u32, units: &[(i64, i64)]) -> Vec<String> {
        let resharded = (shards != SHARDS).then_some("STALE");
        if let Some(refusal) = self.unusable(epoch).or(resharded) {
            return vec![refusal.to_owned()];
        }
        let before = self.buyers.len();
        let code = |(user, order)| match self.buyers.get(user) == Some(order) {
            true => {
                self.buyers.remove(user);
                "RELEASED".to_owned()
            }
            false => "NOT_HELD".to_owned(),
        };
        let codes = units.iter().map(|(user, order)| (user, order)).map(code).collect();
        let back = before - self.buyers.len();
        self.returns += i64::from(back > 0);
        self.sale.as_mut().expect("it is usable").stock += i64::try_from(back).expect("a few");
        codes
    }

    /// Number of orders that were on a list.
    fn free_places(&mut self, orders: &[(i64, i64)]) -> i64 {
        let mut freed = 0;
        for (user, order) in orders {
            if let Some(unpaid) = self.unpaid.get_mut(user) {
                freed += i64::from(unpaid.contains(order));
                unpaid.retain(|held| held != order);
            }
        }
        self.unpaid.retain(|_, orders| !orders.is_empty());
        freed
    }

    /// One claim on a sale that is in order.
    fn decide(&mut self, user: i64, has_room: bool, unpaid_max: usize) -> (&'static str, String) {
        let unpaid = self.unpaid.get(&user).map_or(0, Vec::len);
        let sale = self.sale.as_mut().expect("it is in order");
        if let Some(first) = self.buyers.get(&user) {
            return ("ALREADY_CLAIMED", first.to_string());
        }
        let refusal = match (sale.state, sale.window) {
            (State::Ended, _) | (_, Window::After) => "ENDED",
            (State::Paused, _) => "PAUSED",
            (_, Window::Before) => return ("NOT_STARTED", "ms".to_owned()),
            _ if sale.stock < 1 => return ("SOLD_OUT", self.returns.to_string()),
            _ if unpaid_max > 0 && unpaid >= unpaid_max => "TOO_MANY_UNPAID",
            _ if !has_room => "OVERLOADED",
            _ => {
                let order = FIRST_ORDER + self.log.len() as i64;
                sale.stock -= 1;
                self.buyers.insert(user, order);
                if unpaid_max > 0 {
                    self.unpaid.entry(user).or_default().push(order);
                }
                self.log.push((user, order));
                return ("ACCEPTED", order.to_string());
            }
        };
        (refusal, String::new())
    }
}

/// Runs a command on both.
async fn carry_out(command: Command, model: &mut Model, real: &Real<'_>) -> TestCaseResult {
    let buyers = model.buyers_count();
    match (command, &mut model.sale) {
        (Command::Claim { epoch, shards, has_room, unpaid_max, claims }, _) => {
            let expected = model.claim(epoch, shards, has_room, unpaid_max, &claims);
            let replies = real.claim(epoch, shards, has_room, unpaid_max, &claims).await;
            prop_assert_eq!(replies, expected);
        }
        (Command::Release { epoch, shards, units }, _) => {
            let order = |&(user, is_own): &(i64, bool)| {
                let own = model.buyers.get(&user).filter(|_| is_own);
                (user, own.copied().unwrap_or(ANOTHER_ORDER))
            };
            let units: Vec<(i64, i64)> = units.iter().map(order).collect();
            let expected = model.release(epoch, shards, &units);
            prop_assert_eq!(real.release(epoch, shards, &units).await, expected);
        }
        (Command::FreePlaces(of_users), _) => {
            let order = |&(user, is_own): &(i64, bool)| {
                let own = model.unpaid.get(&user).and_then(|held| held.first());
                (user, own.filter(|_| is_own).copied().unwrap_or(ANOTHER_ORDER))
            };
            let orders: Vec<(i64, i64)> = of_users.iter().map(order).collect();
            prop_assert_eq!(real.free_places(&orders).await, model.free_places(&orders));
        }
        (Command::Create(sale), there) => {
            let sale = Sale { total: sale.stock + buyers, ..sale };
            real.create(&sale).await;
            *there = Some(sale);
            model.lost.clear();
            model.returns = 0;
            model.tampered = false;
        }
        (_, None) => {}
        (Command::Lane(open), _) => {
            real.set_lane(open).await;
            model.lane_closed = !open;
        }
        (Command::Delete, there) => {
            real.delete(&real.hash).await;
            *there = None;
        }
        (Command::State(state), Some(sale)) => {
            real.set(&[("state", state.name())]).await;
            sale.state = state;
        }
        (Command::Window(window), Some(sale)) => {
            real.set_window(window).await;
            sale.window = window;
        }
        (Command::Epoch(epoch), Some(sale)) => {
            real.set(&[("epoch", &epoch.to_string())]).await;
            sale.epoch = epoch;
        }
        (Command::AddStock(units), Some(sale)) => {
            let add = ["HINCRBY", &real.hash, "stock", &units.to_string()];
            let _: i64 = real.app.redis(&add).await;
            sale.stock += units;
            model.tampered = true;
        }
        (Command::LoseShard(shard), _) => {
            real.delete(&real.shards[shard as usize]).await;
            model.lost.insert(shard);
            model.buyers.retain(|user, _| shard_of(*user) != shard);
            model.tampered |= model.buyers_count() < buyers;
        }
    }
    Ok(())
}

/// Checks that both keep the same state, and that no unit came or went.
async fn compare(model: &Model, real: &Real<'_>) -> TestCaseResult {
    let Real { app, hash, shards, unpaid, log, .. } = real;
    let stock: Option<i64> = app.redis(&["HGET", hash, "stock"]).await;
    prop_assert_eq!(stock, model.sale.as_ref().map(|sale| sale.stock), "stock");
    prop_assert_eq!(&app.buyers_in(shards).await, &model.buyers, "buyers");
    let unpaid: BTreeMap<i64, String> = app.redis(&["HGETALL", unpaid]).await;
    let words = |orders: &Vec<i64>| orders.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let expected: BTreeMap<i64, String> =
        model.unpaid.iter().map(|(user, orders)| (*user, words(orders))).collect();
    prop_assert_eq!(unpaid, expected, "unpaid orders");
    let Entries(entries) = app.redis(&["XRANGE", log, "-", "+"]).await;
    let mut logged = Vec::new();
    for entry in entries {
        prop_assert_eq!(entry.first, Some(logged.len() as u64 + 1), "the numbers have no gap");
        for claim in entry.claims {
            prop_assert_eq!(claim.coupon_id, real.coupon);
            logged.push((claim.user_id.get(), claim.order_id.get()));
        }
    }
    prop_assert_eq!(&logged, &model.log, "log");
    let promised: Option<usize> = app.redis(&["HGET", &real.lane, "accepted"]).await;
    prop_assert_eq!(promised.unwrap_or(0), logged.len(), "promised orders");
    if let Some(sale) = model.sale.as_ref().filter(|_| !model.tampered) {
        prop_assert_eq!(sale.total, sale.stock + model.buyers_count(), "conservation");
    }
    Ok(())
}

#[test]
fn the_claim_script_does_what_the_model_does() {
    let app = async {
        let app = TestApp::start().await;
        // The coupons are in Redis only: Postgres has no row of them.
        app.expect_disagreements();
        app
    };
    for_all(app, &commands(), async |app, case, commands| {
        let mut model = Model::default();
        let real = Real::new(app, case).await;
        for command in commands {
            carry_out(command, &mut model, &real).await?;
        }
        compare(&model, &real).await
    });
}
