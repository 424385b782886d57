//! Stores that don't belong together: a Postgres that is restored while Redis goes on, and a second installation.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::breaker::Breaker;
use crate::facts::{Loss, Ms};
use crate::plan::Act;
use crate::world::{PREFIX, command_of};

/// Time for a command: only a hang exceeds it.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// Time within which a claim becomes a row, on a busy machine, in milliseconds.
const UNWRITTEN_FOR_MS: Ms = 3_000;
/// Exit code of a process that refuses its settings.
const REFUSED: i32 = 2;

impl Breaker {
    /// Dumps Postgres, and puts the dump in the place of what Postgres has at the end. An operator trusts Redis, or, in
    /// each second act, Postgres.
    pub(super) async fn restore_postgres(&self, act: Act) -> anyhow::Result<()> {
        let (installation, time) = (&self.installation, &self.installation.time);
        let backup = installation.folder.join(format!("backup-{}", act.begin_ms));
        let database = format!("--dbname={}", installation.database_url);
        self.lanes_are_open().await?;
        // What was told a moment ago may be no row yet.
        let kept_until = time.now() - UNWRITTEN_FOR_MS;
        let mut dump = Command::new("pg_dump");
        dump.args(["--format=custom", &database]).arg("--file").arg(&backup);
        succeeds(dump).await?;
        time.reaches(act.end_ms).await;
        for service in &installation.services {
            service.kill().await?;
        }
        let lost_at = time.now();
        let mut restore = Command::new("pg_restore");
        restore.args(["--clean", "--if-exists", "--single-transaction", &database]).arg(&backup);
        let restored = succeeds(restore).await;
        for service in &installation.services {
            service.start().await?;
        }
        restored?;
        // Orders that were closed since the dump are open again, and letters may come of their users' later claims.
        let loss = Loss::new(act.fault, kept_until, (lost_at, lost_at));
        self.loses(Loss { sells_on: true, ..loss });
        let trust = if act.begin_ms.is_multiple_of(2) { "redis" } else { "postgres" };
        let deadline = Instant::now() + COMMAND_WITHIN;
        while let Err(error) = self.recover(trust).await {
            // Redis may be away.
            if Instant::now() > deadline {
                return Err(error);
            }
            sleep(POLL).await;
        }
        self.note(format!("{}: an operator trusts {trust}", act.fault));
        Ok(())
    }

    /// Waits for the end of recoveries: before it, Postgres lacks what they make up for.
    async fn lanes_are_open(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + COMMAND_WITHIN;
        while Instant::now() < deadline {
            let closed = "SELECT count(*) FROM lanes WHERE state <> 'open'";
            let closed = sqlx::query_scalar::<_, i64>(closed).fetch_one(&self.installation.pool);
            if closed.await.is_ok_and(|closed| closed == 0) {
                return Ok(());
            }
            sleep(POLL).await;
        }
        bail!("the lanes stay closed")
    }

    async fn recover(&self, trust: &str) -> anyhow::Result<()> {
        succeeds(
            self.command_on(&self.installation.database_url, &["recover", "--trust", trust]).await,
        )
        .await
    }

    /// Starts a service with a database of its own on this Redis: it has to refuse at once.
    pub(super) async fn start_foreign_installation(&self) -> anyhow::Result<()> {
        let name = format!("foreign_{}_{}", std::process::id(), self.installation.time.now());
        let url = {
            let postgres = self.postgres.lock().await;
            postgres.create_empty(&name).await?;
            postgres.url(&name)
        };
        let mut migrate = command_of(&self.installation.binary);
        migrate.args(["migrate", "--database-url", &url]);
        succeeds(migrate).await?;
        let words = ["serve", "--listen", "127.0.0.1:0", "--in-process-gateway", "--token-secret"];
        let words = [&words[..], &["a secret that is only good for a stranger"]].concat();
        let mut stranger = self.command_on(&url, &words).await;
        let ended = timeout(COMMAND_WITHIN, stranger.output()).await;
        let said = match ended {
            Err(_) => {
                let mishap = "another installation served from this Redis".to_owned();
                self.mishaps.lock().expect("no holder of this lock panics").push(mishap);
                None
            }
            Ok(said) => Some(said?),
        };
        self.postgres.lock().await.drop_database(&name).await?;
        match said {
            // Redis was away at that moment.
            Some(said) if said.status.code() != Some(REFUSED) => {
                bail!("it could not be tried: {}", String::from_utf8_lossy(&said.stderr))
            }
            _ => Ok(()),
        }
    }

    async fn command_on(&self, database: &str, words: &[&str]) -> Command {
        let socket = self.installation.redis.lock().await.socket();
        let redis = format!("redis+unix://{}", socket.display());
        let mut command = command_of(&self.installation.binary);
        command.args(words).args(["--key-prefix", PREFIX, "--redis-url", &redis]);
        command.args(["--database-url", database]);
        command
    }
}

async fn succeeds(mut command: Command) -> anyhow::Result<()> {
    let program = command.as_std().get_program().to_owned();
    let ended = timeout(COMMAND_WITHIN, command.kill_on_drop(true).output()).await;
    let said = ended.with_context(|| format!("{} does not end", program.display()))??;
    if !said.status.success() {
        bail!("{}: {}", program.display(), String::from_utf8_lossy(&said.stderr));
    }
    Ok(())
}
