//! Messages that wake waiters: one subscription per channel, shared by all waiters of a client.
//!
//! A message wakes one waiter, as in Redisson: one try per client is enough, and whoever gets the lock publishes again
//! when it releases it. No waiter relies on messages alone. If a subscription breaks, all its waiters wake up, and each
//! also wakes up when the other holder's lease has ended.
//!
//! The first waiter opens a separate connection, which carries only subscriptions. After a wake-up, the try goes over
//! the connection for commands.

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
    /// The current connection; `None` before the first waiter.
    line: tokio::sync::Mutex<Option<Arc<Line>>>,
}

/// A listening connection. It is never repaired: once it has ended, waiters get a new one.
struct Line {
    connection: MultiplexedConnection,
    topics: Topics,
    /// Cancelled when the connection has ended.
    broken: CancellationToken,
}

#[derive(Clone, Default)]
struct Topics(Arc<Mutex<HashMap<String, Arc<Topic>>>>);

/// A channel with listeners.
#[derive(Default)]
struct Topic {
    wake: Notify,
    /// Number of listeners. Changed only while the map of topics is locked.
    listeners: Mutex<usize>,
    /// Whether Redis has been asked to subscribe. Locked during the request, so that SUBSCRIBE and UNSUBSCRIBE can't
    /// overtake each other.
    subscribed: tokio::sync::Mutex<bool>,
}

/// A waiting task. The last listener of a channel unsubscribes when it is dropped.
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

    /// Listens to `channel`. Messages that are published after this returns are not missed.
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
    /// Returns true when a message has come, even one that came before the call. Returns false when none can come any
    /// more; then [listen](Wakes::listen) again.
    pub(super) async fn woken(&self) -> bool {
        tokio::select! {
            () = self.topic.wake.notified() => true,
            () = self.line.broken.cancelled() => false,
        }
    }

    /// Passes a message on to the next listener, because this one could not act on it.
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
            // Another listener may have come in the meantime.
            if line.topics.is_unused(&topic) {
                // If this fails, the connection is gone, and the subscription with it.
                let _ = line.connection.clone().unsubscribe(&channel).await;
                *subscribed = false;
                line.topics.forget_if_unused(&channel);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use private_servers::testing::{Bounded, bound_this_test};
    use tokio::time::timeout;

    use super::*;
    use crate::broadcast::Broadcast;

    const SECOND: Duration = Duration::from_secs(1);

    fn wakes(air: &Broadcast) -> Wakes {
        Wakes::new(air.clone(), Tasks::default())
    }

    async fn listen(wakes: &Wakes, channel: &str) -> Listener {
        wakes.listen(channel.to_owned()).bounded().await.expect("the server confirms it")
    }

    /// What a listener returns within a second; `None` if it still waits.
    async fn woken(listener: &Listener) -> Option<bool> {
        timeout(SECOND, listener.woken()).bounded().await.ok()
    }

    fn channels(line: &Line) -> Vec<String> {
        let mut channels: Vec<String> = line.topics.lock().keys().cloned().collect();
        channels.sort_unstable();
        channels
    }

    /// Lets all tasks that are ready run.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn listen_subscribes_once_for_all_listeners_of_a_channel() {
        bound_this_test();
        let air = Broadcast::default();
        let wakes = wakes(&air);
        let first = listen(&wakes, "c").await;
        let second = listen(&wakes, "c").await;
        let other = listen(&wakes, "d").await;
        assert_eq!(air.asked(), ["HELLO 3", "SUBSCRIBE c", "SUBSCRIBE d"]);
        drop(first);
        settle().await;
        assert!(air.asked().is_empty(), "another one listens");
        drop(second);
        settle().await;
        assert_eq!(air.asked(), ["UNSUBSCRIBE c"]);
        assert_eq!(channels(&other.line), ["d"], "a channel without listeners is forgotten");
        let again = listen(&wakes, "c").await;
        assert_eq!(air.asked(), ["SUBSCRIBE c"]);
        assert_eq!(channels(&again.line), ["c", "d"]);
    }

    #[tokio::test(start_paused = true)]
    async fn listeners_that_leave_together_are_unsubscribed_once() {
        bound_this_test();
        let air = Broadcast::default();
        let wakes = wakes(&air);
        let line = {
            let first = listen(&wakes, "c").await;
            let _second = listen(&wakes, "c").await;
            air.asked();
            first.line.clone()
        };
        settle().await;
        assert_eq!(air.asked(), ["UNSUBSCRIBE c"]);
        assert_eq!(channels(&line), [] as [&str; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn woken_is_true_for_a_message_and_false_when_none_can_come() {
        bound_this_test();
        let air = Broadcast::default();
        let wakes = wakes(&air);
        let listener = listen(&wakes, "c").await;
        air.publish("d");
        assert_eq!(woken(&listener).await, None, "a message in another channel");
        air.publish("c");
        assert_eq!(woken(&listener).await, Some(true));
        assert_eq!(woken(&listener).await, None, "one message wakes up once");
        air.cut();
        for _ in 0..2 {
            assert_eq!(woken(&listener).await, Some(false));
        }
        air.asked();
        let anew = listen(&wakes, "c").await;
        assert_eq!(air.asked(), ["HELLO 3", "SUBSCRIBE c"]);
        air.publish("c");
        assert_eq!(woken(&anew).await, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn pass_on_hands_a_message_to_the_next_listener() {
        bound_this_test();
        let air = Broadcast::default();
        let wakes = wakes(&air);
        let first = listen(&wakes, "c").await;
        let second = listen(&wakes, "c").await;
        air.publish("c");
        assert_eq!(woken(&first).await, Some(true));
        assert_eq!(woken(&second).await, None, "a message wakes up one of them");
        first.pass_on();
        assert_eq!(woken(&second).await, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_comes_before_the_last_one_is_unsubscribed_takes_its_subscription() {
        bound_this_test();
        let air = Broadcast::default();
        let wakes = wakes(&air);
        drop(listen(&wakes, "c").await);
        let next = listen(&wakes, "c").await;
        settle().await;
        assert_eq!(air.asked(), ["HELLO 3", "SUBSCRIBE c"]);
        air.publish("c");
        assert_eq!(woken(&next).await, Some(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_comes_while_the_last_one_is_unsubscribed_subscribes_anew() {
        bound_this_test();
        let air = Broadcast::default();
        let wakes = wakes(&air);
        let last = listen(&wakes, "c").await;
        air.asked();
        air.hold_back();
        drop(last);
        settle().await;
        assert_eq!(air.asked(), ["UNSUBSCRIBE c"]);
        let confirmed = async {
            settle().await;
            assert!(air.asked().is_empty(), "SUBSCRIBE doesn't overtake UNSUBSCRIBE");
            air.confirm();
        };
        let (next, ()) = tokio::join!(listen(&wakes, "c"), confirmed);
        assert_eq!(air.asked(), ["SUBSCRIBE c"]);
        assert_eq!(channels(&next.line), ["c"]);
        air.publish("c");
        assert_eq!(woken(&next).await, Some(true));
    }

    #[test]
    fn a_listener_may_be_dropped_outside_of_a_runtime() {
        let air = Broadcast::default();
        let wakes = wakes(&air);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(listen(&wakes, "c"));
        air.asked();
        drop(listener);
        assert!(air.asked().is_empty(), "the subscription ends with its connection");
    }
}
