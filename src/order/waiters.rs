//! Requests that wait for their order to be written (`Prefer: wait`).
//!
//! # Model
//!
//! All requests of a process wait together, each for one order. A single task looks for all of these orders with one
//! query, and hands each order that is there to its request. The task begins with the first request, and ends when
//! none is left. It looks every [`limits::PREFER_LOOK_PERIOD`], and at once when a worker of the same process has
//! written one of them.
//!
//! # Cost
//!
//! One connection to Postgres and one query for each look, for any number of requests: a further request is one more
//! number in the query. A look is followed by a pause of [`limits::PREFER_LOOK_PAUSES`] times its length, so looking
//! takes a tenth of one connection at most while Postgres is busy writing those orders. An order that a worker of
//! this process has written is looked for without that pause.
//!
//! # What each failure does
//!
//! * A look fails, or takes longer than [`limits::PREFER_LOOK_MAX`]: it is repeated. The claim has been accepted all
//!   the same, and a request whose patience ends is answered 202.
//! * A client disconnects: its request waits no longer, and its order is not looked for.
//!
//! # What is not promised
//!
//! A request may not wait: beyond [`limits::PREFER_WAITERS_MAX`], and while the service stops, it is answered at
//! once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use metrics::Counter;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::Metrics;
use crate::order::model::Order;
use crate::order::write::Orders;
use crate::store::ids::{OrderId, UserId};

/// Lets requests wait for orders.
pub struct OrderWaiters(Arc<Shared>);

struct Shared {
    orders: Orders,
    waiting: Mutex<Waiting>,
    /// Tells the looking task that an order has been written for which a request waits.
    written: Notify,
    /// Counts looks.
    looks: Counter,
    /// Owns the looking task.
    shutdown: Shutdown,
}

#[derive(Default)]
struct Waiting {
    /// Requests by the order that each waits for, and a number of its own: repeats of a claim wait for the same order.
    requests: BTreeMap<(OrderId, u64), Request>,
    /// Number of the last request.
    last: u64,
    /// Whether the looking task is there.
    is_looked_for: bool,
}

/// A request that waits.
struct Request {
    /// Buyer of the order: another user's order under the same id is no answer.
    user: UserId,
    tell: oneshot::Sender<Order>,
}

/// The place of a request among those that wait; empty when it is dropped.
struct Place<'a> {
    shared: &'a Shared,
    request: (OrderId, u64),
}

impl OrderWaiters {
    /// Without any request yet.
    pub fn new(orders: Orders, metrics: &Metrics, shutdown: Shutdown) -> Self {
        Self(Arc::new(Shared {
            orders,
            waiting: Mutex::default(),
            written: Notify::new(),
            looks: metrics.order_looks.clone(),
            shutdown,
        }))
    }

    /// The order of an accepted claim once it has been written; `None` if `patience` ends first.
    pub async fn wait(&self, user: UserId, order: OrderId, patience: Duration) -> Option<Order> {
        let (_place, told) = self.enter(user, order)?;
        tokio::select! {
            told = told => told.ok(),
            () = sleep(patience) => None,
            // The claim is answered while there is still a connection to answer it on.
            () = self.0.shutdown.stop_token().cancelled() => None,
        }
    }

    /// Tells the requests that wait for these orders, which a worker of this process has written.
    pub fn written(&self, mut orders: impl Iterator<Item = OrderId>) {
        let waiting = self.0.lock();
        if !waiting.requests.is_empty() && orders.any(|id| waiting.of(id).next().is_some()) {
            self.0.written.notify_one();
        }
    }

    /// Number of requests that wait.
    pub fn count(&self) -> usize {
        self.0.lock().requests.len()
    }

    fn enter(&self, user: UserId, order: OrderId) -> Option<(Place<'_>, oneshot::Receiver<Order>)> {
        let mut waiting = self.0.lock();
        if waiting.requests.len() >= limits::PREFER_WAITERS_MAX {
            return None;
        }
        let (tell, told) = oneshot::channel();
        waiting.last += 1;
        let request = (order, waiting.last);
        waiting.requests.insert(request, Request { user, tell });
        if !std::mem::replace(&mut waiting.is_looked_for, true) {
            self.0.shutdown.spawn(self.0.clone().look_while_requests_wait());
        }
        Some((Place { shared: &self.0, request }, told))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.lock().requests.remove(&self.request);
    }
}

impl Waiting {
    /// Keys of the requests that wait for this order.
    fn of(&self, order: OrderId) -> impl Iterator<Item = (OrderId, u64)> {
        self.requests.range((order, 0)..=(order, u64::MAX)).map(|(key, _)| *key)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder of this lock panics")
    }

    async fn look_while_requests_wait(self: Arc<Self>) {
        let mut pause = limits::PREFER_LOOK_PERIOD;
        loop {
            tokio::select! {
                () = self.shutdown.stop_token().cancelled() => return,
                () = sleep(pause) => {}
                () = self.written.notified() => {}
            }
            let Some(orders) = self.sought() else { return };
            let began = Instant::now();
            tokio::select! {
                () = self.shutdown.stop_token().cancelled() => return,
                () = self.look(&orders) => {}
            }
            let length = began.elapsed() * limits::PREFER_LOOK_PAUSES;
            pause = length.clamp(limits::PREFER_LOOK_PERIOD, limits::BACKOFF_MAX);
        }
    }

    /// The orders for which requests wait. Without any, the looking task has ended in the same step.
    fn sought(&self) -> Option<Vec<OrderId>> {
        let mut waiting = self.lock();
        waiting.is_looked_for = !waiting.requests.is_empty();
        let orders = waiting.requests.keys().map(|(order, _)| *order);
        let mut orders: Vec<OrderId> = orders.collect();
        orders.dedup();
        waiting.is_looked_for.then_some(orders)
    }

    /// Looks once for all of these orders.
    async fn look(&self, orders: &[OrderId]) {
        self.looks.increment(1);
        match timeout(limits::PREFER_LOOK_MAX, self.orders.written(orders)).await {
            Ok(Ok(written)) => self.tell(written),
            Ok(Err(error)) => tracing::debug!(%error, "a look for orders failed"),
            Err(_) => tracing::debug!("a look for orders took too long"),
        }
    }

    fn tell(&self, written: Vec<Order>) {
        let mut waiting = self.lock();
        for order in written {
            let waiting_for: Vec<(OrderId, u64)> = waiting.of(order.order_id).collect();
            for key in waiting_for {
                let is_theirs = |request: &Request| request.user == order.user_id;
                if waiting.requests.get(&key).is_some_and(is_theirs)
                    && let Some(request) = waiting.requests.remove(&key)
                {
                    // Ignored if the request has given up meanwhile.
                    let _ = request.tell.send(order.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::{Bounded, bound_this_test};

    use super::*;
    use crate::order::model::OrderStatus;

    /// Requests whose looking task ends at once.
    fn waiters() -> OrderWaiters {
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://localhost/none");
        let time = Duration::from_secs(1);
        let orders = Orders::new(pool.expect("a valid URL"), time, time, false);
        let metrics = Metrics::new(std::iter::empty(), std::iter::empty()).expect("metrics");
        let shutdown = Shutdown::default();
        shutdown.stop_token().cancel();
        OrderWaiters::new(orders, &metrics, shutdown)
    }

    fn user(user: i64) -> UserId {
        UserId::new(user).expect("an id")
    }

    fn order(order: i64) -> OrderId {
        OrderId::new(order).expect("an id")
    }

    #[tokio::test]
    async fn an_order_is_handed_to_each_request_of_its_buyer_and_to_no_other() {
        bound_this_test();
        let waiters = waiters();
        let (_one, mut first) = waiters.enter(user(1), order(7)).expect("a place");
        let (_two, mut again) = waiters.enter(user(1), order(7)).expect("a place");
        let (_three, mut stranger) = waiters.enter(user(2), order(7)).expect("a place");
        let (four, mut other) = waiters.enter(user(1), order(8)).expect("a place");
        assert_eq!(waiters.count(), 4);
        assert_eq!(waiters.0.sought(), Some(vec![order(7), order(8)]));
        waiters.0.tell(vec![Order::example(7, 3, OrderStatus::Unpaid)]);
        assert_eq!(waiters.count(), 4);
        let written = Order::example(7, 1, OrderStatus::Unpaid);
        waiters.0.tell(vec![written.clone(), Order::example(9, 1, OrderStatus::Unpaid)]);
        assert_eq!([first.try_recv(), again.try_recv()], [Ok(written.clone()), Ok(written)]);
        assert!(stranger.try_recv().is_err() && other.try_recv().is_err());
        assert_eq!(waiters.count(), 2);
        drop(four);
        assert_eq!((waiters.count(), waiters.0.sought()), (1, Some(vec![order(7)])));
    }

    #[tokio::test]
    async fn so_many_requests_wait_and_none_while_the_service_stops() {
        bound_this_test();
        let waiters = waiters();
        let places: Vec<_> = (1..=256)
            .map_while(|n| waiters.enter(user(n), order(n)).map(|(place, _)| place))
            .collect();
        assert_eq!((places.len(), waiters.count()), (256, 256));
        assert!(waiters.enter(user(300), order(300)).is_none());
        drop(places);
        assert_eq!(waiters.count(), 0);
        let patience = Duration::from_secs(3_600);
        assert_eq!(waiters.wait(user(1), order(7), patience).bounded().await, None);
        assert_eq!(waiters.count(), 0);
    }
}
