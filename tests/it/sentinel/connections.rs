//! Connections: which server they lead to, and when they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flash_sale::base::shutdown::Shutdown;
use flash_sale::store::redis::{Link, Redis};
use redis::aio::SendError;
use redis::{PushInfo, PushKind};

use super::watched::{Watched, info, told};
use crate::support::servers::connection;
use crate::support::{bounded, eventually, patience};

/// A connection to the first server, which carries no command.
async fn idle(watched: &Watched, redis: &Redis) -> Arc<Link> {
    let link = redis.link().await.expect("the master answers");
    let run_id = link.server().as_str();
    let mut asking = connection(&watched.servers[0].0.url()).await;
    let of_master: String =
        redis::cmd("INFO").arg("server").query_async(&mut asking).await.expect("it answers");
    assert!(of_master.contains(run_id), "the sentinels name the master");
    link
}

/// Waits until the connection leads to another server.
async fn replaced(redis: &Redis, first: &Link) {
    eventually("an idle connection is left for the new master", async || {
        redis.link().await.is_ok_and(|link| link.server() != first.server())
    })
    .await;
}

#[tokio::test]
async fn a_paused_master_that_was_replaced_is_left_and_accepts_nothing_more() {
    let watched = Watched::start().await;
    let (redis, shutdown) = (watched.redis(), Shutdown::default());
    redis.follow_master(&shutdown);
    let first = idle(&watched, &redis).await;
    let ends = Arc::new(AtomicUsize::new(0));
    let counted = ends.clone();
    let heard = move |push: PushInfo| {
        let is_end = push.kind == PushKind::Disconnection;
        counted.fetch_add(usize::from(is_end), Ordering::SeqCst);
        Ok::<_, SendError>(())
    };
    let (_listening, _) = redis.listening_connection(heard).await.expect("the master answers");
    let old = &watched.servers[0].0;

    watched.be_quick().await;
    old.pause();
    // Waits in the socket of the paused server, which answers when it goes on.
    let ping = redis::cmd("PING");
    let late = first.query::<String>(&ping);
    let change = async {
        replaced(&redis, &first).await;
        eventually("the listener is told", async || ends.load(Ordering::SeqCst) > 0).await;
        eventually("the other replica follows the new master", async || {
            let mut ups = 0;
            for (server, _) in &watched.servers[1..] {
                let info = info(server).await;
                ups += i32::from(info.contains("master_link_status:up"));
                ups += i32::from(info.contains("min_slaves_good_slaves:1"));
            }
            ups == 2
        })
        .await;
        old.resume();
    };
    let (late, ()) = bounded("a late reply", async { tokio::join!(late, change) }).await;
    assert!(late.is_err(), "a reply of a master that was replaced is none: {late:?}");

    let mut tries = 0;
    eventually("the sentinels make it a replica", async || {
        let accepted: Option<String> = told(old, &["SET", "probe", "1"]).await;
        assert_eq!(accepted, None, "after {tries} tries the old master has accepted a write");
        tries += 1;
        info(old).await.contains("role:slave")
    })
    .await;
    println!("{tries} writes refused until the old master was a replica");
    assert_ne!(watched.led_to(&redis).await, Some(0));
    assert!(shutdown.stop(patience()).await);
}

#[tokio::test]
async fn a_sentinel_that_hangs_or_dies_is_left_for_another_one() {
    let mut watched = Watched::start().await;
    let (redis, shutdown) = (watched.redis(), Shutdown::default());
    redis.follow_master(&shutdown);
    let first = idle(&watched, &redis).await;
    watched.sentinels[0].0.pause();
    let another = redis.another().link().await.expect("another sentinel names the master");
    assert_eq!(another.server(), first.server());
    watched.sentinels[0].0.kill();
    let another = redis.another().link().await.expect("another sentinel names the master");
    assert_eq!(another.server(), first.server());
    watched.sentinels.remove(0);

    // The two others are enough for a fail-over, and one of them tells of it.
    watched.be_quick().await;
    watched.servers[0].0.pause();
    replaced(&redis, &first).await;
    watched.servers[0].0.resume();
    assert!(shutdown.stop(patience()).await);
}

/// Nothing follows the master in a process of one command: the end of the connection is enough there.
#[tokio::test]
async fn a_killed_master_is_left_without_a_word_of_the_sentinels() {
    let mut watched = Watched::start().await;
    let redis = watched.redis();
    let first = idle(&watched, &redis).await;
    watched.be_quick().await;
    watched.servers[0].0.kill();
    replaced(&redis, &first).await;
    let role = async || {
        let reply: Result<Vec<redis::Value>, _> = redis.query(&redis::cmd("ROLE")).await;
        reply.is_ok_and(|role| role[0] == redis::Value::BulkString(b"master".to_vec()))
    };
    eventually("a master answers", role).await;
}
