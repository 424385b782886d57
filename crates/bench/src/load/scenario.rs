//! Scenarios: the next request, and the answers that belong there.

use std::sync::Arc;

use clap::ValueEnum;
use flash_sale::store::ids::CouponId;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, Uri};
use serde::Serialize;

use crate::load::connection::Address;
use crate::load::crowd::Crowd;
use crate::load::record::Ending;

/// Each by itself: the average of a win and a refusal is the cost of neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// A bare axum route of the bench's own, without middleware or token: the ceiling of the ceiling
    Bare,
    /// The ceiling: what every claim costs, apart from the claim
    NoOp,
    /// Each user gets a unit
    Win,
    /// No claim wins, because no unit is left
    SoldOut,
    /// Buyers claim again
    Duplicate,
}

/// Buyers who claim again and again.
pub const REPEATING_BUYERS: usize = 256;

/// The requests of a slice.
#[derive(Clone)]
pub struct Workload {
    pub address: Address,
    pub method: Method,
    pub path: Uri,
    pub who: Senders,
    /// Statuses of a hoped-for answer.
    pub hoped: &'static [u16],
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
    pub coupon: Option<CouponId>,
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
        Some(self.address.request(&self.method, &self.path, token))
    }
}

impl Scenario {
    pub const ALL: [Self; 5] = [Self::Bare, Self::NoOp, Self::Win, Self::SoldOut, Self::Duplicate];

    /// As on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Units to offer for so many requests.
    pub fn stock(self, requests: u64) -> i64 {
        let units = match self {
            Self::NoOp | Self::Bare | Self::SoldOut => 1,
            Self::Duplicate => REPEATING_BUYERS as u64,
            Self::Win => requests,
        };
        i64::try_from(units).unwrap_or(i64::MAX)
    }

    /// The statuses of the answers that belong into this scenario.
    pub fn hoped(self) -> &'static [u16] {
        match self {
            Self::NoOp | Self::Bare => &[202],
            // At the level `postgres` the answer is the order itself.
            Self::Win => &[202, 201],
            Self::SoldOut => &[410],
            Self::Duplicate => &[409],
        }
    }

    /// Whether its 202s are sold units.
    pub fn sells(self) -> bool {
        !matches!(self, Self::NoOp | Self::Bare)
    }

    /// Whether such an answer belongs into this scenario.
    pub fn expects(self, ending: &Ending) -> bool {
        let code = match self {
            Self::NoOp | Self::Bare | Self::Win => "",
            Self::SoldOut => "sold_out",
            Self::Duplicate => "already_claimed",
        };
        self.hoped().contains(&ending.status) && ending.code == code
    }
}

/// The complaint about an answer that doesn't belong into the scenario: `None` for the service's own trouble (a failure,
/// `overloaded`), which is a result and no mistake of the run.
pub fn misplaced(scenario: Scenario, ending: &Ending) -> Option<String> {
    let is_trouble = ending.status == 0 || ending.status >= 500;
    (!is_trouble && !scenario.expects(ending)).then(|| {
        let Ending { status, code, count } = ending;
        let name = scenario.name();
        format!(
            "{count} requests of {name} were answered {status} {code}, which doesn't belong there"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_from_another_scenario_is_noticed() {
        let ending = |status, code: &str| Ending { status, code: code.to_owned(), count: 3 };
        assert!(misplaced(Scenario::Win, &ending(202, "")).is_none());
        assert!(misplaced(Scenario::Win, &ending(503, "overloaded")).is_none());
        assert!(misplaced(Scenario::Win, &ending(410, "sold_out")).is_some());
        assert!(misplaced(Scenario::SoldOut, &ending(401, "invalid_token")).is_some());
    }
}
