//! Scenarios: the next request, and the answers that belong there.

use std::sync::Arc;

use clap::ValueEnum;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, Uri};
use serde::Serialize;

use crate::load::connection::Address;
use crate::load::crowd::Crowd;
use crate::load::record::Ending;
use flash_sale::sale::ids::CouponId;

/// Each by itself: the average of a win and a refusal is the cost of neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The ceiling: what every claim costs, apart from the claim
    NoOp,
    /// A bare axum route of the bench's own, without middleware or token: the ceiling of the ceiling
    Bare,
    /// Read the coupon
    Read,
    /// Each user gets a unit
    Win,
    /// No claim wins, because no unit is left
    SoldOut,
    /// Buyers claim again
    Duplicate,
    /// One win to 99 refusals
    Mixed,
    /// Silence, then all users at the same instant; a unit for one in ten
    Countdown,
}

/// Buyers who claim again and again.
pub const REPEATING_BUYERS: usize = 256;
/// In the mixed scenario one request in so many wins.
const MIXED_PERIOD: u64 = 100;

/// A scenario of requests on one coupon or two.
#[derive(Clone)]
pub struct Workload {
    /// Addresses of the service's processes; connections are spread over them evenly.
    pub addresses: Vec<Address>,
    pub method: Method,
    pub paths: Paths,
    pub who: Senders,
    /// Statuses of a hoped-for answer.
    pub hoped: &'static [u16],
}

/// Paths of the requests.
#[derive(Clone)]
pub enum Paths {
    /// One after the other; mostly there is one.
    InTurn(Vec<Uri>),
    /// One win to 99 refusals.
    Mixed { win: Uri, refusal: Uri },
}

/// Senders of the requests.
#[derive(Clone)]
pub enum Senders {
    /// No user.
    None,
    /// Each user once.
    All(Arc<Crowd>),
    /// The same few, again and again.
    Few(Arc<Crowd>),
}

/// Possible sales of a slice, to be compared with the stores.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pub scenario: String,
    pub coupons: Vec<CouponId>,
    /// Units on offer.
    pub total: i64,
    /// Claims answered 202.
    pub accepted: u64,
    /// Claims of unknown outcome: each may have taken a unit or not.
    pub unknown: u64,
}

impl Workload {
    /// The request with this index; `None`: there is no user left to send it.
    pub fn request(&self, index: u64) -> Option<Request<Full<Bytes>>> {
        let token = match &self.who {
            Senders::None => None,
            Senders::All(crowd) => Some(crowd.header(usize::try_from(index).ok()?)?),
            Senders::Few(crowd) => {
                let few = crowd.len().max(1) as u64;
                Some(crowd.header(usize::try_from(index % few).ok()?)?)
            }
        };
        let path = match &self.paths {
            Paths::Mixed { win, .. } if index.is_multiple_of(MIXED_PERIOD) => win,
            Paths::Mixed { refusal, .. } => refusal,
            Paths::InTurn(paths) => {
                let turns = paths.len().max(1) as u64;
                paths.get(usize::try_from(index % turns).ok()?)?
            }
        };
        Some(self.addresses.first()?.request(&self.method, path, token))
    }
}

impl Scenario {
    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Units to offer for so many requests.
    pub fn stock(self, requests: u64) -> i64 {
        let units = match self {
            Self::NoOp | Self::Bare | Self::Read | Self::SoldOut => 1,
            Self::Duplicate => REPEATING_BUYERS as u64,
            Self::Win => requests,
            Self::Mixed => requests / MIXED_PERIOD + 1,
            Self::Countdown => requests.div_ceil(10),
        };
        i64::try_from(units).unwrap_or(i64::MAX)
    }

    /// The statuses of the answers that belong into this scenario.
    pub fn hoped(self) -> &'static [u16] {
        match self {
            Self::NoOp | Self::Bare => &[202],
            // At the level `postgres` the answer is the order itself.
            Self::Win => &[202, 201],
            Self::Read => &[200],
            Self::SoldOut => &[410],
            Self::Duplicate => &[409],
            Self::Mixed | Self::Countdown => &[202, 410],
        }
    }

    /// Whether its 202s are sold units.
    pub fn sells(self) -> bool {
        !matches!(self, Self::NoOp | Self::Bare | Self::Read)
    }

    /// Whether such an answer belongs into this scenario.
    pub fn expects(self, ending: &Ending) -> bool {
        let code = (ending.status, ending.code.as_str());
        match self {
            Self::NoOp | Self::Bare => code == (202, ""),
            Self::Win => [(202, ""), (201, "")].contains(&code),
            Self::Read => code == (200, ""),
            Self::SoldOut => code == (410, "sold_out"),
            Self::Duplicate => code == (409, "already_claimed"),
            Self::Mixed | Self::Countdown => [(202, ""), (410, "sold_out")].contains(&code),
        }
    }
}

/// The complaint about an answer that doesn't belong into the scenario: `None` for the service's own trouble (a failure,
/// `overloaded`), which is a result and no mistake of the run.
pub fn misplaced(scenario: Scenario, ending: &Ending) -> Option<String> {
    let is_trouble = ending.status == 0 || ending.status >= 500;
    (!is_trouble && !scenario.expects(ending)).then(|| {
        format!(
            "{} requests of {} were answered {} {}, which doesn't belong there",
            ending.count,
            scenario.name(),
            ending.status,
            ending.code
        )
    })
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use private_servers::testing::bound_this_test;

    use super::*;
    use crate::load::crowd::FIRST_USER;
    use flash_sale::kit::jwt::Tokens;

    async fn workload(paths: Paths, who: fn(Arc<Crowd>) -> Senders) -> Workload {
        let tokens = Tokens::new(&SecretString::from("0123456789abcdef0123456789abcdef"));
        let crowd = Arc::new(Crowd::sign(&tokens, FIRST_USER, 150));
        Workload {
            addresses: vec![Address::of("http://127.0.0.1:1").await.unwrap()],
            method: Method::POST,
            paths,
            who: who(crowd),
            hoped: &[202],
        }
    }

    #[tokio::test]
    async fn mixed_is_one_win_to_99_refusals() {
        bound_this_test();
        let win = Uri::from_static("/win");
        let paths = Paths::Mixed { win, refusal: Uri::from_static("/refusal") };
        let mixed = workload(paths, Senders::All).await;
        let wins = (0..100).filter(|index| mixed.request(*index).unwrap().uri() == "/win");
        assert_eq!(wins.count(), 1);
        assert_eq!(Scenario::Mixed.stock(1_000), 11);
    }

    #[tokio::test]
    async fn everybody_comes_once_and_the_few_come_again() {
        bound_this_test();
        let token = |request: Option<Request<_>>| {
            request.map(|request| request.headers()["authorization"].clone())
        };
        let paths = |paths: &[&'static str]| {
            Paths::InTurn(paths.iter().map(|path| Uri::from_static(path)).collect())
        };
        let win = workload(paths(&["/win"]), Senders::All).await;
        assert_ne!(token(win.request(0)), token(win.request(149)));
        assert!(win.request(150).is_none(), "there is no 151st user");
        let duplicate = workload(paths(&["/win"]), Senders::Few).await;
        assert_eq!(token(duplicate.request(1)), token(duplicate.request(151)));
        let lanes = workload(paths(&["/one", "/two"]), Senders::All).await;
        assert_eq!(lanes.request(2).unwrap().uri(), "/one");
        assert_eq!(lanes.request(3).unwrap().uri(), "/two");
    }

    #[test]
    fn an_answer_from_another_scenario_is_noticed() {
        let ending = |status, code: &str| Ending { status, code: code.to_owned(), count: 3 };
        assert!(misplaced(Scenario::Win, &ending(202, "")).is_none());
        assert!(misplaced(Scenario::Win, &ending(503, "overloaded")).is_none());
        assert!(misplaced(Scenario::Win, &ending(410, "sold_out")).is_some());
        assert!(misplaced(Scenario::SoldOut, &ending(401, "invalid_token")).is_some());
    }
}
