//! What is particular to Postgres.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sqlx::{Connection, PgConnection};

use super::bring_up::{Answer, Kind, Plan, command, exited, is_same_folder};
use super::error::{PrivateServersError, io_error};
use super::folder::{Folder, log_file};
use super::postgres_home::PostgresHome;
use super::process::Running;
use super::programs::Programs;
use super::{NAME, Sync, sockets};

/// Postgres builds the socket's name from the port, so there is one although nothing listens on it.
const PORT: u16 = 5432;
const SOCKET: &str = ".s.PGSQL.5432";
/// The database that every cluster has; ours is created from there.
const FIRST_DATABASE: &str = "postgres";
/// Every process and every parallel test has a pool; the default of 100 is soon used up.
const CONNECTIONS_MAX: u32 = 300;
/// SQLSTATE `cannot_connect_now`: starting up, recovering or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// How Postgres is to run in this folder.
pub(super) fn plan(
    folder: &Folder,
    home: &PostgresHome,
    programs: &Programs,
    sync: Sync,
) -> Result<Plan, PrivateServersError> {
    let dir = folder.dir();
    let data = home.path.join("data");
    let pid_file = data.join("postmaster.pid");
    let sockets = sockets::folder_for(&home.path, SOCKET, home.uid(), dir)?;
    let socket = sockets.join(SOCKET);
    Ok(Plan {
        kind: Kind::Postgres,
        sync,
        program: programs.postgres.clone(),
        arguments: arguments(&sockets, sync).into_iter().map(Into::into).collect(),
        user: home.user,
        url: url(&sockets, NAME),
        stale: vec![socket.clone(), sockets.join(format!("{SOCKET}.lock")), pid_file.clone()],
        socket,
        data,
        pid_file,
        alive: dir.join("postgres.alive"),
        log: log_file(dir, Kind::Postgres.short_name()),
        initdb: Some(programs.initdb.clone()),
    })
}

fn arguments(sockets: &Path, sync: Sync) -> Vec<String> {
    let mut settings = vec![
        "listen_addresses=".to_owned(),
        format!("port={PORT}"),
        format!("unix_socket_directories={}", sockets.display()),
        "unix_socket_permissions=0700".to_owned(),
        format!("max_connections={CONNECTIONS_MAX}"),
        // Filling a new segment of the log with zeros has everybody wait who commits: 50 ms after every 16 MB, until there
        // are old segments to use again. (Since PostgreSQL 12.)
        "wal_init_zero=off".to_owned(),
    ];
    if sync == Sync::Off {
        settings.extend(
            ["fsync=off", "synchronous_commit=off", "full_page_writes=off"].map(ToOwned::to_owned),
        );
    }
    settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// Everything is spelled out (port, sslmode), because sqlx would else take it from `PGPORT`, `PGSSLMODE` and the like.
/// The folder needs no more than its slashes encoded: `sockets` admits only plain paths.
fn url(sockets: &Path, database: &str) -> String {
    let host = sockets.display().to_string().replace('/', "%2F");
    format!("postgres://{NAME}@localhost:{PORT}/{database}?host={host}&sslmode=disable")
}

/// Makes the cluster if there is none: beside its place, then renamed. What an interrupted attempt left is removed
/// (the lock says that nobody is at it any more).
pub(super) async fn initialise(
    plan: &Plan,
    initdb: &Path,
    lock: &File,
) -> Result<(), PrivateServersError> {
    if plan.data.join("PG_VERSION").exists() {
        return Ok(());
    }
    let new: PathBuf = plan.data.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).map_err(io_error("remove", &new))?;
    }
    tracing::info!(data = %plan.data.display(), "a new Postgres cluster is being made");
    let log = plan.log.with_file_name("initdb.log");
    let lock = lock.try_clone().map_err(io_error("open", &plan.alive))?;
    let mut command = command(initdb, plan.user, &log, lock)?;
    // Nobody but its owner can enter the socket's folder, hence "trust".
    command.arg("-D").arg(&new).args(["-U", NAME, "--auth=trust", "--encoding=UTF8", "--locale=C"]);
    if plan.sync == Sync::Off {
        command.arg("--no-sync");
    }
    let status = command.kill_on_drop(true).status().await.map_err(io_error("run", initdb))?;
    if !status.success() {
        return Err(exited("initdb", status.to_string(), &log));
    }
    fs::rename(&new, &plan.data).map_err(io_error("rename", &new))?;
    if plan.sync == Sync::Durable {
        let home = plan.data.parent().unwrap_or(&plan.data);
        File::open(home).and_then(|home| home.sync_all()).map_err(io_error("sync", home))?;
    }
    Ok(())
}

/// What answers at the socket, compared with the folder and the setting that it should have.
pub(super) async fn ask(plan: &Plan) -> Answer {
    let fsync = if plan.sync == Sync::Durable { "on" } else { "off" };
    match look(&first_database(&plan.url)).await {
        Ok((data, _)) if !is_same_folder(Path::new(&data), &plan.data) => {
            Answer::Unfit(format!("its data is in {data}"))
        }
        Ok((_, found)) if found != fsync => Answer::Unfit(format!("it runs with fsync {found}")),
        Ok(_) => Answer::Ready,
        Err(sqlx::Error::Database(error))
            if error.code().as_deref() == Some(CANNOT_CONNECT_NOW) =>
        {
            Answer::Loading(error.to_string())
        }
        Err(error) => Answer::Silent(error.to_string()),
    }
}

/// Whether a Postgres answers at `url`.
pub(super) async fn ping(url: &str) -> bool {
    look(url).await.is_ok()
}

/// Its data folder and its `fsync`.
async fn look(url: &str) -> Result<(String, String), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let found =
        sqlx::query_as("SELECT current_setting('data_directory'), current_setting('fsync')")
            .fetch_one(&mut connection)
            .await?;
    connection.close().await?;
    Ok(found)
}

/// The server with its database: created if it is missing; if that fails, the server is stopped.
pub(super) async fn with_database(running: Running) -> Result<Running, PrivateServersError> {
    match create_database(running.url()).await {
        Ok(()) => Ok(running),
        Err(source) => {
            let log = running.plan().log.clone();
            // Why the database could not be created says more than how stopping went.
            let _ = running.stop().await;
            Err(PrivateServersError::Database { source: Box::new(source), log })
        }
    }
}

async fn create_database(url: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(&first_database(url)).await?;
    let exists: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(NAME)
            .fetch_one(&mut connection)
            .await?;
    if !exists {
        // The name of NAME; CREATE DATABASE takes no parameters.
        sqlx::raw_sql("CREATE DATABASE flash_sale").execute(&mut connection).await?;
    }
    connection.close().await
}

fn first_database(url: &str) -> String {
    url.replace(&format!("/{NAME}?"), &format!("/{FIRST_DATABASE}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlx_reads_the_url_as_a_socket() {
        let url = url(Path::new("/srv/.flash-sale/postgres"), NAME);
        let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL that sqlx reads");
        assert_eq!(
            options.get_socket().map(PathBuf::as_path),
            Some(Path::new("/srv/.flash-sale/postgres"))
        );
        assert_eq!(
            (options.get_port(), options.get_database(), options.get_username()),
            (PORT, Some(NAME), NAME)
        );
        assert!(first_database(&url).contains("/postgres?host="));
        assert!(SOCKET.ends_with(&PORT.to_string()));
    }
}
