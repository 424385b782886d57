//! Settings in the environment, and secrets in files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use flash_sale::kit::jwt::{Grants, Tokens};
use nix::unistd::geteuid;
use private_servers::testing::DataFolder;
use serde_json::Value;

use super::command_line::{said, with, words};
use crate::support::process::{Process, flash_sale, flash_sale_by_default, run};
use crate::support::{SECRET, TestApp, eventually, servers};

const OTHER: &str = "another secret, of thirty-two bytes";

/// Files of secrets, removed at the end of the test.
struct Files(DataFolder);

impl Files {
    fn new() -> Self {
        Self(DataFolder::made(0o700))
    }

    /// Writes a file, whole at any moment.
    fn write(&self, name: &str, text: &str) -> String {
        let (path, draft) = (self.0.path().join(name), self.0.path().join("draft"));
        fs::write(&draft, text).expect("the folder is there");
        fs::set_permissions(&draft, Permissions::from_mode(0o600)).expect("it is ours");
        fs::rename(&draft, &path).expect("it is ours");
        path.to_str().expect("plain characters").to_owned()
    }
}

fn verifies(secret: &str, token: &str) -> bool {
    Tokens::new(&secret.into()).verify(token.trim()) == Ok(Grants::user(42))
}

/// The variables of a sub-command, as its help names them.
async fn variables(command: &str) -> Vec<String> {
    let help = run(flash_sale_by_default(&[command, "--help"])).await.stdout;
    let named = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    named.map(str::to_owned).collect()
}

/// As of a container whose template has a line for each setting.
#[tokio::test]
async fn an_empty_variable_is_as_good_as_none() {
    let folder = DataFolder::new();
    let settings = variables("serve").await;
    assert!(settings.len() > 30, "{settings:?}");
    let with_empty = |mut command: Command| {
        command.envs(settings.iter().map(|name| (name, "")));
        command.env("FLASH_SALE_TOKEN_SECRET_FILE", "");
        run(command)
    };
    let token = ["token", "--user", "42", "--token-secret", SECRET];
    let token = with_empty(flash_sale_by_default(&token)).await;
    assert_eq!(token.code, Some(0), "{token:?}");
    assert!(verifies(SECRET, &token.stdout), "{token:?}");
    let doctor = flash_sale_by_default(&["doctor", "--data-dir", folder.text()]);
    let doctor = with_empty(doctor).await;
    assert!(doctor.stdout.contains("the API on 127.0.0.1:8080"), "{doctor:?}");
}

#[tokio::test]
async fn a_secret_may_stand_in_a_file() {
    let files = Files::new();
    let path = files.write("token", &format!("{SECRET}\n"));
    let of_variable = |path: &str| {
        let mut command = flash_sale(&["token", "--user", "42"]);
        command.env("FLASH_SALE_TOKEN_SECRET_FILE", path);
        command
    };
    let argument = format!("@{path}");
    let by_argument = flash_sale(&["token", "--user", "42", "--token-secret", &argument]);
    for command in [of_variable(&path), by_argument] {
        let token = run(command).await;
        assert!(verifies(SECRET, &token.stdout), "{token:?}");
    }
    // The variable itself wins.
    let mut both = of_variable(&path);
    both.env("FLASH_SALE_TOKEN_SECRET", OTHER);
    assert!(verifies(OTHER, &run(both).await.stdout));

    let help = run({
        let mut help = flash_sale(&["token", "--help"]);
        help.env("FLASH_SALE_TOKEN_SECRET_FILE", &path);
        help
    });
    assert!(!help.await.stdout.contains(SECRET));

    let missing = run(of_variable("/nowhere/token")).await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("/nowhere/token can't be read"), "{missing:?}");
    fs::set_permissions(&path, Permissions::from_mode(0o622)).expect("it is ours");
    let unsafe_file = run(of_variable(&path)).await;
    assert_eq!(unsafe_file.code, Some(2), "{unsafe_file:?}");
    assert!(unsafe_file.stderr.contains("another user may change"), "{unsafe_file:?}");
    assert!(!unsafe_file.stderr.contains(SECRET), "{unsafe_file:?}");
}

/// The secrets of a service that runs are changed, one after the other, without a restart.
#[tokio::test]
async fn secrets_in_files_are_rotated_without_a_restart() {
    let app = TestApp::start().await;
    let files = Files::new();
    let names = ["first", "second"].map(|name| format!("{name}_{}", uuid::Uuid::new_v4().simple()));
    for name in &names {
        app.execute(&format!("CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'p'")).await;
        let rights = ["ACL", "SETUSER", name, "on", ">p", "~*", "&*", "+@all"];
        let _: String = app.redis(&rights).await;
    }
    let postgres = |role: &str| {
        let url = app.database_url();
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
        format!("{scheme}://{role}:p@{rest}")
    };
    let redis = |user: &str| format!("{}?user={user}&pass=p", app.redis_url());
    let change = |to: usize, token: &str| {
        let paths = [
            files.write("redis", &redis(&names[to])),
            files.write("database", &postgres(&names[to])),
            files.write("token", token),
        ];
        paths.map(|path| format!("@{path}"))
    };
    let [redis_file, database_file, token_file] = change(0, SECRET);
    let flags = [
        ("--redis-url", &*redis_file),
        ("--database-url", &*database_file),
        ("--token-secret", &*token_file),
        ("--listen", "127.0.0.1:0"),
    ];
    let mut process = Process::spawn(flash_sale(&words(&with(&app, &["serve"], &flags))));
    let url = process.url().await;
    let status = async |secret: &str| {
        let soon = flash_sale::base::clock::Clock::System.now() + chrono::TimeDelta::hours(1);
        let token = Tokens::new(&secret.into()).issue(Grants::user(42), soon);
        let request = app.client().get(format!("{url}/v1/orders")).bearer_auth(token).send();
        request.await.map_or(0, |reply| reply.status().as_u16())
    };
    assert_eq!([status(SECRET).await, status(OTHER).await], [200, 401]);

    change(1, OTHER);
    process.logged("secrets have changed in their files").await;
    // The old ones are good for nothing any more.
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename =";
    app.execute(&format!("ALTER ROLE {} NOLOGIN", names[0])).await;
    assert!(app.number(&format!("{ended} '{}'", names[0])).await > 0, "it was in use");
    let _: i64 = app.redis(&["ACL", "DELUSER", &names[0]]).await;
    let coupon = app.create_flash(1).await;
    let claim = async || {
        let soon = flash_sale::base::clock::Clock::System.now() + chrono::TimeDelta::hours(1);
        let token = Tokens::new(&OTHER.into()).issue(Grants::user(42), soon);
        let request = app.client().post(format!("{url}/v1/coupons/{coupon}/claims"));
        request.bearer_auth(token).send().await.map_or(0, |reply| reply.status().as_u16())
    };
    eventually("the new users serve", async || [202, 409].contains(&claim().await)).await;
    eventually("an order is written", async || {
        app.number("SELECT count(*) FROM orders").await == 1
    })
    .await;
    assert_eq!([status(SECRET).await, status(OTHER).await], [401, 200]);

    // A file that can't be read changes nothing, and is told once.
    fs::remove_file(token_file.trim_start_matches('@')).expect("it is there");
    process.logged("the last ones stay").await;
    assert_eq!(status(OTHER).await, 200);
    process.assert_stops().await;
}

/// Whoever reads the log reads one form.
#[tokio::test]
async fn a_service_that_can_not_start_says_so_in_the_form_of_its_log() {
    let mut unknown = flash_sale(&["serve", "--no-such-flag"]);
    unknown.env("FLASH_SALE_LOG_FORMAT", "json");
    let wrong = ["serve", "--token-secret", "short", "--log-format=json"];
    let own = "redis://127.0.0.1:1/";
    let away = ["doctor", "--log-format", "json", "--redis-url", own, "--database-url", "x"];
    for (command, code, says) in [
        (unknown, 2, "--no-such-flag"),
        (flash_sale(&wrong), 2, "32 or more"),
        (flash_sale(&away), 2, "%40 %3A %2F %3F %23 %25"),
    ] {
        let ended = run(command).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        for line in ended.stderr.lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{ended:?}"));
            assert!(line["timestamp"].is_string() && line["level"].is_string(), "{line}");
        }
        let last: Value = serde_json::from_str(ended.last_words()).expect("it is JSON");
        let message = last["fields"]["message"].as_str().expect("words");
        assert!(last["level"] == "ERROR" && message.contains(says), "{last}");
    }
}

/// Words of Redis and Postgres that name no remedy.
#[tokio::test]
async fn a_refusal_of_a_store_comes_with_a_remedy() {
    let app = TestApp::start().await;
    let name = format!("r_{}", uuid::Uuid::new_v4().simple());
    app.execute(&format!("CREATE ROLE {name} LOGIN")).await;
    let servers = servers::shared();
    servers.create_empty_database(&name).await;
    let url = servers.database(&name);
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let refused = said(&["migrate", "--database-url", &format!("{scheme}://{name}@{rest}")]).await;
    servers.drop_database(&name).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.last_words().contains("ALTER DATABASE"), "{refused:?}");

    let wrong = format!("{}?user=nobody&pass=p", app.redis_url());
    let refused = said(&words(&with(&app, &["doctor"], &[("--redis-url", &wrong)]))).await;
    assert!(refused.stdout.contains("user or password are wrong"), "{refused:?}");
}

/// Whoever owns the folder may have put a secret there that root would sign tokens with.
#[tokio::test]
async fn a_secret_that_another_user_has_planted_is_not_believed() {
    let folder = DataFolder::made(0o700);
    let secret = folder.path().join("token-secret");
    let token = async || {
        let token = ["token", "--user", "42", "--data-dir", folder.text()];
        run(flash_sale_by_default(&token)).await
    };
    let plant = |mode: u32| {
        fs::write(&secret, SECRET).expect("the folder is there");
        fs::set_permissions(&secret, Permissions::from_mode(mode)).expect("it is ours");
    };
    plant(0o600);
    assert!(verifies(SECRET, &token().await.stdout));
    plant(0o644);
    let readable = token().await;
    assert_eq!(readable.code, Some(1), "{readable:?}");
    assert!(readable.stderr.contains("this user's alone"), "{readable:?}");
    // Only root can give a folder away.
    if !geteuid().is_root() {
        return;
    }
    plant(0o600);
    for given_away in [&secret, folder.path()] {
        chown(given_away, Some(65_534), None).expect("root may do that");
        let refused = token().await;
        assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{refused:?}");
        chown(given_away, Some(0), None).expect("root may do that");
    }
}
