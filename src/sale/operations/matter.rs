//! A matter that waits for an operator, and its place in the list of all.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of a matter, in the order of the list.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum MatterKind {
    /// A lane whose claims wait: closed, or not confirmed by Redis.
    Lane,
    /// A disagreement of the stores, in the newest comparison.
    Finding,
    /// A recovery with claims that could not be kept.
    Recovery,
    /// An open dead letter.
    DeadLetter,
    /// A payment that no order has.
    HeldPayment,
    /// A payment on its way back, which its gateway has not confirmed.
    Refund,
    /// An item that a pass could not deal with.
    Postponed,
    /// A job that has gone on for long.
    Job,
}

impl MatterKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Lane,
        Self::Finding,
        Self::Recovery,
        Self::DeadLetter,
        Self::HeldPayment,
        Self::Refund,
        Self::Postponed,
        Self::Job,
    ];

    /// Name of the kind in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lane => "lane",
            Self::Finding => "finding",
            Self::Recovery => "recovery",
            Self::DeadLetter => "dead_letter",
            Self::HeldPayment => "held_payment",
            Self::Refund => "refund",
            Self::Postponed => "postponed",
            Self::Job => "job",
        }
    }
}

/// A matter that waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Matter {
    /// Kind of the matter.
    pub kind: MatterKind,
    /// Id in the list of its kind. A lane has its number. A finding has the id of its comparison, a dot, and its number
    /// there.
    pub id: String,
    /// Time since which it waits; of a finding, the end of the comparison.
    pub since: DateTime<Utc>,
    /// The same as an age, in seconds.
    pub age_s: i64,
    /// The matter in words.
    pub detail: String,
    /// Its harm, in one sentence.
    pub harm: &'static str,
    /// Advice in words; null where the steps say all.
    pub advice: Option<String>,
    /// Steps of which one settles it.
    pub steps: Vec<Step>,
    /// Place in the list.
    #[serde(skip)]
    pub position: Position,
}

/// A step that settles a matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Step {
    /// Effect of the step.
    pub effect: &'static str,
    /// Command for a shell.
    pub command: String,
    /// The same over HTTP: method, path, and the body if there is one; null for a step that only the command takes.
    pub request: Option<String>,
}

/// Place of a matter in the list: `dead_letter-17`, or `finding-9.3` for the third finding of comparison 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Position {
    /// Kind of the matter.
    pub kind: MatterKind,
    /// Id in the list of its kind.
    pub id: i64,
    /// Number of a finding in its comparison; 0 for other kinds.
    pub part: u32,
}

/// Text of a place in the list.
#[derive(ToSchema)]
#[schema(
    max_length = 48,
    pattern = "^(lane-(0|[1-9][0-9]{0,3})|(finding|recovery|dead_letter|held_payment|refund|postponed|job)-[1-9][0-9]{0,18}([.][1-9][0-9]{0,8})?)$"
)]
pub struct PositionText(pub String);

/// A text that is no place in the list.
#[derive(Debug, thiserror::Error)]
#[error("give the `next_cursor` of the page before, such as `dead_letter-17`")]
pub struct InvalidPosition;

impl Position {
    /// Id of the matter in the list of its kind.
    pub fn id_in_words(self) -> String {
        match self.part {
            0 => self.id.to_string(),
            part => format!("{}.{part}", self.id),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kind.as_str(), self.id_in_words())
    }
}

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let (kind, id) = text.split_once('-').ok_or(InvalidPosition)?;
        let kind = MatterKind::ALL.into_iter().find(|known| known.as_str() == kind);
        let (id, part) = match id.split_once('.') {
            Some((id, part)) => (id, part.parse().map_err(|_| InvalidPosition)?),
            None => (id, 0),
        };
        let id = id.parse().map_err(|_| InvalidPosition)?;
        let position = Self { kind: kind.ok_or(InvalidPosition)?, id, part };
        // A place has one name. Lanes are numbered from 0.
        let canonical = (id > 0 || id == 0 && position.kind == MatterKind::Lane)
            && position.to_string() == text;
        canonical.then_some(position).ok_or(InvalidPosition)
    }
}

impl From<Position> for String {
    fn from(position: Position) -> Self {
        position.to_string()
    }
}

impl TryFrom<String> for Position {
    type Error = InvalidPosition;

    fn try_from(text: String) -> Result<Self, InvalidPosition> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_place_has_one_name() {
        for text in
            ["lane-0", "lane-1023", "dead_letter-17", "finding-9.3", "refund-9223372036854775807"]
        {
            let position: Position = text.parse().expect("it is a place");
            assert_eq!(position.to_string(), text);
        }
        let wrong = [
            "",
            "17",
            "dead_letter",
            "dead_letter-",
            "dead_letter-0",
            "dead_letter--1",
            "finding-9.",
            "finding-9.0",
            "finding-9.03",
            "cook-1",
            "refund-+1",
            "refund-9223372036854775808",
        ];
        for text in wrong {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }

    #[test]
    fn kinds_stand_in_the_order_of_the_list() {
        assert_eq!(MatterKind::ALL, MatterKind::value_variants());
        assert!(MatterKind::ALL.is_sorted());
        for kind in MatterKind::ALL {
            assert_eq!(serde_json::to_value(kind).expect("a word"), kind.as_str());
        }
    }
}
