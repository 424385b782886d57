//! The claim script against a model: random commands on one sale, and both have to say and keep the same.

use std::collections::BTreeMap;

use flash_sale::sale::ids::CouponId;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::properties::for_all;
use crate::support::TestApp;

const SCRIPT: &str = include_str!("../../lua/claim.lua");

/// Far enough away to be no race with Redis's clock.
const FAR: i64 = 9_999_999_999_999;

/// What happens to the sale. All but `Claim` and `Create` find nothing to do while it isn't there.
#[derive(Clone, Debug)]
enum Command {
    /// One call of the script, by a caller who believes in this epoch and in this room for more orders.
    Claim {
        epoch: i64,
        has_room: bool,
        claims: Vec<(i64, i64)>,
    },
    /// The hash is written anew, around the buyers there are.
    Create(Sale),
    Delete,
    State(State),
    Window(Window),
    Epoch(i64),
    Layout(i64),
    /// Behind the script's back.
    AddStock(i64),
    /// Behind the script's back.
    LoseBuyers,
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
    layout: i64,
}

/// What `lua/claim.lua` promises.
#[derive(Default)]
struct Model {
    sale: Option<Sale>,
    buyers: BTreeMap<i64, i64>,
    log: Vec<(i64, i64)>,
    tampered: bool,
}

/// The same on Redis.
struct Real<'a> {
    app: &'a TestApp,
    coupon: CouponId,
    hash: String,
    buyers: String,
    log: String,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    // Few of each, so that they come again: in one call, and in later ones.
    let claims = prop::collection::vec((1..=12_i64, 1_001..=1_030_i64), 1..=8);
    let has_room = prop::bool::weighted(0.9);
    let claim = (ones(), has_room, claims).prop_map(|(epoch, has_room, claims)| Command::Claim {
        epoch,
        has_room,
        claims,
    });
    let command = prop_oneof![
        20 => claim,
        3 => sales().prop_map(Command::Create),
        1 => Just(Command::Delete),
        4 => states().prop_map(Command::State),
        4 => windows().prop_map(Command::Window),
        1 => ones().prop_map(Command::Epoch),
        1 => ones().prop_map(Command::Layout),
        1 => prop_oneof![Just(-1), Just(1)].prop_map(Command::AddStock),
        1 => Just(Command::LoseBuyers),
    ];
    (sales(), prop::collection::vec(command, 1..=60))
        .prop_map(|(sale, commands)| [vec![Command::Create(sale)], commands].concat())
}

fn sales() -> impl Strategy<Value = Sale> {
    (states(), windows(), 0..=12_i64, ones(), ones()).prop_map(
        |(state, window, stock, epoch, layout)| {
            // The total is the buyers' business too.
            Sale { state, window, stock, total: 0, epoch, layout }
        },
    )
}

/// An epoch or a layout: 1, which is ours, and 2 now and then.
fn ones() -> impl Strategy<Value = i64> {
    prop_oneof![15 => Just(1_i64), 1 => Just(2)]
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
    /// When it opens and when it closes.
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
        has_room: bool,
        claims: &[(i64, i64)],
    ) -> Vec<(String, String)> {
        let buyers = self.buyers_count();
        let refusal = match &self.sale {
            None => Some("NOT_LOADED"),
            Some(sale) if sale.state == State::Loading => Some("NOT_LOADED"),
            Some(sale) if sale.epoch != epoch || sale.layout != 1 => Some("STALE"),
            Some(sale) if sale.stock + buyers != sale.total => Some("LOST"),
            Some(_) => None,
        };
        let reply = |&(user, order): &(i64, i64)| {
            let (code, detail) = match refusal {
                Some(code) => (code, String::new()),
                None => self.decide(user, order, has_room),
            };
            (code.to_owned(), detail)
        };
        claims.iter().map(reply).collect()
    }

    /// One claim on a sale that is in order.
    fn decide(&mut self, user: i64, order: i64, has_room: bool) -> (&'static str, String) {
        let sale = self.sale.as_mut().expect("it is in order");
        if let Some(first) = self.buyers.get(&user) {
            return ("ALREADY_CLAIMED", first.to_string());
        }
        let refusal = match (sale.state, sale.window) {
            (State::Ended, _) | (_, Window::After) => "ENDED",
            (State::Paused, _) => "PAUSED",
            (_, Window::Before) => return ("NOT_STARTED", "ms".to_owned()),
            _ if sale.stock == 0 => return ("SOLD_OUT", "0".to_owned()),
            _ if !has_room => "OVERLOADED",
            _ => {
                sale.stock -= 1;
                self.buyers.insert(user, order);
                self.log.push((user, order));
                return ("ACCEPTED", order.to_string());
            }
        };
        (refusal, String::new())
    }
}

impl<'a> Real<'a> {
    async fn new(app: &'a TestApp, sequence: i64) -> Self {
        let (coupon, keys) = (CouponId::compose(sequence, 1), app.keys());
        let log = keys.log(coupon.lane());
        let _: i64 = app.redis(&["DEL", &log]).await;
        Self { app, coupon, hash: keys.coupon(coupon), buyers: keys.buyers(coupon), log }
    }

    /// What the script replies; of the time until the sale opens, only that there is one.
    async fn claim(
        &self,
        epoch: i64,
        has_room: bool,
        claims: &[(i64, i64)],
    ) -> Vec<(String, String)> {
        let names = ["EVAL", SCRIPT, "3", &self.hash, &self.buyers, &self.log].map(str::to_owned);
        let mut words = Vec::from(names);
        words.extend(
            [self.coupon.get(), epoch, i64::from(has_room)].map(|number| number.to_string()),
        );
        words.extend(claims.iter().flat_map(|(user, order)| [user.to_string(), order.to_string()]));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let replies: Vec<String> = self.app.redis(&words).await;
        let readable = |reply: &[String]| match reply {
            [code, ms] if code == "NOT_STARTED" && ms.parse().is_ok_and(|ms: i64| ms > 0) => {
                (code.clone(), "ms".to_owned())
            }
            reply => (reply[0].clone(), reply[1..].join(" and ")),
        };
        replies.chunks(2).map(readable).collect()
    }

    async fn set(&self, fields: &[(&str, &str)]) {
        let pairs = fields.iter().flat_map(|(field, value)| [*field, *value]);
        let words: Vec<&str> = ["HSET", &self.hash].into_iter().chain(pairs).collect();
        let _: i64 = self.app.redis(&words).await;
    }

    async fn set_window(&self, window: Window) {
        let (opens_ms, closes_ms) = window.ms();
        let (opens_ms, closes_ms) = (opens_ms.to_string(), closes_ms.to_string());
        self.set(&[("opens_ms", &opens_ms), ("closes_ms", &closes_ms)]).await;
    }

    async fn create(&self, sale: &Sale) {
        self.delete(&self.hash).await;
        self.set_window(sale.window).await;
        for (field, number) in [
            ("stock", sale.stock),
            ("total", sale.total),
            ("epoch", sale.epoch),
            ("layout", sale.layout),
        ] {
            self.set(&[(field, &number.to_string())]).await;
        }
        self.set(&[("state", sale.state.name())]).await;
    }

    async fn delete(&self, key: &str) {
        let _: i64 = self.app.redis(&["DEL", key]).await;
    }
}

/// Does it to both.
async fn carry_out(command: Command, model: &mut Model, real: &Real<'_>) -> TestCaseResult {
    let buyers = model.buyers_count();
    match (command, &mut model.sale) {
        (Command::Claim { epoch, has_room, claims }, _) => {
            let expected = model.claim(epoch, has_room, &claims);
            prop_assert_eq!(real.claim(epoch, has_room, &claims).await, expected);
        }
        (Command::Create(sale), there) => {
            let sale = Sale { total: sale.stock + buyers, ..sale };
            real.create(&sale).await;
            *there = Some(sale);
            model.tampered = false;
        }
        (_, None) => {}
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
        (Command::Layout(layout), Some(sale)) => {
            real.set(&[("layout", &layout.to_string())]).await;
            sale.layout = layout;
        }
        (Command::AddStock(units), Some(sale)) => {
            let add = ["HINCRBY", &real.hash, "stock", &units.to_string()];
            let _: i64 = real.app.redis(&add).await;
            sale.stock += units;
            model.tampered = true;
        }
        (Command::LoseBuyers, _) => {
            real.delete(&real.buyers).await;
            model.tampered |= !model.buyers.is_empty();
            model.buyers.clear();
        }
    }
    Ok(())
}

/// Both keep the same, and no unit came or went.
async fn compare(model: &Model, real: &Real<'_>) -> TestCaseResult {
    let Real { app, hash, buyers, log, .. } = real;
    let stock: Option<i64> = app.redis(&["HGET", hash, "stock"]).await;
    prop_assert_eq!(stock, model.sale.as_ref().map(|sale| sale.stock), "stock");
    let buyers: BTreeMap<i64, i64> = app.redis(&["HGETALL", buyers]).await;
    prop_assert_eq!(&buyers, &model.buyers, "buyers");
    let entries: Vec<(String, Vec<String>)> = app.redis(&["XRANGE", log, "-", "+"]).await;
    let entries: Vec<String> = entries.iter().map(|(_, fields)| fields.join(" ")).collect();
    let entry =
        |(user, order): &(i64, i64)| format!("coupon {} user {user} order {order}", real.coupon);
    let expected: Vec<String> = model.log.iter().map(entry).collect();
    prop_assert_eq!(entries, expected, "log");
    if let Some(sale) = model.sale.as_ref().filter(|_| !model.tampered) {
        prop_assert_eq!(sale.total, sale.stock + model.buyers_count(), "conservation");
    }
    Ok(())
}

#[test]
fn the_claim_script_does_what_the_model_does() {
    let app = async {
        let app = TestApp::start().await;
        // The coupons are Redis's only: Postgres has never heard of them.
        app.expect_disagreements();
        app
    };
    for_all(app, &commands(), async |app, case, commands| {
        let (mut model, real) = (Model::default(), Real::new(app, case).await);
        for command in commands {
            carry_out(command, &mut model, &real).await?;
        }
        compare(&model, &real).await
    });
}
