//! The particulars of Redis (or Valkey).

use std::path::Path;

use redis::aio::MultiplexedConnection;

use super::plan::{Answer, Kind, Plan, is_same_folder};
use crate::error::{PrivateServersError, io_error};
use crate::folder::{Folder, log_file, private_folder, sockets};
use crate::programs::Programs;
use crate::settings::{Settings, Sync};

const SOCKET: &str = "redis.sock";

/// The plan of Redis in this folder.
pub(crate) fn plan(
    folder: &Folder,
    programs: &Programs,
    settings: &Settings,
) -> Result<Plan, PrivateServersError> {
    let dir = folder.dir();
    let data = dir.join("redis");
    private_folder(&data)?;
    let data = data.canonicalize().map_err(io_error("find", &data))?;
    let pid_file = data.join("redis.pid");
    let me = nix::unistd::geteuid().as_raw();
    let socket = sockets::folder_for(&data, SOCKET, me, dir, &settings.prefix())?.join(SOCKET);
    let arguments = arguments(&socket, &pid_file, settings.sync());
    Ok(Plan {
        kind: Kind::Redis,
        sync: settings.sync(),
        name: settings.name().to_owned(),
        program: programs.redis.clone(),
        arguments: arguments.into_iter().map(Into::into).collect(),
        user: None,
        url: format!("redis+unix://{}", socket.display()),
        stale: vec![socket.clone(), pid_file.clone()],
        socket,
        data,
        pid_file,
        alive: dir.join("redis.alive"),
        log: log_file(dir, Kind::Redis.short_name()),
        initdb: None,
        inherited: settings.inherited().to_vec(),
    })
}

fn arguments(socket: &Path, pid_file: &Path, sync: Sync) -> Vec<String> {
    let socket = socket.display().to_string();
    let pid_file = pid_file.display().to_string();
    let settings = [
        ("port", "0"),
        ("unixsocket", &socket),
        ("unixsocketperm", "700"),
        ("pidfile", &pid_file),
        ("daemonize", "no"),
        // Keeps the data folder in the command line, which identifies the process.
        ("set-proc-title", "no"),
        ("appendonly", "yes"),
        ("appendfsync", appendfsync(sync)),
        // No snapshots: the append-only file has all data.
        ("save", ""),
        // A full Redis has to refuse a write, and must not evict keys to make room.
        ("maxmemory-policy", "noeviction"),
    ];
    settings.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]).collect()
}

fn appendfsync(sync: Sync) -> &'static str {
    match sync {
        Sync::Durable => "always",
        Sync::Off => "no",
    }
}

/// The answer at the socket, compared with the expected process, folder and setting.
pub(crate) async fn ask(plan: &Plan, pid: u32) -> Answer {
    match look(&plan.url).await {
        Ok(found) if found.pid != pid => {
            Answer::Unfit(format!("process {} answers, not {pid}", found.pid))
        }
        Ok(found) if !is_same_folder(Path::new(&found.dir), &plan.data) => {
            Answer::Unfit(format!("its data is in {}", found.dir))
        }
        Ok(found) if found.appendfsync != appendfsync(plan.sync) => {
            Answer::Unfit(format!("it runs with appendfsync {}", found.appendfsync))
        }
        Ok(_) => Answer::Ready,
        Err(error) if error.code() == Some("LOADING") => Answer::Loading(error.to_string()),
        Err(error) => Answer::Silent(error.to_string()),
    }
}

/// Whether a Redis answers at `url`.
pub(crate) async fn ping(url: &str) -> bool {
    look(url).await.is_ok()
}

struct Found {
    pid: u32,
    dir: String,
    appendfsync: String,
}

async fn look(url: &str) -> redis::RedisResult<Found> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("PING").query_async::<()>(&mut connection).await?;
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok());
    Ok(Found {
        pid: pid.unwrap_or_default(),
        dir: setting(&mut connection, "dir").await?,
        appendfsync: setting(&mut connection, "appendfsync").await?,
    })
}

async fn setting(connection: &mut MultiplexedConnection, name: &str) -> redis::RedisResult<String> {
    let (_, value): (String, String) =
        redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    #[test]
    fn a_redis_url_takes_parameters() {
        for query in ["?protocol=resp3", "?db=1&protocol=resp3"] {
            let url = format!("redis+unix:///tmp/private-0-af63dc4c8601ec8c/redis.sock{query}");
            let info = url.as_str().into_connection_info().expect("a URL that redis-rs reads");
            assert_eq!(info.redis_settings().protocol(), redis::ProtocolVersion::RESP3, "{query}");
        }
    }
}
