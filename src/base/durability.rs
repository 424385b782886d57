//! Durability levels: how much has to fail before a confirmed write can be lost (docs/guarantees.md).

use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A write is confirmed once Redis has it in memory.
    Memory,
    /// A write is confirmed once Redis has it on disk (`appendfsync always`).
    Fsync,
    /// As `Fsync` on a server that doesn't tell its settings: its operator declares that what it has answered survives a
    /// restart.
    Declared,
    /// A write is confirmed once this many replicas have it, too.
    Replica(u32),
    /// A write is confirmed once Postgres has committed it.
    Postgres,
}

/// Most replicas that a level may require.
const REPLICAS_MAX: u32 = 9;

impl Level {
    /// Number of replicas that must have a write before it is confirmed.
    pub fn replicas(self) -> u32 {
        match self {
            Self::Replica(replicas) => replicas,
            Self::Memory | Self::Fsync | Self::Declared | Self::Postgres => 0,
        }
    }
}

/// As in the setting: `memory`, `fsync`, `fsync:declared`, `replica`, `replica:2`, `postgres`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Fsync => f.write_str("fsync"),
            Self::Declared => f.write_str("fsync:declared"),
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
                "give memory, fsync, fsync:declared, replica, replica:N with N up to {REPLICAS_MAX}, or postgres"
            )
        };
        match text {
            "memory" => Ok(Self::Memory),
            "fsync" => Ok(Self::Fsync),
            "fsync:declared" => Ok(Self::Declared),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_written_as_they_are_read() {
        for text in
            ["memory", "fsync", "fsync:declared", "replica", "replica:2", "replica:9", "postgres"]
        {
            assert_eq!(text.parse::<Level>().unwrap().to_string(), text);
        }
        assert_eq!("replica:1".parse(), Ok(Level::Replica(1)));
        for text in ["", "disk", "Fsync", "replica:", "replica:0", "replica:10", "replica:x"] {
            assert!(text.parse::<Level>().is_err(), "{text}");
        }
    }
}
