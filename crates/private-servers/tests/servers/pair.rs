//! A pair in this process: started, joined, looked at, stopped, and started again with its data.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use private_servers::testing::{DataFolder, bound_this_test};
use private_servers::{PrivateServers, PrivateServersError, Settings, Sight, Sync};

use crate::support::{has_kept, is_alive, write};

#[tokio::test]
async fn data_is_there_after_a_stop_and_a_start() {
    bound_this_test();
    let folder = DataFolder::new();
    let settings = Settings::new(Sync::Durable);
    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    assert!(!servers.is_guest());
    write(servers.redis_url(), servers.database_url()).await;
    let ids = servers.process_ids();
    assert!(is_alive(ids.redis) && is_alive(ids.postgres));
    servers.stop().await.expect("both stop");
    assert!(!is_alive(ids.redis) && !is_alive(ids.postgres));
    assert!(!PrivateServers::any_alive(folder.path()).expect("the locks can be looked at"));

    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    assert!(has_kept(&servers).await);
    servers.stop().await.expect("both stop");
}

#[tokio::test]
async fn one_process_owns_a_folder_and_others_join() {
    bound_this_test();
    let folder = DataFolder::new();
    let settings = Settings::new(Sync::Off);
    let stopped = PrivateServers::sight(folder.path()).await.expect("the programs are installed");
    assert!(matches!(stopped, Sight::Stopped { .. }), "{stopped:?}");
    assert!(PrivateServers::join(folder.path()).await.expect("a look").is_none());

    let owner = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    write(owner.redis_url(), owner.database_url()).await;
    let refused = PrivateServers::start(folder.path(), &settings).await;
    let error = refused.expect_err("the folder is in use");
    let me = std::process::id();
    assert!(
        matches!(error, PrivateServersError::InUse { pid: Some(pid), .. } if pid == me),
        "{error}"
    );

    let guest = PrivateServers::join(folder.path()).await.expect("both answer").expect("an owner");
    assert!(guest.is_guest() && has_kept(&guest).await);
    guest.stop().await.expect("nothing to do for a guest");
    assert!(has_kept(&owner).await);
    let seen = PrivateServers::sight(folder.path()).await.expect("a look");
    assert!(matches!(seen, Sight::Running { redis_url, .. } if redis_url == owner.redis_url()));
    owner.stop().await.expect("both stop");
}

#[tokio::test]
async fn a_pair_is_called_after_its_name_and_keeps_it() {
    bound_this_test();
    let folder = DataFolder::new();
    let settings = Settings::new(Sync::Off).named("web_shop");
    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    assert!(servers.database_url().starts_with("postgres://web_shop@localhost:5432/web_shop?"));
    write(servers.redis_url(), servers.database_url()).await;
    servers.stop().await.expect("both stop");

    let other = PrivateServers::start(folder.path(), &Settings::new(Sync::Off)).await;
    let text = other.expect_err("the data has another name").to_string();
    assert!(text.contains("made with another name"), "{text}");
    assert!(!PrivateServers::any_alive(folder.path()).expect("the locks can be looked at"));
    let bad = PrivateServers::start(folder.path(), &settings.clone().named("a;b")).await;
    assert!(matches!(bad, Err(PrivateServersError::Name { name }) if name == "a;b"));

    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    assert!(has_kept(&servers).await);
    servers.stop().await.expect("both stop");
}

#[tokio::test]
async fn a_folder_with_a_long_or_odd_path_works_and_leaves_nothing_in_tmp() {
    bound_this_test();
    let parent = DataFolder::made(0o755);
    let folder = DataFolder::at(parent.path().join("é ".repeat(40)));
    let settings = Settings::new(Sync::Off).named("odd_path");
    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    assert!(servers.redis_url().contains("/tmp/odd-path-"), "{}", servers.redis_url());
    write(servers.redis_url(), servers.database_url()).await;
    assert!(has_kept(&servers).await);
    let socket = servers.redis_url().trim_start_matches("redis+unix://").to_owned();
    let short = std::path::Path::new(&socket).parent().expect("a folder").to_owned();
    assert_eq!(fs::metadata(&short).expect("it is there").permissions().mode() & 0o777, 0o700);
    servers.stop().await.expect("both stop");
    assert!(!short.exists());
}

#[tokio::test]
async fn a_dropped_pair_stops_and_the_next_start_waits_for_it() {
    bound_this_test();
    let folder = DataFolder::new();
    let settings = Settings::new(Sync::Durable);
    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    write(servers.redis_url(), servers.database_url()).await;
    let before = servers.process_ids();
    drop(servers);
    let servers = PrivateServers::start(folder.path(), &settings).await.expect("both start");
    assert_ne!(servers.process_ids().redis, before.redis);
    assert_ne!(servers.process_ids().postgres, before.postgres);
    assert!(has_kept(&servers).await);
    servers.stop().await.expect("both stop");
}
