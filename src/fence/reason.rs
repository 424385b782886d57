//! Reasons for which lanes are closed.

/// Reason for which a lane is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosureReason {
    /// Redis has another replication ID than the approved one: it was started anew, synchronised anew or promoted.
    OtherReplicationId,
    /// Redis hasn't the lane.
    DataLost,
    /// Redis has an older epoch.
    OlderEpoch,
    /// A comparison has found another set of buyers in Redis than Postgres has.
    Differs,
    /// Redis has the lane closed, and Postgres has it open.
    CutOff,
    /// Redis lacks a sale, or a part of it.
    SaleLost,
    /// Redis lacks the order log, or the part of it that was there before another program began it anew.
    LogLost,
    /// A process has promised claims that neither store has.
    PromisesLost,
    /// Postgres lacks what Redis has seen written.
    PostgresBehind,
    /// Postgres has another life than the one that the lanes were opened for.
    OtherPostgres,
    /// An operator's word.
    Operator,
}

impl ClosureReason {
    /// The reason as rows and log lines have it.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::OtherReplicationId => "Redis has another replication ID",
            Self::DataLost => "Redis has lost its data",
            Self::OlderEpoch => "Redis has an older epoch",
            Self::Differs => "a comparison found that Redis has other buyers than Postgres",
            Self::CutOff => "a recovery was cut off",
            Self::SaleLost => "Redis has lost a sale",
            Self::LogLost => "Redis has lost the order log",
            Self::PromisesLost => "a process promised claims that were lost",
            Self::PostgresBehind => "Postgres is behind Redis",
            Self::OtherPostgres => "another life of Postgres answers",
            Self::Operator => "an operator asked for it",
        }
    }
}
