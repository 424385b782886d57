//! Why lanes are closed.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosureReason {
    /// Redis has another replication ID than the approved one: it was restarted, resynchronised or promoted.
    OtherReplicationId,
    /// Redis lacks the lane.
    DataLost,
    /// Redis has an older epoch than Postgres.
    OlderEpoch,
    /// A comparison has found other buyers in Redis than in Postgres.
    Differs,
    /// The lane is closed in Redis and open in Postgres: a recovery was cut off.
    CutOff,
    /// Redis lacks a sale, or a part of it.
    SaleLost,
    /// Redis lacks the order log, or what was in it before another program began it anew.
    LogLost,
    /// A process has accepted claims that neither store has.
    PromisesLost,
    /// Postgres lacks what Redis has seen written.
    PostgresBehind,
    /// Postgres is another incarnation than the one that the lanes were opened for.
    OtherPostgres,
    /// An operator asked for it.
    Operator,
}

impl ClosureReason {
    /// The reason in words, for rows and log lines.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::OtherReplicationId => "Redis has another replication ID",
            Self::DataLost => "Redis has lost its data",
            Self::OlderEpoch => "Redis has an older epoch",
            Self::Differs => "a comparison found that Redis has other buyers than Postgres",
            Self::CutOff => "a recovery was cut off",
            Self::SaleLost => "Redis has lost a sale",
            Self::LogLost => "Redis has lost the order log",
            Self::PromisesLost => "a process accepted claims that were lost",
            Self::PostgresBehind => "Postgres is behind Redis",
            Self::OtherPostgres => "another run of Postgres answers",
            Self::Operator => "an operator asked for it",
        }
    }
}
