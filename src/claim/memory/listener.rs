//! Listens for units that are added to sales (released or restocked), so that Redis is asked about the sale again at
//! once.
//!
//! # Model
//!
//! A script that adds units to a sale publishes the sale's id in the same step (`lua/release_units.lua`,
//! `lua/apply_coupon.lua`). Each process listens on a connection of its own, and forgets what it remembers of that
//! sale. While a process doesn't listen, it doesn't use its memories (`claim/memory/mod.rs`).
//!
//! # What each failure does
//!
//! * The connection ends, or another master takes the place of its server: the process forgets every sale at once, and
//!   opens another connection.
//! * The connection breaks without a sign: the process asks a question on it every [`limits::RETURNS_PING_PERIOD`], and
//!   ends a connection that doesn't answer. Messages and answers arrive in the order in which Redis sends them, so an
//!   answer also proves that every earlier message has arrived.
//! * The server becomes a replica behind the same address, and doesn't tell of units that are added on its master: the
//!   question is for its role, and any other answer than "master" ends the connection.
//! * The process may not subscribe, or Redis is away: the process keeps trying, with pauses of up to
//!   [`limits::BACKOFF_MAX`]. Meanwhile each claim asks Redis.
//!
//! # What is not promised
//!
//! A message may arrive late. Until it arrives, or until a silent connection is found out, the memories are used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::aio::{MultiplexedConnection, SendError};
use redis::{ErrorKind, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::time::{Instant, sleep};

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::claim::memory::Memories;
use crate::store::ids::CouponId;
use crate::store::keys::Keys;
use crate::store::redis::{Redis, check_is_master};

/// Listens as a task of the service, until it stops.
pub fn listen(redis: Redis, keys: &Keys, memories: Memories, shutdown: &Shutdown) {
    let listener = Listener { redis, restocks: keys.restocks_channel(), memories };
    let stop = shutdown.stop_token().clone();
    shutdown.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = listener.run() => {}
        }
        listener.memories.end_listening();
    });
}

struct Listener {
    redis: Redis,
    /// Channel on which added units are announced.
    restocks: String,
    memories: Memories,
}

impl Listener {
    /// Never returns. Of failures in a row only the first is logged as a warning.
    async fn run(&self) {
        let mut pause = limits::BACKOFF_MIN;
        let mut failed = false;
        loop {
            match self.subscribe().await {
                Ok((connection, connected)) => {
                    let error = self.until_it_ends(connection, &connected).await;
                    self.memories.end_listening();
                    tracing::warn!(%error, "the connection that tells of units that come back has ended; until there is another, all claims ask Redis");
                    (pause, failed) = (limits::BACKOFF_MIN, true);
                }
                Err(error) if failed => {
                    tracing::debug!(%error, "still no connection that tells of units that come back");
                }
                Err(error) => {
                    tracing::warn!(%error, "units that come back can't be listened for; until they can, all claims ask Redis");
                    failed = true;
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(limits::BACKOFF_MAX);
        }
    }

    /// A connection that is told of all units added from now on.
    async fn subscribe(&self) -> RedisResult<(MultiplexedConnection, Arc<AtomicBool>)> {
        let connected = Arc::new(AtomicBool::new(true));
        let heard = {
            let (memories, connected) = (self.memories.clone(), connected.clone());
            move |push: PushInfo| {
                match push.kind {
                    PushKind::Message => {
                        if let Some(coupon) = coupon_in(&push) {
                            memories.forget(coupon);
                        }
                    }
                    PushKind::Disconnection => connected.store(false, Ordering::Release),
                    _ => {}
                }
                Ok::<_, SendError>(())
            }
        };
        let (mut connection, server) = self.redis.listening_connection(heard).await?;
        connection.subscribe(&self.restocks).await?;
        self.memories.begin_listening(server, connected.clone());
        Ok((connection, connected))
    }

    /// Asks on the connection whether it still leads to a master, until it doesn't.
    async fn until_it_ends(
        &self,
        mut connection: MultiplexedConnection,
        connected: &AtomicBool,
    ) -> RedisError {
        loop {
            sleep(limits::RETURNS_PING_PERIOD).await;
            if !connected.load(Ordering::Acquire) {
                return RedisError::from((ErrorKind::Io, "the connection has ended"));
            }
            let asked_at = Instant::now();
            match check_is_master(&mut connection).await {
                Ok(()) => self.memories.heard(asked_at),
                Err(error) => return error,
            }
        }
    }
}

/// The coupon whose id the message is. Any other message is ignored.
fn coupon_in(push: &PushInfo) -> Option<CouponId> {
    let [_, Value::BulkString(message), ..] = &push.data[..] else { return None };
    std::str::from_utf8(message).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coupon_in_reads_the_id() {
        let bytes = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let coupon = CouponId::compose(5, 1);
        let id = coupon.to_string();
        for (data, read) in [
            (vec![bytes("restocks"), bytes(&id)], Some(coupon)),
            (vec![bytes("restocks"), bytes(&id), Value::Int(1)], Some(coupon)),
            (vec![bytes("restocks"), bytes("x")], None),
            (vec![bytes("restocks"), Value::Int(coupon.get())], None),
            (vec![bytes("restocks"), Value::BulkString(vec![0xff])], None),
            (vec![bytes("restocks")], None),
            (vec![], None),
        ] {
            let push = PushInfo { kind: PushKind::Message, data };
            assert_eq!(coupon_in(&push), read, "{push:?}");
        }
    }
}
