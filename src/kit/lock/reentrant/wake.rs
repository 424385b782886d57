//! Wakes up those who wait for a lock: one subscription for each channel, shared by everybody here who waits.
//!
//! A message wakes up one of them, as in Redisson: it is enough that one of each client tries, and whoever gets the
//! lock publishes when it lets go. Nobody relies on a message alone. A subscription that breaks wakes up everybody, and
//! who waits also wakes up when the lease that is in the way has run out.
//!
//! The connection is one of its own, opened by the first who waits. It carries nothing but subscriptions, so it doesn't
//! matter which life of Redis it leads to: who is woken up asks over the connection that does know.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use redis::aio::{MultiplexedConnection, SendError};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;

/// Subscribes, and unsubscribes when nobody waits any more.
pub(super) struct Wakes {
    redis: Redis,
    shutdown: Shutdown,
    /// The connection in use; `None` before anybody has waited.
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
}

/// A connection that listens. It is never mended: who waits gets a new one.
struct Line {
    connection: MultiplexedConnection,
    topics: Topics,
    /// Cancelled when the connection has ended.
    broken: CancellationToken,
}

#[derive(Clone, Default)]
struct Topics(Arc<Mutex<HashMap<String, Arc<Topic>>>>);

/// A channel that somebody listens to.
#[derive(Default)]
struct Topic {
    wake: Notify,
    /// Changed with the map of topics in hand only.
    listeners: Mutex<usize>,
    /// Whether Redis has been told; held while it is being told, so that SUBSCRIBE and UNSUBSCRIBE don't overtake
    /// each other.
    subscribed: tokio::sync::Mutex<bool>,
}

/// A task that waits. The last listener of a channel unsubscribes when it is dropped.
pub(super) struct Listener {
    line: Arc<Line>,
    topic: Arc<Topic>,
    channel: String,
    shutdown: Shutdown,
}

impl Wakes {
    pub(super) fn new(redis: Redis, shutdown: Shutdown) -> Self {
        Self { redis, shutdown, line: tokio::sync::Mutex::default() }
    }

    /// Listens to `channel`. What is published after this has returned isn't missed.
    pub(super) async fn listen(&self, channel: String) -> RedisResult<Listener> {
        let line = self.line().await?;
        let topic = line.topics.enter(&channel);
        let listener = Listener { line, topic, channel, shutdown: self.shutdown.clone() };
        let mut subscribed = listener.topic.subscribed.lock().await;
        if !*subscribed {
            listener.line.connection.clone().subscribe(&listener.channel).await?;
            *subscribed = true;
        }
        drop(subscribed);
        Ok(listener)
    }

    async fn line(&self) -> RedisResult<Arc<Line>> {
        let mut current = self.line.lock().await;
        if let Some(line) = current.as_ref().filter(|line| !line.broken.is_cancelled()) {
            return Ok(line.clone());
        }
        let (topics, broken) = (Topics::default(), CancellationToken::new());
        let heard = {
            let (topics, broken) = (topics.clone(), broken.clone());
            move |push: PushInfo| {
                match push.kind {
                    PushKind::Message => topics.wake(push.data.first()),
                    PushKind::Disconnection => broken.cancel(),
                    _ => {}
                }
                Ok::<_, SendError>(())
            }
        };
        let (connection, _) = self.redis.listening_connection(heard).await?;
        let line = Arc::new(Line { connection, topics, broken });
        *current = Some(line.clone());
        Ok(line)
    }
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Topic>>> {
        self.0.lock().expect("nobody panics with the topics in hand")
    }

    fn enter(&self, channel: &str) -> Arc<Topic> {
        let mut topics = self.lock();
        let topic = topics.entry(channel.to_owned()).or_default();
        *topic.count() += 1;
        topic.clone()
    }

    /// True if nobody listens any more.
    fn leave(&self, topic: &Topic) -> bool {
        let _topics = self.lock();
        let mut listeners = topic.count();
        *listeners -= 1;
        *listeners == 0
    }

    fn is_unused(&self, topic: &Topic) -> bool {
        let _topics = self.lock();
        *topic.count() == 0
    }

    fn forget_if_unused(&self, channel: &str) {
        let mut topics = self.lock();
        if topics.get(channel).is_some_and(|topic| *topic.count() == 0) {
            topics.remove(channel);
        }
    }

    fn wake(&self, channel: Option<&Value>) {
        let Some(Value::BulkString(channel)) = channel else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if let Some(topic) = self.lock().get(channel) {
            topic.wake.notify_one();
        }
    }
}

impl Topic {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.listeners.lock().expect("nobody panics while counting")
    }
}

impl Listener {
    /// Returns when a message has come for us, or when none can come any more: then false, and it is time to
    /// [listen](Wakes::listen) anew. A message that came before is not lost.
    pub(super) async fn woken(&self) -> bool {
        tokio::select! {
            () = self.topic.wake.notified() => true,
            () = self.line.broken.cancelled() => false,
        }
    }

    /// Hands a message on that we could make nothing of.
    pub(super) fn pass_on(&self) {
        self.topic.wake.notify_one();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let is_last = self.line.topics.leave(&self.topic);
        if !is_last || tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (line, topic, channel) =
            (self.line.clone(), self.topic.clone(), std::mem::take(&mut self.channel));
        self.shutdown.spawn(async move {
            let mut subscribed = topic.subscribed.lock().await;
            // Somebody may have come back meanwhile.
            if line.topics.is_unused(&topic) {
                // If this fails, the connection has gone, and the subscription with it.
                let _ = line.connection.clone().unsubscribe(&channel).await;
                *subscribed = false;
                line.topics.forget_if_unused(&channel);
            }
        });
    }
}
