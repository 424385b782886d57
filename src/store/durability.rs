//! Durability of confirmed claims at run time: which level is configured, and whether Redis can keep it now. This
//! module also checks whether a server can be used at all, and repeats that in each run of the server, because a
//! setting may have changed in between.
//!
//! # Model
//!
//! A claim is confirmed under the condition of `--durability` (`base/durability.rs`). If the level can't be kept now,
//! the claim is neither confirmed nor refused: its outcome is *unknown*, and the client finds out by repeating it. A
//! repeat is confirmed under the same conditions.
//!
//! * `fsync` is kept while the append-only file is synced before each reply (`appendfsync always`, without
//!   `no-appendfsync-on-rewrite`), and while Redis would replay the whole file at its next start ([`Replay`]). It isn't
//!   kept while the file is written for the first time, because only a complete file counts. All of this can change at
//!   run time, so it is checked every [`crate::base::limits::DURABILITY_CHECK_PERIOD`], and again in each run of the
//!   server.
//! * `fsync:declared` is the same, but what the server doesn't let us read counts as kept.
//! * `replica` is kept call by call: WAIT follows the script on a connection of that call (`store/script.rs`).
//! * `postgres` is kept by the request, which waits for its order (`http/claims.rs`).
//!
//! # What is not promised
//!
//! A setting that an operator changes in Redis is noticed within a period, not at once. Replicas that have a claim keep
//! it only if one of them is promoted.

use std::sync::{Arc, Mutex, MutexGuard};

use ::redis::RedisResult;
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;

use crate::base::clock::{self, Clock};
use crate::base::durability::Level;
use crate::store::Failure;
use crate::store::fleet::Fleet;
use crate::store::redis::facts::{Replay, ServerFacts};
use crate::store::redis::{Link, Redis, ServerId};

/// Checks which levels a server can keep.
pub struct Durability {
    redis: Redis,
    level: Level,
    clock: Clock,
    seen: Mutex<Option<Arc<Seen>>>,
    /// Connections of calls that wait for replicas.
    idle: Mutex<Vec<Redis>>,
}

/// Result of one check of the server.
struct Seen {
    server: ServerId,
    /// Why the server can't be used for claims at any level; `None` if it can.
    unfit: Option<&'static str>,
    /// Why the server refuses all writes now; `None` if it takes them.
    refuses: Option<&'static str>,
    /// Redis's clock minus this process's clock.
    clock_ahead: TimeDelta,
    /// Why claims aren't on disk when they are answered; `None` if they are.
    not_on_disk: Option<&'static str>,
    has_file: bool,
    file_bytes: u64,
    replicas: u32,
}

/// A connection that no other call uses. It returns to the idle ones when it is dropped.
pub struct OwnConnection<'a> {
    owner: &'a Durability,
    /// `None` only while it is being dropped.
    redis: Option<Redis>,
}

impl Durability {
    /// Starts without having checked the server.
    pub fn new(redis: &Redis, level: Level, clock: &Clock) -> Self {
        Self {
            redis: redis.another(),
            level,
            clock: clock.clone(),
            seen: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Checks all servers. Without a configured `level`, uses `fsync` if each server that answers can keep it, else
    /// `memory`.
    ///
    /// # Errors
    ///
    /// When no server answers.
    pub async fn looked_up(
        fleet: &Fleet,
        level: Option<Level>,
        clock: &Clock,
    ) -> RedisResult<Fleet<Arc<Self>>> {
        let mut servers: Vec<Self> =
            fleet.each().map(|redis| Self::new(redis, Level::Memory, clock)).collect();
        let checks = join_all(servers.iter().map(Self::check)).await;
        if let Some(Err(error)) = checks.iter().find(|check| check.is_err())
            && !checks.iter().any(Result::is_ok)
        {
            return Err(error.clone());
        }
        // A file that is being written for the first time will be complete in a moment.
        let is_kept = |seen: &Arc<Seen>| matches!(seen.not_on_disk, None | Some(FIRST_FILE));
        let all = if checks.iter().flatten().all(is_kept) { Level::Fsync } else { Level::Memory };
        servers.iter_mut().for_each(|of_server| of_server.level = level.unwrap_or(all));
        let mut servers = servers.into_iter().map(Arc::new);
        Ok(fleet.map(|_| servers.next().expect("one for each")))
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Checks the server.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub async fn run_once(&self) -> RedisResult<()> {
        self.check().await.map(drop)
    }

    /// Fails if the server can't keep the level now. Checks a server run that hasn't been checked yet.
    ///
    /// # Errors
    ///
    /// [`Failure::NotKept`], or when Redis doesn't answer.
    pub async fn require(&self, link: &Link) -> Result<(), Failure> {
        if self.seen().is_none_or(|seen| seen.server != *link.server()) {
            self.check_link(link).await?;
        }
        self.is_kept(link.server())
    }

    /// Fails unless a claim that this server has just answered, and that `replicas` replicas have, is kept at the
    /// level. Also fails if the server can't be used at all.
    ///
    /// # Errors
    ///
    /// [`Failure::NotKept`].
    pub fn confirm(&self, server: &ServerId, replicas: u32) -> Result<(), Failure> {
        if replicas < self.level.replicas() {
            return Err(Failure::NotKept("too few replicas have it"));
        }
        self.is_kept(server)
    }

    fn is_kept(&self, server: &ServerId) -> Result<(), Failure> {
        let why = match self.seen().filter(|seen| seen.server == *server) {
            Some(seen) => seen.unfit.or(seen.not_synced(self.level)),
            None => Some("Redis has been started anew"),
        };
        why.map_or(Ok(()), |why| Err(Failure::NotKept(why)))
    }

    /// The level, and why the last check found that it isn't kept; `None` if it is.
    pub fn report(&self) -> (Level, Option<String>) {
        (self.level, self.seen().and_then(|seen| seen.lacks(self.level)))
    }

    /// Why Redis takes no claims at any level, according to the last check; `None` if it does.
    pub fn server_fault(&self) -> Option<&'static str> {
        self.seen().and_then(|seen| seen.unfit.or(seen.refuses))
    }

    /// Redis's clock minus this process's clock, at the last check.
    pub fn clock_ahead(&self) -> TimeDelta {
        self.seen().map_or_else(TimeDelta::zero, |seen| seen.clock_ahead)
    }

    /// A connection that WAIT may block.
    pub fn own_connection(&self) -> OwnConnection<'_> {
        let idle = self.idle.lock().expect("no holder of this lock panics").pop();
        OwnConnection { owner: self, redis: Some(idle.unwrap_or_else(|| self.redis.another())) }
    }

    async fn check(&self) -> RedisResult<Arc<Seen>> {
        let link = self.redis.link().await?;
        let answer = self.ask(&link).await?;
        // Another server, or another run, may have taken over meanwhile, and may have been checked.
        let now = self.redis.link().await?;
        if now.server() != link.server() {
            return self.check_link(&now).await;
        }
        Ok(self.note(&link, answer))
    }

    async fn check_link(&self, link: &Link) -> RedisResult<Arc<Seen>> {
        Ok(self.note(link, self.ask(link).await?))
    }

    async fn ask(&self, link: &Link) -> RedisResult<Answer> {
        let before = self.clock.now();
        let facts = link.facts().await?;
        Ok((facts, (before, self.clock.now())))
    }

    fn note(&self, link: &Link, (facts, asked): Answer) -> Arc<Seen> {
        let mut last = self.lock();
        let seen = Arc::new(Seen::of(&facts, (link.server(), asked), last.as_deref()));
        *last = Some(seen.clone());
        seen
    }

    fn seen(&self) -> Option<Arc<Seen>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Seen>>> {
        self.seen.lock().expect("no holder of this lock panics")
    }
}

/// The level, and why it isn't kept on the first server for which the last check says so; `None` if all keep it.
pub fn report(servers: &Fleet<Arc<Durability>>) -> (Level, Option<String>) {
    let reports = servers.each().map(|of_server| of_server.report());
    let not_kept = reports.enumerate().find_map(|(at, (_, why))| Some(servers.named(at, &why?)));
    (servers.first().level(), not_kept)
}

/// What a server answered, and our clock before and after.
type Answer = (ServerFacts, (DateTime<Utc>, DateTime<Utc>));

impl Seen {
    fn of(
        facts: &ServerFacts,
        (server, (before, after)): (&ServerId, (DateTime<Utc>, DateTime<Utc>)),
        last: Option<&Self>,
    ) -> Self {
        let ahead = |time| clock::apart(before, time, after);
        Self {
            unfit: facts.unfit(),
            refuses: facts.refuses_writes(),
            clock_ahead: facts.time.map_or_else(TimeDelta::zero, ahead),
            not_on_disk: not_on_disk(facts, last.filter(|last| last.server == *server)),
            has_file: facts.appendonly,
            file_bytes: facts.aof_bytes,
            replicas: facts.replicas,
            server: server.clone(),
        }
    }

    /// Why claims aren't on disk as this level wants it; `None` if they are, or needn't be.
    fn not_synced(&self, level: Level) -> Option<&'static str> {
        self.not_on_disk.filter(|why| match level {
            Level::Fsync => true,
            Level::Declared => ![NO_CONFIG, NO_ACL].contains(why),
            Level::Memory | Level::Replica(_) | Level::Postgres => false,
        })
    }

    /// Why claims can't be confirmed at this level; `None` if they can.
    fn lacks(&self, level: Level) -> Option<String> {
        match self.not_synced(level) {
            Some(why) => Some(why.to_owned()),
            _ if level.replicas() > self.replicas => {
                Some(format!("Redis has {} of {} replicas", self.replicas, level.replicas()))
            }
            _ => None,
        }
    }
}

impl OwnConnection<'_> {
    pub fn redis(&self) -> &Redis {
        self.redis.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for OwnConnection<'_> {
    fn drop(&mut self) {
        if let (Some(redis), Ok(mut idle)) = (self.redis.take(), self.owner.idle.lock()) {
            idle.push(redis);
        }
    }
}

/// Why a claim isn't on disk when it is answered; `None` if it is. `last` is the previous check in this run of the
/// server.
fn not_on_disk(facts: &ServerFacts, last: Option<&Seen>) -> Option<&'static str> {
    let Some(settings) = &facts.settings else {
        return Some(NO_CONFIG);
    };
    if !facts.appendonly || settings.appendfsync != "always" {
        return Some("Redis has no appendonly yes with appendfsync always");
    }
    if settings.no_appendfsync_on_rewrite {
        return Some("Redis has no-appendfsync-on-rewrite yes");
    }
    match facts.replay {
        Replay::Whole => {}
        Replay::WithoutScripts => return Some(NOT_REPLAYED),
        Replay::Unknown => return Some(NO_ACL),
    }
    // A file that was complete before keeps growing while it is rewritten; a new one counts only once it is complete.
    let was_complete = |last: &Seen| {
        last.has_file && last.file_bytes <= facts.aof_bytes && last.not_on_disk != Some(FIRST_FILE)
    };
    let is_first = facts.is_rewriting && !last.is_some_and(was_complete);
    is_first.then_some(FIRST_FILE)
}

/// Warning about a server that drops the writes of scripts at its next start.
pub const NOT_REPLAYED: &str = "Redis replays its append-only file with the rights of its user `default`, and drops all claims at its next start; give that user all of them: `user default off ~* &* +@all` (off is no harm)";

const NO_CONFIG: &str = "Redis forbids CONFIG, so its appendfsync can't be known";

const NO_ACL: &str =
    "Redis forbids ACL GETUSER, so its next start can't be foreseen; allow +acl|getuser";

const FIRST_FILE: &str = "Redis is still writing its append-only file for the first time";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::facts::ServerSettings;

    const NO_SYNC: &str = "Redis has no appendonly yes with appendfsync always";
    const REWRITES: &str = "Redis has no-appendfsync-on-rewrite yes";

    /// A server that syncs its file before each reply, and isn't rewriting it.
    fn facts() -> ServerFacts {
        ServerFacts {
            program: "Redis 7.2.4".to_owned(),
            version: (7, 2),
            is_replica: false,
            is_cluster: false,
            replicas: 2,
            good_replicas: None,
            maxmemory_bytes: 0,
            maxmemory_policy: "noeviction".to_owned(),
            appendonly: true,
            is_rewriting: false,
            aof_bytes: 100,
            is_full: false,
            time: None,
            failed_writes: Vec::new(),
            replay: Replay::Whole,
            settings: Some(ServerSettings {
                appendfsync: "always".to_owned(),
                save: String::new(),
                no_appendfsync_on_rewrite: false,
                min_replicas_to_write: 0,
                stop_writes_on_bgsave_error: true,
                needs_full_coverage: false,
            }),
        }
    }

    fn with_settings(change: impl Fn(&mut ServerSettings)) -> ServerFacts {
        let mut facts = facts();
        change(facts.settings.as_mut().expect("there are some"));
        facts
    }

    fn seen(has_file: bool, file_bytes: u64, not_on_disk: Option<&'static str>) -> Seen {
        Seen {
            server: ServerId::named("a"),
            unfit: None,
            refuses: None,
            clock_ahead: TimeDelta::zero(),
            not_on_disk,
            has_file,
            file_bytes,
            replicas: 2,
        }
    }

    #[test]
    fn claims_are_on_disk_with_each_of_three_settings() {
        for (facts, why) in [
            (facts(), None),
            (ServerFacts { settings: None, ..facts() }, Some(NO_CONFIG)),
            (ServerFacts { appendonly: false, ..facts() }, Some(NO_SYNC)),
            (ServerFacts { replay: Replay::WithoutScripts, ..facts() }, Some(NOT_REPLAYED)),
            (with_settings(|with| with.appendfsync = "everysec".to_owned()), Some(NO_SYNC)),
            (with_settings(|with| with.no_appendfsync_on_rewrite = true), Some(REWRITES)),
        ] {
            assert_eq!(not_on_disk(&facts, None), why, "{facts:?}");
            assert_eq!(not_on_disk(&facts, Some(&seen(true, 100, None))), why, "{facts:?}");
        }
    }

    #[test]
    fn a_file_that_is_written_for_the_first_time_does_not_count_yet() {
        let rewriting = ServerFacts { is_rewriting: true, ..facts() };
        for (last, why) in [
            (None, Some(FIRST_FILE)),
            (Some(seen(true, 99, None)), None),
            (Some(seen(true, 100, None)), None),
            (Some(seen(true, 101, None)), Some(FIRST_FILE)),
            (Some(seen(false, 99, None)), Some(FIRST_FILE)),
            (Some(seen(true, 99, Some(FIRST_FILE))), Some(FIRST_FILE)),
            (Some(seen(true, 99, Some(NO_SYNC))), None),
        ] {
            assert_eq!(not_on_disk(&rewriting, last.as_ref()), why);
            assert_eq!(not_on_disk(&facts(), last.as_ref()), None, "it isn't being rewritten");
        }
        // Results from another run of the server count for nothing.
        let last = seen(true, 99, None);
        for (run, why) in [("a", None), ("b", Some(FIRST_FILE))] {
            let asked = (DateTime::UNIX_EPOCH, DateTime::UNIX_EPOCH);
            let now = Seen::of(&rewriting, (&ServerId::named(run), asked), Some(&last));
            assert_eq!(
                (now.not_on_disk, now.has_file, now.file_bytes, now.replicas),
                (why, true, 100, 2)
            );
        }
    }

    #[test]
    fn a_level_lacks_the_disk_or_replicas() {
        for (level, why, lacks) in [
            (Level::Memory, Some(NO_SYNC), None),
            (Level::Postgres, Some(NO_SYNC), None),
            (Level::Fsync, Some(NO_SYNC), Some(NO_SYNC)),
            (Level::Fsync, None, None),
            (Level::Fsync, Some(NO_CONFIG), Some(NO_CONFIG)),
            (Level::Declared, Some(NO_CONFIG), None),
            (Level::Declared, Some(NO_ACL), None),
            (Level::Declared, Some(NO_SYNC), Some(NO_SYNC)),
            (Level::Replica(1), Some(NO_SYNC), None),
            (Level::Replica(2), None, None),
            (Level::Replica(3), None, Some("Redis has 2 of 3 replicas")),
        ] {
            assert_eq!(seen(true, 100, why).lacks(level).as_deref(), lacks, "{level}");
        }
    }

    #[test]
    fn a_confirmation_needs_the_life_that_was_looked_at_its_disk_and_a_fit_server() {
        let redis = Redis::new("redis://localhost").expect("a valid URL");
        let of = |level| Durability::new(&redis, level, &Clock::System);
        let (fsync, memory) = (of(Level::Fsync), of(Level::Memory));
        let refusal =
            |durability: &Durability, run| match durability.confirm(&ServerId::named(run), 0) {
                Err(Failure::NotKept(why)) => Some(why),
                _ => None,
            };
        const ANEW: &str = "Redis has been started anew";
        assert_eq!(refusal(&memory, "a"), Some(ANEW), "it was never looked at");
        assert_eq!(fsync.report(), (Level::Fsync, None));
        for (unfit, why, run, durability, refused) in [
            (None, None, "a", &fsync, None),
            (None, None, "b", &fsync, Some(ANEW)),
            (None, None, "b", &memory, Some(ANEW)),
            (None, Some(NO_SYNC), "a", &fsync, Some(NO_SYNC)),
            (None, Some(NO_SYNC), "a", &memory, None),
            (Some("it evicts"), None, "a", &memory, Some("it evicts")),
        ] {
            *durability.lock() = Some(Arc::new(Seen { unfit, ..seen(true, 100, why) }));
            assert_eq!(refusal(durability, run), refused);
            assert_eq!(durability.server_fault(), unfit);
        }
    }

    #[test]
    fn a_confirmation_needs_as_many_replicas_as_the_level() {
        let redis = Redis::new("redis://localhost").expect("a valid URL");
        let durability = Durability::new(&redis, Level::Replica(2), &Clock::System);
        *durability.lock() = Some(Arc::new(seen(true, 100, None)));
        let confirmed = |replicas| durability.confirm(&ServerId::named("a"), replicas).is_ok();
        assert_eq!([1, 2, 3].map(confirmed), [false, true, true]);
    }

    #[test]
    fn a_connection_of_a_call_goes_back_when_the_call_ends() {
        let redis = Redis::new("redis://localhost").expect("a valid URL");
        let durability = Durability::new(&redis, Level::Memory, &Clock::System);
        let idle = || durability.idle.lock().expect("no holder of this lock panics").len();
        let (first, second) = (durability.own_connection(), durability.own_connection());
        assert_eq!(first.redis().address(), redis.address());
        drop(first);
        assert_eq!(idle(), 1);
        drop(second);
        assert_eq!(idle(), 2);
        let _again = durability.own_connection();
        assert_eq!(idle(), 1);
    }
}
