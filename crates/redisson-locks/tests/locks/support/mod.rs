//! Connections, clients and waits of the tests.

use std::sync::OnceLock;
use std::time::Duration;

use private_servers::testing::{RedisServer, bound_this_test};
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult};
use redisson_locks::{Connection, ReentrantLocks, Settings, Tasks};
use uuid::Uuid;

pub mod any_lock;
pub mod java;

/// Time for a server to answer one command: shorter than the leases of tests that don't want to lose them.
const ANSWER: Duration = Duration::from_secs(3);

/// The Redis of all tests that break none.
pub fn shared() -> String {
    static SHARED: OnceLock<RedisServer> = OnceLock::new();
    SHARED.get_or_init(|| RedisServer::start(&[])).url()
}

/// A name that no other test uses.
pub fn fresh_name() -> String {
    bound_this_test();
    format!("lock-{}", Uuid::new_v4().simple())
}

/// The server's client.
pub fn client_of(url: &str) -> Client {
    bound_this_test();
    Client::open(url).expect("a valid URL")
}

/// A connection that waits for its answers however busy the machine is, and stays ended when it has ended.
pub async fn connection(url: &str) -> MultiplexedConnection {
    connection_with(url, ANSWER).await
}

/// The same, with its own time-out.
pub async fn connection_with(url: &str, answer: Duration) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(answer));
    let client = client_of(url);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("Redis is there")
}

/// A connection that reconnects. The server may be down.
pub fn reconnecting(url: &str) -> ConnectionManager {
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER))
        .set_number_of_retries(1)
        .set_max_delay(Duration::from_millis(10));
    ConnectionManager::new_lazy_with_config(client_of(url), config).expect("a valid URL")
}

/// A client of re-entrant locks on this server, with its own connection.
pub async fn reentrant(url: &str, lease: Duration) -> ReentrantLocks {
    let settings = Settings { lease, ..patient_settings() };
    ReentrantLocks::new(connection(url).await, client_of(url), settings, Tasks::default())
}

/// Settings of a client that waits for its answers however busy the machine is.
pub fn patient_settings() -> Settings {
    Settings { renewal_timeout: ANSWER, release_timeout: ANSWER, ..Settings::default() }
}

/// The reply to one command, given as words.
pub async fn ask<T: FromRedisValue>(connection: &impl Connection, words: &[&str]) -> T {
    try_ask(connection, words).await.expect("Redis does it")
}

/// The reply to one command, given as words.
pub async fn try_ask<T: FromRedisValue>(
    connection: &impl Connection,
    words: &[&str],
) -> RedisResult<T> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).query_async(&mut connection.clone()).await
}

/// Number of clients that wait for the lock `name`.
pub async fn listeners(connection: &impl Connection, name: &str) -> i64 {
    let channel = redisson_locks::channel(name);
    let reply: (String, i64) = ask(connection, &["PUBSUB", "NUMSUB", &channel]).await;
    reply.1
}
