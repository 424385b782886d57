//! Durability levels: how much has to break before a confirmed write can be lost (docs/durability.md).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::{Decode, Postgres, Type};

/// Durability level of confirmed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Level {
    /// A write is confirmed once Redis has it in memory.
    Memory,
    /// A write is confirmed once Redis has it on disk (`appendfsync always`).
    Fsync,
    /// A write is confirmed once so many replicas have it, too.
    Replica(u32),
    /// A write is confirmed once Postgres has committed it.
    Postgres,
}

/// Conditions of a confirmation: those of several levels add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Redis has it on disk.
    pub fsync: bool,
    /// Replicas that have it, at least.
    pub replicas: u32,
    /// Postgres has committed it.
    pub row: bool,
}

/// Replicas that a level may ask for, at most.
const REPLICAS_MAX: u32 = 9;

impl Conditions {
    /// The conditions of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            fsync: self.fsync || other.fsync,
            replicas: self.replicas.max(other.replicas),
            row: self.row || other.row,
        }
    }
}

impl From<Level> for Conditions {
    fn from(level: Level) -> Self {
        match level {
            Level::Memory => Self::default(),
            Level::Fsync => Self { fsync: true, ..Self::default() },
            Level::Replica(replicas) => Self { replicas, ..Self::default() },
            Level::Postgres => Self { row: true, ..Self::default() },
        }
    }
}

/// As settings and stores have it: `memory`, `fsync`, `replica`, `replica:2`, `postgres`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Fsync => f.write_str("fsync"),
            Self::Replica(1) => f.write_str("replica"),
            Self::Replica(replicas) => write!(f, "replica:{replicas}"),
            Self::Postgres => f.write_str("postgres"),
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "give memory, fsync, replica, replica:N with N up to {REPLICAS_MAX}, or postgres"
            )
        };
        match text {
            "memory" => Ok(Self::Memory),
            "fsync" => Ok(Self::Fsync),
            "replica" => Ok(Self::Replica(1)),
            "postgres" => Ok(Self::Postgres),
            _ => {
                let replicas = text.strip_prefix("replica:").and_then(|count| count.parse().ok());
                let replicas = replicas.filter(|count| (1..=REPLICAS_MAX).contains(count));
                replicas.map(Self::Replica).ok_or_else(unknown)
            }
        }
    }
}

impl From<Level> for String {
    fn from(level: Level) -> Self {
        level.to_string()
    }
}

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Type<Postgres> for Level {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }

    fn compatible(column: &PgTypeInfo) -> bool {
        <str as Type<Postgres>>::compatible(column)
    }
}

impl Decode<'_, Postgres> for Level {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        Ok(<&str as Decode<Postgres>>::decode(value)?.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_written_as_they_are_read() {
        for text in ["memory", "fsync", "replica", "replica:2", "replica:9", "postgres"] {
            assert_eq!(text.parse::<Level>().unwrap().to_string(), text);
        }
        assert_eq!("replica:1".parse(), Ok(Level::Replica(1)));
        for text in ["", "disk", "Fsync", "replica:", "replica:0", "replica:10", "replica:x"] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_conditions_of_two_levels_add_up() {
        let of = |level: &str| Conditions::from(level.parse::<Level>().unwrap());
        assert_eq!(of("memory"), Conditions::default());
        assert_eq!(of("fsync").and(of("memory")), of("fsync"));
        assert_eq!(
            of("fsync").and(of("replica:2")).and(of("replica")),
            Conditions { fsync: true, replicas: 2, row: false }
        );
        assert!(of("postgres").row && !of("postgres").fsync);
    }
}
