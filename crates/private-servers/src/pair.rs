//! A pair of servers: started, joined, looked at, stopped.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::PrivateServersError;
use crate::folder::{self, Folder, Notice, PostgresHome, ProcessIds};
use crate::programs;
use crate::server::bring_up::{answer, bring_up};
use crate::server::plan::Kind;
use crate::server::process::{Running, try_alive_lock};
use crate::server::{postgres, redis};
use crate::settings::Settings;

/// Time that a guest waits for an owner that is itself still starting.
const JOIN_WITHIN: Duration = Duration::from_secs(60);
const JOIN_POLL: Duration = Duration::from_millis(100);

/// The visible state of a folder's servers.
#[derive(Debug)]
pub enum Sight {
    /// A live process has the folder, and has started its servers.
    Running {
        /// As [`PrivateServers::redis_url`].
        redis_url: String,
        /// As [`PrivateServers::database_url`].
        database_url: String,
    },
    /// A live process has the folder, and is still starting its servers.
    Starting,
    /// No live process has the folder. [`PrivateServers::start`] would start these programs, each with its version and
    /// its path.
    Stopped {
        /// The program of Redis or Valkey.
        redis: String,
        /// The program of Postgres.
        postgres: String,
    },
}

/// The private servers of one folder: owned by this process, or joined as a guest.
///
/// The owner calls [`stop`](Self::stop). Dropping an owned pair tells both servers to stop, and does not wait.
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
    /// Starts both servers of the folder `dir`, or takes over those that a killed run left behind. Returns when both
    /// answer (PING, SELECT) and the database exists. Creates the folder if it is missing.
    ///
    /// As root, `dir` gets its "search" bit for others (mode 0711), because Postgres runs as another user; its
    /// private parts stay 0700.
    ///
    /// # Errors
    ///
    /// [`PrivateServersError::InUse`] if another live process has the folder ([`PrivateServers::join`] may help),
    /// [`PrivateServersError::MissingProgram`] before anything is started; the text of each names the remedy. An error
    /// leaves no server running that this call has started.
    pub async fn start(dir: &Path, settings: &Settings) -> Result<Self, PrivateServersError> {
        settings.check_name()?;
        let folder = Folder::open(dir).await?;
        let programs = programs::find(folder.dir()).await?;
        let home = PostgresHome::open(&folder, &settings.homes()).await?;
        let redis = redis::plan(&folder, &programs, settings)?;
        let postgres = postgres::plan(&folder, &home, &programs, settings)?;

        let (redis, postgres) = both_or_none(bring_up(redis), async {
            postgres::with_database(bring_up(postgres).await?).await
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
                && answer(&notice.redis_url, &notice.database_url).await
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

    /// Looks at the folder `dir`. Starts, makes and waits for nothing; the folder needn't exist.
    ///
    /// # Errors
    ///
    /// As [`PrivateServers::start`] for programs that are missing or don't fit.
    pub async fn sight(dir: &Path) -> Result<Sight, PrivateServersError> {
        if folder::has_owner(dir)? {
            return Ok(match folder::read_notice(dir)? {
                Some(Notice { redis_url, database_url, .. }) => {
                    Sight::Running { redis_url, database_url }
                }
                None => Sight::Starting,
            });
        }
        let (redis, postgres) = programs::installed(dir).await?;
        Ok(Sight::Stopped { redis, postgres })
    }

    /// True if a server of `dir` lives: the server of a live process, a leftover of a killed one, or a server that is
    /// stopping. [`PrivateServers::start`] takes a leftover over, or waits for its end.
    ///
    /// # Errors
    ///
    /// [`PrivateServersError::Io`] if the locks of the servers can't be looked at.
    pub fn any_alive(dir: &Path) -> Result<bool, PrivateServersError> {
        for alive in ["redis.alive", "postgres.alive"] {
            if try_alive_lock(&dir.join(alive))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The address of Redis: `redis+unix:///path/to/redis.sock`, without a query, so that the caller can append one.
    /// `?protocol=resp3` works, and so does `?db=1&protocol=resp3`.
    #[must_use]
    pub fn redis_url(&self) -> &str {
        &self.notice.redis_url
    }

    /// The address of Postgres: `postgres://private@localhost:5432/private?host=%2Fpath&sslmode=disable`. The host in
    /// the query is the socket's folder and wins over `localhost`. Further parameters are appended with `&`. Role and
    /// database have the name of the [`Settings`].
    #[must_use]
    pub fn database_url(&self) -> &str {
        &self.notice.database_url
    }

    /// Process ids of both servers at the time when they were started or taken over.
    #[must_use]
    pub fn process_ids(&self) -> ProcessIds {
        self.notice.process_ids
    }

    /// True if another live process owns the servers, as after [`PrivateServers::join`].
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.owned.is_none()
    }

    /// Stops both servers and releases the folder when both are gone: Postgres by its "fast" shutdown, Redis after it
    /// has written its append-only file. Open connections are cut. A guest returns at once.
    ///
    /// # Errors
    ///
    /// [`PrivateServersError::Killed`] if a server did not stop within 10 s and got a SIGKILL; both are gone then, too.
    /// [`PrivateServersError::StillRunning`] if a server outlived even SIGKILL.
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

/// Both servers, or an error and neither. A failure to stop the good one is not reported: the first error explains
/// both.
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
