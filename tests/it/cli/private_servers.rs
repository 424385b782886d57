//! Servers of one's own: what `flash-sale demo` and `flash-sale private-servers` start, they stop; and what
//! a killed one leaves behind is found again, with every claim that was accepted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use private_servers::testing::DataFolder;
use serde_json::Value;

use crate::support::process::{Process, flash_sale, order_id, program, run};
use crate::support::{client, eventually};

#[tokio::test]
async fn what_the_demo_prints_works_and_its_next_start_goes_on() {
    let folder = DataFolder::new();
    let mut demo = Demo::start(&folder).await;
    let (status, accepted) = demo.claim(&demo.token).await;
    assert_eq!(status, 202);
    let (status, repeat) = demo.claim(&demo.token).await;
    assert_eq!((status, order_id(&repeat)), (409, order_id(&accepted)));
    demo.assert_order(&demo.token, order_id(&accepted)).await;

    let second =
        run(flash_sale(&["demo", "--listen", "127.0.0.1:0", "--data-dir", folder.text()])).await;
    assert_eq!(second.code, Some(1), "{second:?}");
    let said = second.last_words();
    assert!(said.contains("in use by process") && said.contains(folder.text()), "{said}");
    assert!(said.contains("--data-dir") && said.contains("--redis-url"), "{said}");

    let servers = folder.server_pids();
    demo.interrupt().await;
    assert!(!servers.into_iter().any(is_alive));

    let mut next = Demo::start(&folder).await;
    assert_eq!(next.claim_url_without_host(), demo.claim_url_without_host());
    next.assert_order(&demo.token, order_id(&accepted)).await;
    let reconciled = run(flash_sale(&["reconcile", "--data-dir", folder.text()])).await;
    assert_eq!(reconciled.code, Some(0), "{reconciled:?}");
    assert!(reconciled.stdout.contains("Redis and Postgres agree (1 sales)"));
    let servers = folder.server_pids();
    next.interrupt().await;
    assert!(!servers.into_iter().any(is_alive));
}

/// As when the terminal of a service is closed.
#[tokio::test]
async fn a_hang_up_stops_a_service_like_any_other_stop() {
    let folder = DataFolder::new();
    // The tests may run under `nohup`, whose children ignore the signal.
    let mut demo = Demo::of(&folder, |arguments: &[&str]| {
        let heeds = ["--default-signal=HUP", env!("CARGO_BIN_EXE_flash-sale")];
        program("env", &[&heeds, arguments].concat())
    })
    .await;
    let servers = folder.server_pids();
    demo.process.signal(Signal::SIGHUP);
    assert_eq!(demo.process.ended().await.code(), Some(0));
    assert!(!servers.into_iter().any(is_alive));
}

#[tokio::test]
async fn what_was_accepted_before_a_kill_is_an_order_after_the_next_start() {
    let folder = DataFolder::new();
    let mut promised = Vec::new();
    let mut demo = Demo::start(&folder).await;
    let tokens = tokens(&folder, 40).await;
    for (tokens, with_servers) in [(&tokens[..20], false), (&tokens[20..], true)] {
        for token in tokens {
            let (status, accepted) = demo.claim(token).await;
            assert_eq!(status, 202, "{accepted}");
            promised.push((token, order_id(&accepted)));
        }
        demo.process.kill();
        let servers = folder.server_pids();
        assert!(servers.into_iter().all(is_alive));
        if with_servers {
            folder.kill_servers();
        }

        demo = Demo::start(&folder).await;
        // Those that lived were taken over.
        assert_eq!(folder.server_pids() == servers, !with_servers);
        for (token, order) in &promised {
            demo.assert_order(token, *order).await;
        }
    }
    let servers = folder.server_pids();
    demo.interrupt().await;
    assert!(!servers.into_iter().any(is_alive));
}

#[tokio::test]
async fn a_demo_that_is_stopped_while_it_starts_leaves_no_server() {
    let folder = DataFolder::new();
    let arguments = ["demo", "--listen", "127.0.0.1:0", "--data-dir", folder.text()];
    let mut demo = Process::spawn(flash_sale(&arguments));
    demo.logged("a new Postgres cluster is being made").await;
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.ended().await.code(), Some(0));
    eventually("the servers end", async || !folder.has_servers()).await;
}

#[tokio::test]
async fn throw_away_servers_end_with_their_input_and_when_they_are_told_to() {
    for with_their_input in [true, false] {
        let temporary = DataFolder::made(0o755);
        let mut keeper = Process::spawn(throw_away(&temporary));
        let servers = announced(&keeper).await;
        assert!(servers.into_iter().all(is_alive));
        assert_eq!(temporary.entries(), 1);
        if with_their_input {
            keeper.close_input();
        } else {
            keeper.signal(Signal::SIGTERM);
        }
        assert_eq!(keeper.ended().await.code(), Some(0));
        assert!(!servers.into_iter().any(is_alive));
        assert_eq!(temporary.entries(), 0);
    }
}

#[tokio::test]
async fn throw_away_servers_end_when_whoever_wanted_them_is_killed() {
    let temporary = DataFolder::made(0o755);
    // A parent that holds the writing end of its child's input, as a test run does.
    let mut parent = Command::new("sh");
    parent.args([
        "-c",
        "mkfifo \"$1/in\" && { \"$0\" private-servers --throw-away <\"$1/in\" & exec 3>\"$1/in\"; wait; }",
        env!("CARGO_BIN_EXE_flash-sale"),
        temporary.text(),
    ]);
    parent.env("TMPDIR", temporary.path());
    let mut parent = Process::spawn(parent);
    let servers = announced(&parent).await;
    parent.kill();
    // Each process that could write to this pipe has ended.
    parent.output_ended().await;
    assert!(!servers.into_iter().any(is_alive));
    // The pipe alone.
    assert_eq!(temporary.entries(), 1);
}

#[tokio::test]
async fn throw_away_servers_that_are_stopped_while_they_start_leave_nothing() {
    let temporary = DataFolder::made(0o755);
    let mut keeper = Process::spawn(throw_away(&temporary));
    let line = keeper.logged("a private server is starting").await;
    let (_, pid) = line.split_once(" pid=").expect("the line names the process");
    let server: i32 = pid.split(' ').next().expect("a word").parse().expect("a process id");
    keeper.logged("a new Postgres cluster is being made").await;
    keeper.signal(Signal::SIGTERM);
    // Its input is still open.
    assert_eq!(keeper.ended().await.code(), Some(0));
    assert!(!is_alive(server));
    assert_eq!(temporary.entries(), 0);
}

#[tokio::test]
async fn servers_that_cannot_start_leave_nothing_and_say_why() {
    let temporary = DataFolder::made(0o755);
    let programs = DataFolder::made(0o755);
    make_program(&programs, "redis-server", "echo 'Redis server v=6.2.14 sha=0'");
    let mut command = throw_away(&temporary);
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.text()));
    let refused = run(command).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let said = refused.last_words();
    assert!(said.contains("6.2") && said.contains("7.0 is the oldest"), "{said}");
    assert_eq!(temporary.entries(), 0);
}

#[tokio::test]
async fn a_folder_that_postgres_could_not_reach_as_root_works_all_the_same() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root has to run Postgres as another user");
        return;
    }
    let private = DataFolder::made(0o700);
    let folder = DataFolder::at(private.path().join("data"));
    let mut command = flash_sale(&["private-servers", "--data-dir", folder.text()]);
    command.stdin(Stdio::piped());
    let mut keeper = Process::spawn(command);
    let servers = announced(&keeper).await;
    assert!(servers.into_iter().all(is_alive));
    keeper.close_input();
    assert_eq!(keeper.ended().await.code(), Some(0));
    assert!(!servers.into_iter().any(is_alive));
}

/// Whatever was in the service's environment, and must not be in that of a server.
const SECRETS: [(&str, &str); 4] = [
    ("FLASH_SALE_TOKEN_SECRET", "hunter2-hunter2-hunter2-hunter2-1"),
    ("FLASH_SALE_PAYMENT_CALLBACK_SECRET", "hunter2-hunter2-hunter2-hunter2-2"),
    ("PGPASSWORD", "hunter2-3"),
    ("A_SECRET_OF_ANOTHER_PROGRAM", "hunter2-4"),
];

#[tokio::test]
async fn servers_inherit_no_secret() {
    if !Path::new("/proc/self/environ").exists() {
        println!("SKIPPED: this system has no /proc");
        return;
    }
    let folder = DataFolder::new();
    let mut command = flash_sale(&["demo", "--listen", "127.0.0.1:0", "--data-dir", folder.text()]);
    command.envs(SECRETS).env("FLASH_SALE_CI_RUN", "a run of our own");
    let mut demo = Process::spawn(command);
    demo.printed("Ctrl-C stops everything").await;
    let [redis, postgres] = folder.server_pids();
    let children = children_of(postgres);
    assert!(!children.is_empty(), "Postgres has processes of its own");
    for pid in [redis, postgres].into_iter().chain(children) {
        let environment = environment_of(pid);
        assert!(!environment.contains("hunter2"), "process {pid}: {environment}");
    }
    // By this one `.ci/run` finds servers that were left behind.
    for needed in ["FLASH_SALE_CI_RUN=a run of our own", "PATH="] {
        assert!(environment_of(redis).contains(needed), "{needed}");
    }
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_program_that_is_asked_for_its_version_inherits_no_secret() {
    let temporary = DataFolder::made(0o755);
    let programs = DataFolder::made(0o755);
    let seen = programs.path().join("seen");
    let tell = format!("env >'{}'; echo 'Redis server v=6.2.14 sha=0'", seen.display());
    make_program(&programs, "redis-server", &tell);
    let mut command = throw_away(&temporary);
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.text())).envs(SECRETS);
    assert_eq!(run(command).await.code, Some(1));
    let seen = fs::read_to_string(seen).expect("it has been asked");
    assert!(seen.contains("PATH=") && !seen.contains("hunter2"), "{seen}");
}

// ---- what the tests ask ----

/// A shell script under this name.
fn make_program(folder: &DataFolder, name: &str, script: &str) {
    let path = folder.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("room on the disk");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("ours");
}

/// The environment that a process was started with.
fn environment_of(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/environ")).expect("it lives, and it may be read");
    String::from_utf8_lossy(&bytes).replace('\0', "\n")
}

/// Processes whose parent is this one.
fn children_of(parent: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("Linux").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(") ").next().unwrap_or_default();
        after_name.split(' ').nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

/// A demo that runs, and what it printed.
pub struct Demo {
    pub process: Process,
    pub token: String,
    /// The lines to paste: claim, what became of it, my orders.
    claim_url: String,
    claim_state_url: String,
    orders_url: String,
    client: reqwest::Client,
}

impl Demo {
    pub async fn start(folder: &DataFolder) -> Self {
        Self::of(folder, |arguments| flash_sale(arguments)).await
    }

    async fn of(folder: &DataFolder, command: fn(&[&str]) -> Command) -> Self {
        let arguments = ["demo", "--listen", "127.0.0.1:0", "--data-dir", folder.text()];
        let process = Process::spawn(command(&arguments));
        let last_word = async |line| {
            let line = process.printed(line).await;
            line.split_whitespace().last().expect("a word").trim_matches('"').to_owned()
        };
        let token = last_word("  TOKEN=").await;
        Self {
            token: token.strip_prefix("TOKEN=").expect("just found").to_owned(),
            claim_url: last_word("  curl -i -X POST").await,
            claim_state_url: last_word("/claims/me").await,
            orders_url: last_word("/v1/orders").await,
            process,
            client: client(),
        }
    }

    fn claim_url_without_host(&self) -> &str {
        let (_, path) = self.claim_url.split_once("/v1/").expect("a path");
        path
    }

    pub async fn claim(&self, token: &str) -> (u16, Value) {
        self.send(self.client.post(&self.claim_url), token).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, token: &str) -> (u16, Value) {
        let reply = request.bearer_auth(token).send().await.expect("it answers");
        (reply.status().as_u16(), reply.json().await.expect("JSON"))
    }

    /// The claim becomes this order, which its buyer finds among theirs.
    pub async fn assert_order(&self, token: &str, order: i64) {
        eventually("the order is written", async || {
            let (status, state) = self.send(self.client.get(&self.claim_state_url), token).await;
            // After a start, lanes are compared with Postgres first.
            if state["code"] == "recovering" {
                return false;
            }
            assert_eq!((status, order_id(&state)), (200, order));
            state["status"] == "unpaid"
        })
        .await;
        let (_, orders) = self.send(self.client.get(&self.orders_url), token).await;
        assert!(orders.to_string().contains(&format!("\"{order}\"")), "{orders}");
    }

    /// Ctrl-C, to the end.
    pub async fn interrupt(&mut self) {
        self.process.signal(Signal::SIGINT);
        assert_eq!(self.process.ended().await.code(), Some(0));
    }
}

#[tokio::test]
async fn a_data_folder_that_exists_is_made_private_or_refused() {
    let folder = DataFolder::new();
    let readable = |dir: &Path| {
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(0o775)).unwrap();
    };
    fs::create_dir_all(folder.path()).unwrap();
    let empty = folder.path().join("empty");
    readable(&empty);
    let token = async |dir: &Path| {
        let dir = dir.to_str().expect("UTF-8");
        run(flash_sale(&["token", "--user", "1", "--data-dir", dir])).await
    };
    let made = token(&empty).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let mode = fs::metadata(&empty).unwrap().permissions().mode();
    assert_eq!(mode & 0o066, 0, "{mode:o}");

    let others = folder.path().join("others");
    readable(&others);
    fs::write(others.join("report.txt"), "of another program").unwrap();
    let refused = token(&others).await;
    assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{refused:?}");
    let said = refused.last_words();
    assert!(said.contains("chmod 700") && said.contains("others"), "{said}");
    assert_eq!(fs::metadata(&others).unwrap().permissions().mode() & 0o777, 0o775);
    assert!(!others.join("token-secret").exists());
}

/// Tokens for users 1 to `count`, signed with the secret that the folder keeps.
async fn tokens(folder: &DataFolder, count: usize) -> Vec<String> {
    let count = count.to_string();
    let arguments = ["token", "--user", "1", "--count", &count, "--data-dir", folder.text()];
    let made = run(flash_sale(&arguments)).await;
    made.stdout.lines().map(ToOwned::to_owned).collect()
}

/// Throw-away servers in this folder, whose input is a pipe.
fn throw_away(temporary: &DataFolder) -> Command {
    let mut command = flash_sale(&["private-servers", "--throw-away"]);
    command.env("TMPDIR", temporary.path());
    command.stdin(Stdio::piped());
    command
}

/// Process ids of the servers that a keeper has announced.
async fn announced(keeper: &Process) -> [i32; 2] {
    let line = keeper.printed("redis_url").await;
    let servers: Value = serde_json::from_str(&line).expect("JSON");
    ["redis_pid", "postgres_pid"].map(|name| {
        let pid = servers[name].as_i64().expect("a number");
        i32::try_from(pid).expect("a process id")
    })
}

/// Whether this process lives. A process that has ended, and that its parent has not waited for, does not.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    kill(Pid::from_raw(pid), None).is_ok() && !stat.contains(") Z")
}
