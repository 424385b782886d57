//! A Redis and a Postgres of one's own, started from the programs installed on this machine.
//!
//! # The model
//!
//! One folder is one pair of servers. Everything they own lies in it, and they listen on Unix sockets only, so
//! nothing clashes with the servers that a distribution starts on 5432 and 6379.
//!
//! ```text
//! <dir>/lock            flock: held by the one process that uses the folder; says who, and both addresses
//! <dir>/.gitignore      "*": the folder is never committed
//! <dir>/redis/          append-only file, redis.pid, redis.sock                      (0700)
//! <dir>/postgres/       data/ (the cluster), data.new/ (one being made), the socket  (0700)
//! <dir>/redis.alive     flock: held by the server itself, see below; postgres.alive likewise
//! <dir>/redis.log       this run's output (redis.log.old: the run before); postgres.log, initdb.log likewise
//! ```
//!
//! A socket whose path would be too long for the kernel lives in `/tmp/flash-sale-<uid>-<hash>/` (see `sockets`).
//! As root, Postgres runs as another user; where that user cannot reach the folder, `<dir>/postgres` is a symbolic
//! link into `/var/lib/flash-sale/` (see `postgres_home`).
//!
//! # Who is the authority
//!
//! The kernel, not a file's content. Each server gets, as its standard input, an empty file that carries an `flock`.
//! The lock belongs to the open file, so it lasts exactly as long as the server or one of its children lives,
//! whoever started it and however that one ended. From this follow the three rules:
//!
//! * lock free: no server of this folder lives; pid files and sockets are stale and may go; start anew;
//! * lock held: never start a second one on the same data. Take over the one that lives, or stop it and wait;
//! * a process id from a pid file is a hint. It gets a signal only when the command line of that process names
//!   our program and our data folder, looked at immediately before the signal.
//!
//! # What the servers inherit
//!
//! None of the service's settings and secrets: `environment` names the few variables that a program needs. A server
//! that is taken over keeps the environment that it was started with.
//!
//! # What each failure does
//!
//! * SIGKILL of this process: both servers live on, and the next [`PrivateServers::start`] takes them over. Of a
//!   pair with one dead server, the other is taken over and the dead one started (Redis reads its append-only file
//!   again, Postgres its write-ahead log).
//! * A leftover that does not answer, or that runs with another [`Sync`], is stopped and started anew.
//! * A server that is still loading or recovering is waited for.
//! * Killed inside `initdb`: the cluster is made in `data.new` and renamed when complete, so a half-finished one is
//!   thrown away; an `initdb` that is still at it holds the lock and is waited for.
//! * One server cannot be brought up: the other one, started or taken over, is stopped before `start` returns its
//!   error. Errors that come before that (a missing program, a folder in use) touch no process at all.
//! * The future of `start` dropped half-way, or a `PrivateServers` dropped without [`PrivateServers::stop`] (a
//!   panic): the servers are told to stop, but nobody waits for them; the next `start` does.
//! * Ctrl-C: each server has its own process group, so the terminal's signal reaches only this process.
//!
//! # What is not promised
//!
//! * A server that dies while we run is not started again: that is found out by whoever uses it.
//! * A folder on a file system without `flock` (some network file systems) is not protected.
//! * Values with static lifetime are never dropped: a process that ends with one of them leaves its servers
//!   running, to be taken over next time.
//! * One folder has one user. A folder first used with sudo needs sudo ever after.
//! * Between the look at a command line and the signal lie some microseconds in which a pid could be given away
//!   anew. For servers that this process started itself, even that cannot happen: they are not reaped before.

mod bring_up;
mod environment;
mod error;
mod folder;
mod install;
mod postgres_home;
mod postgres_server;
mod process;
mod programs;
mod redis_server;
mod sockets;

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use error::PrivateServersError;

use bring_up::{Kind, bring_up};
use folder::{Folder, Notice};
use postgres_home::PostgresHome;
use process::Running;

/// Name of the Postgres role and of the database that [`PrivateServers::database_url`] leads to.
const NAME: &str = "flash_sale";
/// How long a guest waits for an owner that is itself still starting.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
const JOIN_POLL: Duration = Duration::from_millis(100);

/// How much the servers do to survive a loss of power. Both survive the death of any process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Redis syncs its append-only file before each reply (`appendfsync always`), Postgres before each commit.
    Durable,
    /// For tests: nothing waits for the disk.
    Off,
}

/// The process ids of both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIds {
    /// The Redis (or Valkey) server.
    pub redis: u32,
    /// The first process of Postgres, the one that signals go to.
    pub postgres: u32,
}

/// What can be seen of a folder's servers without touching them.
#[derive(Debug)]
pub enum Sight {
    /// A live process has the folder, and its servers are (or were) there.
    Running {
        /// As [`PrivateServers::redis_url`].
        redis_url: String,
        /// As [`PrivateServers::database_url`].
        database_url: String,
    },
    /// A live process has the folder, and hasn't said yet where its servers are.
    Starting,
    /// No live process has the folder. These programs would be started; each with its version and its path.
    Stopped {
        /// The program of Redis or Valkey.
        redis: String,
        /// The program of Postgres.
        postgres: String,
    },
}

/// The private servers of one folder: ours to stop, or joined as a guest.
#[derive(Debug)]
pub struct PrivateServers {
    notice: Notice,
    /// None for a guest.
    owned: Option<Owned>,
}

#[derive(Debug)]
struct Owned {
    // Fields drop in this order: the servers are told to stop before the folder's lock is free again.
    redis: Running,
    postgres: Running,
    folder: Folder,
}

impl PrivateServers {
    /// Starts both servers of the folder `dir`, or takes over those that a killed run left behind; returns when both
    /// really answer (PING, SELECT) and the database exists. Creates the folder if it is missing.
    ///
    /// As root, `dir` gets its "search" bit for others (mode 0711), because Postgres runs as another user; what is
    /// private in it stays 0700.
    ///
    /// # Errors
    ///
    /// [`PrivateServersError::InUse`] if another live process has the folder ([`PrivateServers::join`] may help),
    /// [`PrivateServersError::MissingProgram`] before anything is started; the others say what to do, too. An error
    /// leaves no server running that this call has started.
    pub async fn start(dir: &Path, sync: Sync) -> Result<Self, PrivateServersError> {
        let folder = Folder::open(dir).await?;
        let programs = programs::find(
            &programs::Places::of_this_machine(),
            &install::Machine::this(),
            folder::cluster(folder.dir())?.as_ref(),
        )
        .await?;
        let home = PostgresHome::open(&folder).await?;
        let redis = redis_server::plan(&folder, &programs, sync)?;
        let postgres = postgres_server::plan(&folder, &home, &programs, sync)?;

        let (redis, postgres) = both_or_none(bring_up(redis), async {
            postgres_server::with_database(bring_up(postgres).await?).await
        })
        .await?;
        Self::announce(Owned { redis, postgres, folder }).await
    }

    /// Joins the servers of `dir` as a guest of the live process that owns them, waiting up to a minute for an owner
    /// that is still starting. A guest's [`PrivateServers::stop`] does nothing. `None` if no live process owns the
    /// folder.
    ///
    /// # Errors
    ///
    /// [`PrivateServersError::NotReady`] if there is an owner, but its servers do not answer in time.
    pub async fn join(dir: &Path) -> Result<Option<Self>, PrivateServersError> {
        let deadline = Instant::now() + JOIN_WITHIN;
        while folder::has_owner(dir)? {
            if let Some(notice) = folder::read_notice(dir)?
                && bring_up::answer(&notice.redis_url, &notice.database_url).await
            {
                return Ok(Some(Self { notice, owned: None }));
            }
            if Instant::now() > deadline {
                return Err(PrivateServersError::NotReady {
                    server: "pair of servers",
                    reason: "the process that owns the folder has not got them to answer"
                        .to_owned(),
                    log: folder::log_file(dir, Kind::Postgres.short_name()),
                    last_lines: String::new(),
                });
            }
            sleep(JOIN_POLL).await;
        }
        Ok(None)
    }

    /// Looks at the folder `dir`: starts, makes and waits for nothing. The folder needn't exist.
    ///
    /// # Errors
    ///
    /// As [`PrivateServers::start`] for programs that are missing or don't fit.
    pub async fn look(dir: &Path) -> Result<Sight, PrivateServersError> {
        if folder::has_owner(dir)? {
            return Ok(match folder::read_notice(dir)? {
                Some(Notice { redis_url, database_url, .. }) => {
                    Sight::Running { redis_url, database_url }
                }
                None => Sight::Starting,
            });
        }
        let (redis, postgres) = programs::installed(folder::cluster(dir)?.as_ref()).await?;
        Ok(Sight::Stopped { redis, postgres })
    }

    /// Whether a server of `dir` lives, whoever started it: left behind by a process that was killed, or told to stop and
    /// not gone yet. [`PrivateServers::start`] takes it over or waits for its end.
    ///
    /// # Errors
    ///
    /// When the files that say so can't be opened.
    pub fn any_alive(dir: &Path) -> Result<bool, PrivateServersError> {
        for alive in ["redis.alive", "postgres.alive"] {
            if process::try_alive_lock(&dir.join(alive))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where Redis is: `redis+unix:///path/to/redis.sock`, without a query, so that the caller can append one.
    /// `?protocol=resp3` works, and so does `?db=1&protocol=resp3`.
    #[must_use]
    pub fn redis_url(&self) -> &str {
        &self.notice.redis_url
    }

    /// Where Postgres is: `postgres://flash_sale@localhost:5432/flash_sale?host=%2Fpath&sslmode=disable`. The host in the
    /// query is the socket's folder and wins over `localhost`. Further parameters are appended with `&`.
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.notice.database_url
    }

    /// The two servers' process ids, as they were when the servers were started or taken over.
    #[must_use]
    pub fn process_ids(&self) -> ProcessIds {
        self.notice.process_ids
    }

    /// Whether the servers belong to another live process: the result of [`PrivateServers::join`].
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.owned.is_none()
    }

    /// Stops both servers (Postgres by its "fast" shutdown, Redis after it has written its append-only file) and gives
    /// the folder back when both are gone. Close your connections first; those still open are cut. A guest returns
    /// at once.
    ///
    /// # Errors
    ///
    /// [`PrivateServersError::Killed`] if one did not stop within 10 s and got a SIGKILL; both are gone then, too.
    /// [`PrivateServersError::StillRunning`] if not even that helped.
    pub async fn stop(self) -> Result<(), PrivateServersError> {
        let Some(Owned { redis, postgres, folder }) = self.owned else {
            return Ok(());
        };
        let (redis, postgres) = tokio::join!(redis.stop(), postgres.stop());
        folder.withdraw_notice()?;
        redis.and(postgres)
    }

    /// Writes both addresses into the lock file, for guests, and hands the servers to the caller.
    async fn announce(owned: Owned) -> Result<Self, PrivateServersError> {
        let notice = Notice {
            process_ids: ProcessIds { redis: owned.redis.pid(), postgres: owned.postgres.pid() },
            redis_url: owned.redis.url().to_owned(),
            database_url: owned.postgres.url().to_owned(),
        };
        if let Err(error) = owned.folder.write_notice(&notice) {
            let (_, _) = tokio::join!(owned.redis.stop(), owned.postgres.stop());
            return Err(error);
        }
        Ok(Self { notice, owned: Some(owned) })
    }
}

/// Both servers, or an error and neither. What happens while stopping the good one is not reported: the first error is
/// the one that has to be understood.
async fn both_or_none(
    redis: impl Future<Output = Result<Running, PrivateServersError>>,
    postgres: impl Future<Output = Result<Running, PrivateServersError>>,
) -> Result<(Running, Running), PrivateServersError> {
    match tokio::join!(redis, postgres) {
        (Ok(redis), Ok(postgres)) => Ok((redis, postgres)),
        (Ok(running), Err(error)) | (Err(error), Ok(running)) => {
            let _ = running.stop().await;
            Err(error)
        }
        (Err(error), Err(_)) => Err(error),
    }
}
