//! Messages that wake up waiters: one subscription for each channel, shared by all waiters of a client.
//!
//! A message wakes up one of them, as in Redisson: one try for each client is enough, and the holder that gets the lock
//! publishes when it releases it. No waiter relies on a message alone. A subscription that breaks wakes up all of them,
//! and each also wakes up when the lease in its way has ended.
//!
//! The connection is one of its own, opened by the first waiter. It carries nothing but subscriptions; the try after a
//! wake-up goes over the connection for commands.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use redis::aio::{MultiplexedConnection, SendError};
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::connection::Subscribe;
use crate::tasks::Tasks;

/// Subscribes, and unsubscribes when no waiter is left.
pub(super) struct Wakes {
    subscribe: Box<dyn Subscribe>,
    tasks: Tasks,
    /// The connection in use; `None` before the first waiter.
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
}

/// A connection that listens. It is never mended: after its end, waiters get a new one.
struct Line {
    connection: MultiplexedConnection,
    topics: Topics,
    /// Token that is cancelled when the connection has ended.
    broken: CancellationToken,
}

#[derive(Clone, Default)]
struct Topics(Arc<Mutex<HashMap<String, Arc<Topic>>>>);

/// A channel with listeners.
#[derive(Default)]
struct Topic {
    wake: Notify,
    /// Number of listeners; changed only while the map of topics is locked.
    listeners: Mutex<usize>,
    /// Whether Redis has been told; locked while Redis is being told, so that SUBSCRIBE and UNSUBSCRIBE don't overtake
    /// each other.
    subscribed: tokio::sync::Mutex<bool>,
}

/// A task that waits. The last listener of a channel unsubscribes when it is dropped.
pub(super) struct Listener {
    line: Arc<Line>,
    topic: Arc<Topic>,
    channel: String,
    tasks: Tasks,
}

impl Wakes {
    pub(super) fn new(subscribe: impl Subscribe, tasks: Tasks) -> Self {
        Self { subscribe: Box::new(subscribe), tasks, line: tokio::sync::Mutex::default() }
    }

    /// Listens to `channel`. A message that is published after this has returned isn't missed.
    pub(super) async fn listen(&self, channel: String) -> RedisResult<Listener> {
        let line = self.line().await?;
        let topic = line.topics.enter(&channel);
        let listener = Listener { line, topic, channel, tasks: self.tasks.clone() };
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
        let topics = Topics::default();
        let broken = CancellationToken::new();
        let heard = {
            let topics = topics.clone();
            let broken = broken.clone();
            move |push: PushInfo| {
                match push.kind {
                    PushKind::Message => topics.wake(push.data.first()),
                    PushKind::Disconnection => broken.cancel(),
                    _ => {}
                }
                Ok::<_, SendError>(())
            }
        };
        let connection = self.subscribe.open(Arc::new(heard)).await?;
        let line = Arc::new(Line { connection, topics, broken });
        *current = Some(line.clone());
        Ok(line)
    }
}

impl Topics {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Topic>>> {
        self.0.lock().expect("no holder panics")
    }

    fn enter(&self, channel: &str) -> Arc<Topic> {
        let mut topics = self.lock();
        let topic = topics.entry(channel.to_owned()).or_default();
        *topic.count() += 1;
        topic.clone()
    }

    /// True if no listener is left.
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
        self.listeners.lock().expect("no holder panics")
    }
}

impl Listener {
    /// Returns true when a message has come for this listener, and false when none can come any more: time to
    /// [listen](Wakes::listen) anew. A message that came before is not lost.
    pub(super) async fn woken(&self) -> bool {
        tokio::select! {
            () = self.topic.wake.notified() => true,
            () = self.line.broken.cancelled() => false,
        }
    }

    /// Hands a message on to the next listener, because this one could not act on it.
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
        self.tasks.spawn(async move {
            let mut subscribed = topic.subscribed.lock().await;
            // Another listener may have come meanwhile.
            if line.topics.is_unused(&topic) {
                // If this fails, the connection has gone, and the subscription with it.
                let _ = line.connection.clone().unsubscribe(&channel).await;
                *subscribed = false;
                line.topics.forget_if_unused(&channel);
            }
        });
    }
}
