//! Failures of Redis, Postgres and the payment gateway.

use std::sync::Arc;

use ::redis::RedisError;

use crate::base::limits;
use crate::store::ids::{CouponId, Lane};
use crate::store::{postgres, redis};

/// Advice for the case that another installation sells from this Redis.
pub const REMEDY_OTHER_INSTALLATION: &str = "nothing in it was touched; give this installation a Redis of its own, or a --key-prefix of its own on this one, or name the database that the sales in Redis belong to";

/// A failure: it is unknown whether the request took effect. Repeating the request is safe, and finds out. Refusals are
/// values, never failures.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Redis gave no answer in time, or a wrong one.
    #[error("Redis: {0}")]
    Redis(#[from] RedisError),
    /// Postgres gave no answer in time, or a wrong one.
    #[error("Postgres: {0}")]
    Postgres(#[from] sqlx::Error),
    /// The payment gateway gave no answer in time, or a wrong one.
    #[error("the payment gateway: {0}")]
    Gateway(String),
    #[error("the payment gateway refuses the refund: {0}")]
    RefundRefused(String),
    /// The payment gateway has not answered about this payment for a long time.
    #[error("the payment gateway gives no answer: {0}")]
    Unheard(String),
    /// Postgres says that Redis has this sale, but Redis lacks all or part of it. What else is lost is unknown.
    #[error(
        "coupon {0}, or part of it, is missing in Redis, which has lost data; it stays closed until it is rebuilt"
    )]
    DataLost(CouponId),
    /// The lane is closed until Redis has been compared with Postgres.
    #[error("lane {0} is recovering: Redis has been started anew, or has lost data")]
    Recovering(Lane),
    /// Postgres lacks claims that Redis has. An operator has to decide.
    #[error(
        "ALARM: Postgres is behind Redis ({0}): it went back in time, or is a copy; all lanes stay closed until `flash-sale recover --trust redis` or `--trust postgres` says which of them is right (docs/guarantees.md)"
    )]
    Apart(String),
    /// Redis holds another sale under this coupon's id.
    #[error(
        "coupon {0} can't be loaded: Redis has a sale under its id of which Postgres knows nothing; end the coupon and create another one, or remove that sale by `flash-sale recover --trust postgres`"
    )]
    OtherSale(CouponId),
    #[error(
        "ALARM: lane {0} in Redis belongs to another installation: {REMEDY_OTHER_INSTALLATION}"
    )]
    OtherInstallation(Lane),
    /// Redis can't keep a confirmed claim at the configured durability, for this reason. So the claim is not confirmed.
    #[error("a claim can't be confirmed with the durability that is asked for: {0}")]
    NotKept(&'static str),
    /// The sale has another epoch in Redis than this process expects.
    #[error("coupon {0} has another epoch in Redis than in Postgres")]
    Stale(CouponId),
    /// Another session keeps the row of this sale locked in Postgres.
    #[error("the row of coupon {0} is kept locked in Postgres by another session: {1}")]
    Locked(CouponId, String),
    /// Another holder has kept the buyer's lock for too long.
    #[error("the buyer's lock is held elsewhere")]
    LockBusy,
    /// The user's unpaid order was closed, more than once, while a new order was being made.
    #[error("the user's order of coupon {0} kept changing")]
    OrderMoved(CouponId),
    /// The claim shared a call with others, and got no reply in time.
    #[error("no reply to a claim within its time")]
    NoReply,
    #[error("a script answered {0:?}, which this version doesn't know")]
    UnknownReply(String),
    /// Another caller's attempt, for which this caller waited, has failed.
    #[error(transparent)]
    Shared(#[from] Arc<Failure>),
}

impl Failure {
    /// Whether the lane is recovering. The same request works once the lane is open.
    pub fn is_recovering(&self) -> bool {
        match self {
            Self::Recovering(_) => true,
            Self::Shared(failure) => failure.is_recovering(),
            _ => false,
        }
    }

    /// Whether the item at hand is at fault, and not a store. Then another item may succeed at the same moment, and
    /// this one would fail again at once. A job postpones such an item and goes on with the others
    /// (`store/postponed.rs`). After any other failure the job stops, and is run again.
    pub fn is_of_item(&self) -> bool {
        match self {
            Self::Redis(error) => redis::is_data_error(error),
            Self::Postgres(error) => is_of_row(error),
            Self::DataLost(_) | Self::Stale(_) | Self::UnknownReply(_) => true,
            Self::OtherSale(_) | Self::Locked(..) | Self::RefundRefused(_) | Self::Unheard(_) => {
                true
            }
            // These pass without help, or concern all items.
            Self::Gateway(_) | Self::LockBusy | Self::OrderMoved(_) | Self::NoReply => false,
            Self::Recovering(_)
            | Self::OtherInstallation(_)
            | Self::Apart(_)
            | Self::NotKept(_) => false,
            Self::Shared(failure) => failure.is_of_item(),
        }
    }

    /// Whether a Redis server doesn't answer, or refuses all commands.
    pub fn is_of_redis(&self) -> bool {
        match self {
            Self::Redis(error) => !redis::is_data_error(error),
            Self::Shared(failure) => failure.is_of_redis(),
            _ => false,
        }
    }

    /// True if the same request fails however often it is repeated: Postgres refuses a value, or a row can't be read.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Postgres(sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. }) => true,
            Self::Postgres(error) => postgres::is_data_error(error),
            Self::Shared(failure) => failure.is_permanent(),
            _ => false,
        }
    }

    /// True if another session kept a lock in Postgres for as long as a statement waits. It may have locked a row or a
    /// whole table, or Postgres was too slow to end a transaction.
    pub fn is_of_lock(&self) -> bool {
        match self {
            Self::Postgres(error) => postgres::is_lock_timeout(error),
            Self::Shared(failure) => failure.is_of_lock(),
            _ => false,
        }
    }
}

/// Runs `work` on Postgres, and retries it if Postgres rolled it back in favour of another session.
///
/// # Errors
///
/// When the work fails for another reason, or after [`limits::POSTGRES_CONFLICT_TRIES`] tries.
pub async fn repeated<T, E, F>(work: impl Fn() -> F) -> Result<T, Failure>
where
    E: Into<Failure>,
    F: Future<Output = Result<T, E>>,
{
    let mut tries = limits::POSTGRES_CONFLICT_TRIES;
    loop {
        tries -= 1;
        match work().await.map_err(E::into) {
            Err(Failure::Postgres(error)) if tries > 0 && postgres::is_conflict(&error) => {}
            done => return done,
        }
    }
}

/// Replaces control characters, so that Postgres can store the text and it stays on one line. What a store answers may
/// hold any character.
pub fn in_plain_text(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Whether one row is at fault: Postgres refuses it, it can't be read, or it is missing.
fn is_of_row(error: &sqlx::Error) -> bool {
    use sqlx::Error::{ColumnDecode, Decode, RowNotFound};
    postgres::is_data_error(error) || matches!(error, RowNotFound | Decode(_) | ColumnDecode { .. })
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::error::Error;
    use std::fmt;

    use ::redis::{ErrorKind, ServerErrorKind, make_extension_error};
    use sqlx::error::{DatabaseError, ErrorKind as SqlErrorKind};

    use super::*;

    /// An error of Postgres with this SQLSTATE.
    #[derive(Debug)]
    struct Refused(&'static str);

    impl fmt::Display for Refused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Refused {}

    impl DatabaseError for Refused {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn kind(&self) -> SqlErrorKind {
            SqlErrorKind::Other
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }
    }

    fn sql(state: &'static str) -> Failure {
        sqlx::Error::Database(Box::new(Refused(state))).into()
    }

    fn answered(code: &str, details: &str) -> Failure {
        make_extension_error(code.to_owned(), Some(details.to_owned())).into()
    }

    fn redis(kind: ErrorKind) -> Failure {
        RedisError::from((kind, "it says")).into()
    }

    fn coupon() -> CouponId {
        CouponId::compose(1, 1)
    }

    #[test]
    fn an_item_is_at_fault_where_another_one_may_fare_better() {
        let unreadable = || sqlx::Error::Decode("x".into());
        let of_item: [Failure; 13] = [
            sql("22003"),
            sql("22P02"),
            sql("23505"),
            sql("23514"),
            sqlx::Error::RowNotFound.into(),
            unreadable().into(),
            answered("WRONGTYPE", "Operation against a key holding the wrong kind of value"),
            answered("ERR", "user_script:12: attempt to perform arithmetic on a nil value"),
            answered("ERR", "hash value is not an integer script: 5f, on @user_script:47."),
            redis(ErrorKind::UnexpectedReturnType),
            Failure::DataLost(coupon()),
            Failure::Stale(coupon()),
            Failure::UnknownReply("WHAT".into()),
        ];
        for failure in of_item {
            assert!(failure.is_of_item(), "{failure:?}");
            assert!(Failure::Shared(Arc::new(failure)).is_of_item());
        }
    }

    #[test]
    fn a_store_is_at_fault_where_every_item_would_fail() {
        // One of each SQLSTATE class that doesn't concern the data.
        let states = [
            "08006", "0A000", "21000", "25006", "25P02", "26000", "28P01", "2D000", "34000",
            "3D000", "40001", "40P01", "42501", "42P01", "42703", "53100", "53300", "54001",
            "55P03", "57014", "57P01", "57P03", "58030", "F0000", "HV000", "P0001", "XX000",
            "XX001",
        ];
        let redis_codes =
            ["OOM", "MISCONF", "NOAUTH", "BUSY", "NOGROUP", "NOREPLICAS", "UNKILLABLE"];
        let mut of_store: Vec<Failure> = states.map(sql).into();
        of_store
            .extend(redis_codes.map(|code| answered(code, "... script: 5f, on @user_script:3.")));
        of_store.extend([
            sqlx::Error::PoolTimedOut.into(),
            sqlx::Error::PoolClosed.into(),
            sqlx::Error::WorkerCrashed.into(),
            sqlx::Error::Protocol("x".into()).into(),
            sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()).into(),
            answered("ERR", "max number of clients reached"),
            answered("ERR", "unknown command 'EVALSHA'"),
            redis(ErrorKind::Io),
            redis(ErrorKind::AuthenticationFailed),
            redis(ErrorKind::Client),
            redis(ErrorKind::Server(ServerErrorKind::ReadOnly)),
            redis(ErrorKind::Server(ServerErrorKind::BusyLoading)),
            redis(ErrorKind::Server(ServerErrorKind::NoScript)),
            redis(ErrorKind::Server(ServerErrorKind::ClusterDown)),
            redis(ErrorKind::Server(ServerErrorKind::NoPerm)),
            Failure::LockBusy,
            Failure::OrderMoved(coupon()),
            Failure::NoReply,
            Failure::NotKept("x"),
        ]);
        for failure in of_store {
            assert!(!failure.is_of_item(), "{failure:?}");
            assert!(!Failure::Shared(Arc::new(failure)).is_of_item());
        }
    }

    #[test]
    fn a_lock_that_is_kept_is_told_from_other_failures_also_to_those_that_share_it() {
        for (failure, is_of_lock) in [
            (sql("55P03"), true),
            (sql("57014"), false),
            (sql("55000"), false),
            (sqlx::Error::PoolTimedOut.into(), false),
            (Failure::LockBusy, false),
        ] {
            assert_eq!(failure.is_of_lock(), is_of_lock, "{failure:?}");
            assert_eq!(Failure::Shared(Arc::new(failure)).is_of_lock(), is_of_lock);
        }
    }

    #[test]
    fn text_from_a_store_can_be_kept() {
        assert_eq!(in_plain_text("a\0b\nc\u{7f}é"), "a\u{fffd}b\u{fffd}c\u{fffd}é");
    }

    #[test]
    fn a_failure_that_is_shared_is_of_the_same_kind() {
        let lane = coupon().lane();
        for (failure, is_recovering, is_of_item) in [
            (Failure::Recovering(lane), true, false),
            (Failure::OtherInstallation(lane), false, false),
            (Failure::NoReply, false, false),
            (Failure::Gateway("busy".to_owned()), false, false),
            (Failure::RefundRefused("no".to_owned()), false, true),
        ] {
            let known = (failure.is_recovering(), failure.is_of_item());
            assert_eq!(known, (is_recovering, is_of_item), "{failure:?}");
            let shared = Failure::Shared(Arc::new(failure));
            let known = (shared.is_recovering(), shared.is_of_item());
            assert_eq!(known, (is_recovering, is_of_item), "{shared:?}");
        }
    }
}
