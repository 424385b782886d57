//! The rungs, in the order of the climb.

use crate::by_engine::ByEngine;
use crate::by_engine::message_first::MessageFirst;
use crate::by_engine::message_last::MessageLast;
use crate::by_engine::relay::Relay;
use crate::by_engine::transaction::Transaction;
use crate::child::play;
use crate::counters::decrement_then_check::DecrementThenCheck;
use crate::counters::lock_for_all::LockForAll;
use crate::counters::lock_for_each_user::LockForEachUser;
use crate::database::compare_and_swap::CompareAndSwap;
use crate::database::conditional_update::ConditionalUpdate;
use crate::database::lock_in_process::LockInProcess;
use crate::database::one_for_each_user::OneForEachUser;
use crate::database::read_check_write::ReadCheckWrite;
use crate::database::released_too_early::ReleasedTooEarly;
use crate::database::row_lock::RowLock;
use crate::queue::Queued;
use crate::queue::acknowledged_first::AcknowledgedFirst;
use crate::queue::concurrent_consumers::ConcurrentConsumers;
use crate::queue::in_process::InProcess;
use crate::queue::list::List;
use crate::queue::maxlen::Maxlen;
use crate::queue::no_take_over::NoTakeOver;
use crate::queue::publish::Publish;
use crate::queue::spin_lock::SpinLock;
use crate::scene::Task;
use crate::service::http::Http;
use crate::service::library::Library;

/// Place of the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Till {
    Postgres,
    Redis,
    Service,
}

/// Moment of the SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// Right after the last answer.
    AfterTheAnswers,
    /// Right after the last answer, while the table of orders is locked: so an order that was promised before it was
    /// written is no row yet, and one is in the hands of each consumer.
    BeforeTheWrites,
    /// While each of the first requests waits for the table, and none has an answer.
    BeforeTheAnswers,
    /// While the first requests have taken a unit, and the design has not told anybody yet.
    InTheGap,
    Never,
}

#[derive(Clone, Copy, Debug)]
pub struct Rung {
    pub number: &'static str,
    pub key: &'static str,
    pub title: &'static str,
    pub till: Till,
    pub kill: Kill,
    /// Processes that sell from one stock.
    pub processes: u32,
    /// Whether the table of orders has the unique index of one order for each user.
    pub unique: bool,
    /// Requests in a round of the crowd in step.
    pub in_step: usize,
    /// Whether orders go through a message engine.
    pub by_engine: bool,
    /// Whether the table of orders is locked until the crowd has its answers.
    pub slow_writes: bool,
}

const fn rung(
    number: &'static str,
    key: &'static str,
    title: &'static str,
    till: Till,
    kill: Kill,
) -> Rung {
    let unique =
        matches!((till, kill), (Till::Redis, Kill::BeforeTheWrites | Kill::InTheGap | Kill::Never));
    Rung {
        number,
        key,
        title,
        till,
        kill,
        processes: 1,
        unique,
        in_step: 80,
        by_engine: false,
        slow_writes: false,
    }
}

const fn database(number: &'static str, key: &'static str, title: &'static str) -> Rung {
    rung(number, key, title, Till::Postgres, Kill::AfterTheAnswers)
}

const fn queue(number: &'static str, key: &'static str, title: &'static str) -> Rung {
    rung(number, key, title, Till::Redis, Kill::BeforeTheWrites)
}

const fn engine(number: &'static str, key: &'static str, title: &'static str, kill: Kill) -> Rung {
    Rung { by_engine: true, ..rung(number, key, title, Till::Redis, kill) }
}

const fn service(number: &'static str, key: &'static str, title: &'static str) -> Rung {
    rung(number, key, title, Till::Service, Kill::BeforeTheWrites)
}

pub const RUNGS: [Rung; 31] = [
    database("1", "read-check-write", "read, check, write"),
    database("2a", "lock-in-process", "a lock in the process"),
    Rung {
        processes: 2,
        in_step: 50,
        ..database("2b", "lock-in-two-processes", "the same in two processes")
    },
    // Each request of a round holds a connection.
    Rung {
        in_step: 16,
        ..database("3", "released-too-early", "a lock released before the commit")
    },
    database("4", "row-lock", "SELECT ... FOR UPDATE"),
    database("5", "compare-and-swap", "a version, compared and swapped"),
    database("6", "conditional-update", "UPDATE ... WHERE units > 0"),
    database("7a", "counted-first", "6, and the user's orders counted first"),
    Rung { unique: true, ..database("7b", "unique-index", "the same with a unique index") },
    database("8", "lock-for-each-user", "6, and a lock in Redis for each user"),
    // Each request that waits asks for the lock again and again.
    Rung { in_step: 20, ..database("9", "lock-for-all", "one lock in Redis for all") },
    rung("10", "decrement-then-check", "DECR, then a check", Till::Redis, Kill::BeforeTheAnswers),
    queue("11a", "in-process", "a script, and a queue in the process"),
    Rung {
        slow_writes: true,
        ..rung("11b", "in-process-full", "the same with room for 64", Till::Redis, Kill::Never)
    },
    queue("12", "list", "a script, and a list"),
    queue("13", "publish", "a script, and Pub/Sub"),
    queue("14", "acknowledged-first", "a stream, acknowledged before the write"),
    queue("15", "no-take-over", "a stream, and no take-over"),
    Rung { slow_writes: true, ..queue("16", "maxlen", "a stream with MAXLEN") },
    queue("17", "spin-lock", "a stream, one consumer, a spin lock"),
    queue("18", "concurrent-consumers", "a stream, eight consumers"),
    engine("19", "message-last", "a script, then a message to an engine", Kill::InTheGap),
    engine("20", "message-first", "the message first, then the script", Kill::BeforeTheWrites),
    engine("21", "transaction", "a transaction message", Kill::InTheGap),
    engine("22", "relay", "a stream in the script, and a relay", Kill::BeforeTheWrites),
    service("23a", "library", "this service, through its library"),
    service("23b", "http", "this service, through HTTP"),
    service("24a", "level-memory", "this service, memory"),
    service("24b", "level-fsync", "this service, fsync"),
    // This one answers once the order is a row, so its table can't be locked meanwhile.
    rung("24c", "level-postgres", "this service, postgres", Till::Service, Kill::AfterTheAnswers),
    service("24d", "level-replica", "this service, replica"),
];

impl Rung {
    /// Level of durability that the rung asks for.
    pub fn level(&self) -> Option<&'static str> {
        self.key.strip_prefix("level-")
    }
}

/// Plays the design of a task, in this process.
pub async fn play_design(task: Task) -> anyhow::Result<()> {
    match task.rung.as_str() {
        "read-check-write" => play::<ReadCheckWrite>(task).await,
        "lock-in-process" | "lock-in-two-processes" => play::<LockInProcess>(task).await,
        "released-too-early" => play::<ReleasedTooEarly>(task).await,
        "row-lock" => play::<RowLock>(task).await,
        "compare-and-swap" => play::<CompareAndSwap>(task).await,
        "conditional-update" => play::<ConditionalUpdate>(task).await,
        "counted-first" | "unique-index" => play::<OneForEachUser>(task).await,
        "lock-for-each-user" => play::<LockForEachUser>(task).await,
        "lock-for-all" => play::<LockForAll>(task).await,
        "decrement-then-check" => play::<DecrementThenCheck>(task).await,
        "in-process" => play::<InProcess<1_000_000>>(task).await,
        "in-process-full" => play::<InProcess<64>>(task).await,
        "list" => play::<Queued<List>>(task).await,
        "publish" => play::<Publish>(task).await,
        "acknowledged-first" => play::<Queued<AcknowledgedFirst>>(task).await,
        "no-take-over" => play::<Queued<NoTakeOver>>(task).await,
        "maxlen" => play::<Queued<Maxlen>>(task).await,
        "spin-lock" => play::<Queued<SpinLock>>(task).await,
        "concurrent-consumers" => play::<Queued<ConcurrentConsumers>>(task).await,
        "message-last" => play::<ByEngine<MessageLast>>(task).await,
        "message-first" => play::<ByEngine<MessageFirst>>(task).await,
        "transaction" => play::<ByEngine<Transaction>>(task).await,
        "relay" => play::<ByEngine<Relay>>(task).await,
        "http" => play::<Http>(task).await,
        _ => play::<Library>(task).await,
    }
}
