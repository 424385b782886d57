//! Requests that wait for their order to be written (`Prefer: wait`).
//!
//! # Model
//!
//! All waiting requests of a process share one task, which polls for all their orders with one query and hands each
//! order to its requests. The task starts with the first request and ends with the last. It polls every
//! [`limits::PREFER_CHECK_PERIOD`], and at once when a worker of the same process has written one of the orders.
//!
//! # Cost
//!
//! One connection to Postgres and one query per poll, for any number of requests: each request adds one id to the
//! query. After a poll the task pauses for [`limits::PREFER_CHECK_PAUSES`] times as long as the poll took, up to
//! [`limits::BACKOFF_MAX`]. So polls of up to 0.1 s keep a connection busy for a tenth of the time. Orders written by
//! this process skip the pause.
//!
//! # What each failure does
//!
//! * A poll fails, or takes longer than [`limits::PREFER_CHECK_MAX`]: the task polls again. The claim stays accepted,
//!   and a request that has waited long enough is answered 202.
//! * A client disconnects: the task stops looking for its order.
//!
//! # What is not promised
//!
//! A request may not get to wait: beyond [`limits::PREFER_WAITERS_MAX`], and while the service stops, it is answered at
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

pub struct OrderWaiters(Arc<Shared>);

struct Shared {
    orders: Orders,
    waiting: Mutex<Waiting>,
    /// Wakes the task: an order that a request waits for has been written.
    written: Notify,
    checks: Counter,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Waiting {
    /// Requests by order, and by a number of their own: repeats of a claim wait for the same order.
    requests: BTreeMap<(OrderId, u64), Request>,
    /// Number of the newest request.
    last: u64,
    /// Whether the polling task runs.
    is_checking: bool,
}

struct Request {
    /// The buyer. An order of another user under the same id is no answer.
    user: UserId,
    tell: oneshot::Sender<Order>,
}

/// A request's place among those that wait; given up on drop.
struct Place<'a> {
    shared: &'a Shared,
    request: (OrderId, u64),
}

impl OrderWaiters {
    pub fn new(orders: Orders, metrics: &Metrics, shutdown: Shutdown) -> Self {
        Self(Arc::new(Shared {
            orders,
            waiting: Mutex::default(),
            written: Notify::new(),
            checks: metrics.order_checks.clone(),
            shutdown,
        }))
    }

    /// The order of an accepted claim once it is written; `None` if `patience` ends first.
    pub async fn wait(&self, user: UserId, order: OrderId, patience: Duration) -> Option<Order> {
        let (_place, told) = self.enter(user, order)?;
        tokio::select! {
            told = told => told.ok(),
            () = sleep(patience) => None,
            // The request is answered while its connection is still open.
            () = self.0.shutdown.stop_token().cancelled() => None,
        }
    }

    /// Wakes the requests that wait for these orders, which a worker of this process has written.
    pub fn written(&self, mut orders: impl Iterator<Item = OrderId>) {
        let waiting = self.0.lock();
        if !waiting.requests.is_empty() && orders.any(|id| waiting.of(id).next().is_some()) {
            self.0.written.notify_one();
        }
    }

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
        if !std::mem::replace(&mut waiting.is_checking, true) {
            self.0.shutdown.spawn(self.0.clone().check_while_requests_wait());
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

    async fn check_while_requests_wait(self: Arc<Self>) {
        let mut pause = limits::PREFER_CHECK_PERIOD;
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
                () = self.check(&orders) => {}
            }
            let length = began.elapsed() * limits::PREFER_CHECK_PAUSES;
            pause = length.clamp(limits::PREFER_CHECK_PERIOD, limits::BACKOFF_MAX);
        }
    }

    /// The orders that requests wait for. Without any, marks the task as ended in the same step.
    fn sought(&self) -> Option<Vec<OrderId>> {
        let mut waiting = self.lock();
        waiting.is_checking = !waiting.requests.is_empty();
        let orders = waiting.requests.keys().map(|(order, _)| *order);
        let mut orders: Vec<OrderId> = orders.collect();
        orders.dedup();
        waiting.is_checking.then_some(orders)
    }

    async fn check(&self, orders: &[OrderId]) {
        self.checks.increment(1);
        match timeout(limits::PREFER_CHECK_MAX, self.orders.written(orders)).await {
            Ok(Ok(written)) => self.tell(written),
            Ok(Err(error)) => tracing::debug!(%error, "a check for orders failed"),
            Err(_) => tracing::debug!("a check for orders took too long"),
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
                    // The request may have given up meanwhile.
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

    /// Waiters whose polling task ends at once.
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
