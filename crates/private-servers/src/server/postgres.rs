//! The particulars of Postgres.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sqlx::{Connection, PgConnection};

use super::launch::{command, exited};
use super::plan::{Answer, Kind, Plan, is_same_folder};
use super::process::Running;
use crate::error::{PrivateServersError, io_error};
use crate::folder::{Folder, PostgresHome, log_file, sockets};
use crate::programs::Programs;
use crate::settings::{Settings, Sync};

/// Part of the socket's name; no TCP port is opened.
const PORT: u16 = 5432;
const SOCKET: &str = ".s.PGSQL.5432";
/// The database that every cluster has, and from which the pair's own is created.
const FIRST_DATABASE: &str = "postgres";
/// Connections at most. Every process and every parallel test has a pool, so the default of 100 is soon used up.
const CONNECTIONS_MAX: u32 = 300;
/// SQLSTATE `cannot_connect_now`: starting up, recovering or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";
/// SQLSTATE `invalid_authorization_specification`: the cluster has no such role.
const NO_SUCH_ROLE: &str = "28000";

/// The plan of Postgres in this folder.
pub(crate) fn plan(
    folder: &Folder,
    home: &PostgresHome,
    programs: &Programs,
    settings: &Settings,
) -> Result<Plan, PrivateServersError> {
    let dir = folder.dir();
    let data = home.path.join("data");
    let pid_file = data.join("postmaster.pid");
    let sockets = sockets::folder_for(&home.path, SOCKET, home.uid(), dir, &settings.prefix())?;
    let socket = sockets.join(SOCKET);
    Ok(Plan {
        kind: Kind::Postgres,
        sync: settings.sync(),
        name: settings.name().to_owned(),
        program: programs.postgres.clone(),
        arguments: arguments(&sockets, settings.sync()).into_iter().map(Into::into).collect(),
        user: home.user,
        url: url(&sockets, settings.name(), settings.name()),
        stale: vec![socket.clone(), sockets.join(format!("{SOCKET}.lock")), pid_file.clone()],
        socket,
        data,
        pid_file,
        alive: dir.join("postgres.alive"),
        log: log_file(dir, Kind::Postgres.short_name()),
        initdb: Some(programs.initdb.clone()),
        inherited: settings.inherited().to_vec(),
    })
}

fn arguments(sockets: &Path, sync: Sync) -> Vec<String> {
    let mut settings = vec![
        "listen_addresses=".to_owned(),
        format!("port={PORT}"),
        format!("unix_socket_directories={}", sockets.display()),
        "unix_socket_permissions=0700".to_owned(),
        format!("max_connections={CONNECTIONS_MAX}"),
        // Filling a new segment of the log with zeros delays every commit: 50 ms after every 16 MB, until old segments are
        // used again. (Since PostgreSQL 12.)
        "wal_init_zero=off".to_owned(),
    ];
    if sync == Sync::Off {
        settings.extend(
            ["fsync=off", "synchronous_commit=off", "full_page_writes=off"].map(ToOwned::to_owned),
        );
    }
    settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// The address of a database. Port and sslmode are spelled out, because sqlx would else take them from `PGPORT`,
/// `PGSSLMODE` and the like. Of the folder, only the slashes need encoding: `sockets` admits only plain paths.
fn url(sockets: &Path, role: &str, database: &str) -> String {
    let host = sockets.display().to_string().replace('/', "%2F");
    format!("postgres://{role}@localhost:{PORT}/{database}?host={host}&sslmode=disable")
}

/// Makes the cluster if there is none: beside its place, then renamed. The rest of an interrupted attempt is removed;
/// the lock says that no process works on it any more.
pub(crate) async fn initialise(
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
    let mut command = command(plan, initdb, &log, lock)?;
    // Only its owner can enter the socket's folder, hence "trust".
    command.arg("-D").arg(&new).args([
        "-U",
        &plan.name,
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
    ]);
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

/// The answer at the socket, compared with the expected folder, setting and role.
pub(crate) async fn ask(plan: &Plan) -> Answer {
    let fsync = if plan.sync == Sync::Durable { "on" } else { "off" };
    match look(&first_database(plan)).await {
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
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(NO_SUCH_ROLE) => {
            Answer::Unfit(format!("{}: the folder was made with another name", error.message()))
        }
        Err(error) => Answer::Silent(error.to_string()),
    }
}

/// Whether a Postgres answers at `url`.
pub(crate) async fn ping(url: &str) -> bool {
    look(url).await.is_ok()
}

/// The server's data folder and its `fsync`.
async fn look(url: &str) -> Result<(String, String), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let found =
        sqlx::query_as("SELECT current_setting('data_directory'), current_setting('fsync')")
            .fetch_one(&mut connection)
            .await?;
    connection.close().await?;
    Ok(found)
}

/// The server with its database, which is created if it is missing. If that fails, the server is stopped.
pub(crate) async fn with_database(running: Running) -> Result<Running, PrivateServersError> {
    match create_database(running.plan()).await {
        Ok(()) => Ok(running),
        Err(source) => {
            let log = running.plan().log.clone();
            // The reason of the stop says more than its outcome.
            let _ = running.stop().await;
            Err(PrivateServersError::Database { source: Box::new(source), log })
        }
    }
}

async fn create_database(plan: &Plan) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(&first_database(plan)).await?;
    let exists: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(&plan.name)
            .fetch_one(&mut connection)
            .await?;
    if !exists {
        // CREATE DATABASE takes no parameters. `Settings::check_name` admits plain names only.
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {}", plan.name));
        sqlx::raw_sql(create).execute(&mut connection).await?;
    }
    connection.close().await
}

fn first_database(plan: &Plan) -> String {
    plan.url.replace(&format!("/{}?", plan.name), &format!("/{FIRST_DATABASE}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlx_reads_the_url_as_a_socket() {
        let url = url(Path::new("/srv/.private-servers/postgres"), "shop", "shop");
        let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL that sqlx reads");
        assert_eq!(
            options.get_socket().map(PathBuf::as_path),
            Some(Path::new("/srv/.private-servers/postgres"))
        );
        assert_eq!(
            (options.get_port(), options.get_database(), options.get_username()),
            (PORT, Some("shop"), "shop")
        );
        assert!(SOCKET.ends_with(&PORT.to_string()));
    }
}
