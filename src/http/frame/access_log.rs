//! The access log: one line for each of the requests that the setting picks.
//!
//! A request only hands its facts over. A task of its own finds out who asked, and writes the line; if it can't keep up,
//! lines are left out and counted, and no request waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::{HeaderValue, Method};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::telemetry::Metrics;

/// Picks requests, and hands their facts to the task that writes.
pub struct AccessLog {
    one_in: u32,
    count: AtomicU32,
    lines: Sender<Access>,
}

/// The facts of a request and its reply.
pub struct Access {
    /// Method of the request.
    pub method: Method,
    /// Name of the route.
    pub route: String,
    /// Status of the reply.
    pub status: u16,
    /// Code of the problem, if the reply is one.
    pub code: Option<&'static str>,
    /// Time from the head of the request to the head of the reply.
    pub took: Duration,
    /// The header with the token.
    pub authorization: Option<HeaderValue>,
    /// Name of the request.
    pub request_id: HeaderValue,
}

impl AccessLog {
    /// For one request in so many, and the queue of its lines; `None` for 0.
    pub fn new(one_in: u32) -> Option<(Self, Receiver<Access>)> {
        let (lines, queue) = channel(limits::ACCESS_LINES_MAX);
        (one_in > 0).then(|| (Self { one_in, count: AtomicU32::new(0), lines }, queue))
    }

    /// Whether the next request is written.
    pub fn picks(&self) -> bool {
        self.one_in == 1 || self.count.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.one_in)
    }

    /// Hands the facts over. If the queue is full, the line is lost and counted.
    pub fn hand_over(&self, access: Access, metrics: &Metrics) {
        if self.lines.try_send(access).is_err() {
            metrics.access_lines_lost.increment(1);
        }
    }
}

/// Writes the lines until the service stops. `actor_of` names the user of a token.
pub async fn write(
    mut queue: Receiver<Access>,
    stop: CancellationToken,
    actor_of: impl Fn(&HeaderValue) -> String,
) {
    loop {
        let access = tokio::select! {
            biased;
            access = queue.recv() => access,
            () = stop.cancelled() => None,
        };
        let Some(access) = access else { return };
        let actor = access.authorization.as_ref().map_or_else(|| "none".to_owned(), &actor_of);
        tracing::info!(
            target: "access",
            method = access.method.as_str(),
            route = access.route,
            status = access.status,
            code = access.code.unwrap_or("ok"),
            took_us = u64::try_from(access.took.as_micros()).unwrap_or(u64::MAX),
            actor,
            request_id = access.request_id.to_str().unwrap_or_default(),
            "request"
        );
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    #[test]
    fn one_request_in_so_many_is_picked() {
        assert!(AccessLog::new(0).is_none(), "0 is no log");
        for one_in in [1_u32, 2, 3, 10] {
            let (log, _queue) = AccessLog::new(one_in).expect("there is a log");
            let picked: Vec<u32> = (0..30).filter(|_| log.picks()).collect();
            let expected: Vec<u32> = (0..30).filter(|number| number % one_in == 0).collect();
            assert_eq!(picked, expected, "one in {one_in}");
        }
    }

    #[test]
    fn lines_for_which_the_queue_has_no_room_are_counted() {
        let metrics = Metrics::new([].into_iter(), [].into_iter()).expect("metrics");
        let (log, mut queue) = AccessLog::new(1).expect("there is a log");
        let hand_over = || log.hand_over(access(None), &metrics);
        let lost = || {
            let page = metrics.page();
            let line =
                page.lines().find_map(|it| it.strip_prefix("flash_sale_access_lines_lost_total "));
            line.expect("it is on the page").to_owned()
        };
        for _ in 0..limits::ACCESS_LINES_MAX {
            hand_over();
        }
        assert_eq!(lost(), "0");
        for count in ["1", "2"] {
            hand_over();
            assert_eq!(lost(), count);
        }
        queue.try_recv().expect("a line");
        hand_over();
        assert_eq!(lost(), "2", "there is room again");
    }

    fn access(token: Option<&'static str>) -> Access {
        Access {
            method: Method::GET,
            route: "/livez".to_owned(),
            status: 200,
            code: None,
            took: Duration::ZERO,
            authorization: token.map(HeaderValue::from_static),
            request_id: HeaderValue::from_static("a"),
        }
    }

    /// The tokens whose users were looked for, until the writer has ended.
    async fn written(queue: Receiver<Access>, stop: CancellationToken) -> Vec<String> {
        let tokens = std::sync::Mutex::new(Vec::new());
        let actor_of = |token: &HeaderValue| {
            tokens.lock().expect("one at a time").push(token.to_str().expect("text").to_owned());
            "user 7".to_owned()
        };
        let ended = tokio::time::timeout(Duration::from_secs(60), write(queue, stop, actor_of));
        ended.await.expect("it ends with its queue, or with the service");
        tokens.into_inner().expect("one at a time")
    }

    #[tokio::test(start_paused = true)]
    async fn the_lines_in_the_queue_are_written_before_the_end() {
        bound_this_test();
        let metrics = Metrics::new([].into_iter(), [].into_iter()).expect("metrics");
        let begin = || {
            let (log, queue) = AccessLog::new(1).expect("there is a log");
            for token in [Some("first"), None, Some("second")] {
                log.hand_over(access(token), &metrics);
            }
            (log, queue)
        };
        let (log, queue) = begin();
        drop(log);
        assert_eq!(written(queue, CancellationToken::new()).await, ["first", "second"]);
        // The service stops, and requests could still come.
        let (_log, queue) = begin();
        let stop = CancellationToken::new();
        stop.cancel();
        assert_eq!(written(queue, stop).await, ["first", "second"]);
    }
}
