//! Traces of claims for a collector, by OTLP over HTTP in JSON (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>); only
//! with the cargo feature `otlp`.
//!
//! # Model
//!
//! The process that took a claim sends the span of the request, and below it those of queue, script and answer. The
//! process that wrote the claim sends those of log, batch, locks, row and acknowledgement. The order id names the trace
//! and each of its spans ([`TraceName`]), so the collector joins the two.
//!
//! # What each failure does
//!
//! * The collector doesn't answer, or refuses: the spans of that request are lost and counted. Claims and batches notice
//!   nothing.
//! * The process is killed: the spans of its last second are lost. A process that stops sends them.
//!
//! # What is not promised
//!
//! The clocks of two processes and of Redis differ. The span of the log lies between two of them, and is approximate. A
//! batch with rows that were there already, or with dead letters, has no spans; neither has an acknowledgement that waited
//! for other claims of its entry. A refused claim has no order, and so no trace.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::names::TraceName;
use super::notes::TracedBatch;
use super::outbox::{Answered, Note, Outbox};
use super::steps::StepName;
use crate::base::clock::Clock;
use crate::base::config::{Config, Role};
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::base::telemetry::{LogThrottle, Metrics};
use crate::kit::http_client::{HttpClient, in_words};
use crate::sale::ids::OrderId;
use crate::sale::log::EntryId;

/// Starts the task that sends spans, if the configuration names a collector.
pub fn open(
    config: &Config,
    metrics: &Arc<Metrics>,
    clock: &Clock,
    shutdown: &Shutdown,
) -> Option<Outbox> {
    let url = config.otlp_url.clone()?;
    tracing::info!(%url, one_in = config.otlp_one_in, "traces of claims are sent");
    let (outbox, notes) = Outbox::new(config.otlp_one_in, metrics.clone());
    let sending = Sending {
        notes,
        client: HttpClient::new(limits::SPANS_TIMEOUT, limits::SPANS_REPLY_BYTES_MAX),
        url,
        resource: resource(&config.roles),
        clock: clock.clone(),
        metrics: metrics.clone(),
        throttle: LogThrottle::default(),
    };
    shutdown.spawn(sending.run(shutdown.stop_token().clone()));
    Some(outbox)
}

/// This process, as a collector knows it.
fn resource(roles: &[Role]) -> Value {
    let names = roles.iter().map(|role| match role {
        Role::Api => "api",
        Role::Worker => "worker",
    });
    json!({"attributes": [
        text("service.name", "flash-sale"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", Uuid::new_v4()),
        text("flash_sale.roles", names.collect::<Vec<_>>().join(",")),
    ]})
}

/// The task that sends spans.
struct Sending {
    notes: Receiver<Note>,
    client: HttpClient,
    url: Uri,
    resource: Value,
    clock: Clock,
    metrics: Arc<Metrics>,
    throttle: LogThrottle,
}

impl Sending {
    /// Sends the notes that have come, period by period until the stop, and once more then.
    async fn run(mut self, stop: CancellationToken) {
        let mut stopping = false;
        while !stopping {
            stopping = tokio::select! {
                () = stop.cancelled() => true,
                () = tokio::time::sleep(limits::SPANS_PERIOD) => false,
            };
            // Those that wait now: a stop must not wait for more of them.
            let mut waiting = self.notes.len();
            while waiting > 0 {
                let mut notes = Vec::with_capacity(limits::SPAN_NOTES_AT_A_TIME);
                let most = waiting.min(limits::SPAN_NOTES_AT_A_TIME);
                waiting -= self.notes.recv_many(&mut notes, most).await;
                self.send(notes.iter().flat_map(|note| self.spans(note)).collect()).await;
            }
        }
    }

    async fn send(&mut self, spans: Vec<Value>) {
        let count = spans.len();
        if let Err((lost, error)) = self.try_send(spans).await {
            self.metrics.spans_lost.increment(lost.min(count as u64));
            if self.throttle.allows() {
                tracing::warn!(
                    error,
                    spans = lost,
                    "the collector of --otlp-url has not taken spans, and they are lost"
                );
            }
        }
    }

    /// Sends spans. Of those that were lost, tells the number and the reason.
    async fn try_send(&self, spans: Vec<Value>) -> Result<(), (u64, String)> {
        let all = spans.len() as u64;
        let of_scope = json!([{"scope": {"name": "flash-sale"}, "spans": spans}]);
        let body = json!({"resourceSpans": [{"resource": self.resource, "scopeSpans": of_scope}]});
        let request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(Body::from(body.to_string()))
            .map_err(|error| (all, in_words(error)))?;
        let reply = self.client.send(request).await.map_err(|error| (all, error))?;
        if reply.status() != StatusCode::OK {
            return Err((all, format!("answered {}", reply.status())));
        }
        match rejected(reply.body()) {
            0 => Ok(()),
            some => Err((some, "took a part of them".to_owned())),
        }
    }

    /// The spans of a note.
    fn spans(&self, note: &Note) -> Vec<Value> {
        let order = match note {
            Note::Answered(answered) => answered.claim.order,
            Note::Written { order, .. } => *order,
        };
        let now = (self.clock.now(), Instant::now());
        let spans = Spans { order, trace: TraceName::of(order), now };
        match note {
            Note::Answered(answered) => spans.answered(answered),
            Note::Written { entry, batch, .. } => spans.written(*entry, batch),
        }
    }
}

/// Number of spans that a collector refused although it answered 200. A 64-bit number is a text in JSON.
fn rejected(reply: &[u8]) -> u64 {
    let reply: Value = serde_json::from_slice(reply).unwrap_or_default();
    let rejected = &reply["partialSuccess"]["rejectedSpans"];
    let number = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok());
    number.unwrap_or_default()
}

/// Name of the span of the request, the parent of those of the steps.
const REQUEST: &str = "request";

/// `SpanKind` of a span within the service, and of a request that it answers.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;

/// Makes the spans of one trace.
struct Spans {
    order: OrderId,
    trace: TraceName,
    /// One moment by both clocks of this process.
    now: (DateTime<Utc>, Instant),
}

impl Spans {
    /// Those of the process that took the claim.
    fn answered(&self, answered: &Answered) -> Vec<Value> {
        let Answered { claim, method, route, arrived_at, status } = answered;
        let call = &claim.call;
        let mut request = self.span(
            REQUEST,
            self.times(*arrived_at, claim.told_at),
            vec![
                text("http.request.method", method),
                text("http.route", route),
                number("http.response.status_code", usize::from(*status)),
                text("flash_sale.coupon_id", claim.coupon),
            ],
        );
        request["name"] = json!(format!("{method} {route}"));
        request["kind"] = json!(SERVER);
        request.as_object_mut().expect("it is an object").remove("parentSpanId");
        let shared = vec![number("flash_sale.call_claims", call.claims)];
        vec![
            request,
            self.step(StepName::Queue, (call.queued_at, call.called_at), vec![]),
            self.step(StepName::Script, (call.called_at, call.answered_at), shared),
            self.step(StepName::Answer, (call.answered_at, claim.told_at), vec![]),
        ]
    }

    /// Those of the process that wrote the claim.
    fn written(&self, entry: EntryId, batch: &TracedBatch) -> Vec<Value> {
        let read_at = self.wall(batch.read_at);
        let appended_at = i64::try_from(entry.ms).ok().and_then(DateTime::from_timestamp_millis);
        let in_log = (appended_at.map_or(read_at, |at| at.min(read_at)), read_at);
        let of_log = vec![text("flash_sale.entry", entry), file(StepName::Log)];
        let of_batch = vec![
            text("flash_sale.worker", &batch.worker),
            number("flash_sale.batch_claims", batch.claims.len()),
        ];
        let mut spans = vec![
            self.span(&name(StepName::Log), in_log, of_log),
            self.step(StepName::Batch, (batch.read_at, batch.taken_at), of_batch),
            self.step(StepName::Locks, (batch.taken_at, batch.locked_at), vec![]),
            self.step(StepName::Row, (batch.locked_at, batch.committed_at), vec![]),
        ];
        let (acknowledged_at, entries) = &batch.acknowledged;
        if entries.contains(&entry) {
            let times = (batch.committed_at, *acknowledged_at);
            spans.push(self.step(StepName::Acknowledgement, times, vec![]));
        }
        spans
    }

    fn step(
        &self,
        step: StepName,
        (from, to): (Instant, Instant),
        mut attributes: Vec<Value>,
    ) -> Value {
        attributes.push(file(step));
        self.span(&name(step), self.times(from, to), attributes)
    }

    /// A child of the span of the request.
    fn span(
        &self,
        name: &str,
        (from, to): (DateTime<Utc>, DateTime<Utc>),
        mut attributes: Vec<Value>,
    ) -> Value {
        attributes.push(text("flash_sale.order_id", self.order));
        json!({
            "traceId": hex(&self.trace.bytes()),
            "spanId": hex(&self.trace.span(name)),
            "parentSpanId": hex(&self.trace.span(REQUEST)),
            "name": name,
            "kind": INTERNAL,
            "startTimeUnixNano": in_ns(from),
            "endTimeUnixNano": in_ns(to),
            "attributes": attributes,
        })
    }

    fn times(&self, from: Instant, to: Instant) -> (DateTime<Utc>, DateTime<Utc>) {
        (self.wall(from), self.wall(to))
    }

    fn wall(&self, at: Instant) -> DateTime<Utc> {
        let (wall, instant) = self.now;
        wall - in_delta(instant.saturating_duration_since(at))
    }
}

fn in_delta(duration: Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or_default()
}

fn in_ns(at: DateTime<Utc>) -> String {
    at.timestamp_nanos_opt().unwrap_or_default().to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a step, as `GET /v1/orders/{id}/trace` tells it.
fn name(step: StepName) -> String {
    json!(step).as_str().expect("a step is told by its name").to_owned()
}

fn file(step: StepName) -> Value {
    text("code.file.path", step.file())
}

fn text(key: &str, value: impl ToString) -> Value {
    json!({"key": key, "value": {"stringValue": value.to_string()}})
}

fn number(key: &str, value: usize) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::routing::post;
    use private_servers::testing::{LogLines, bound_this_test, bounded, patience, tries};
    use tokio::net::TcpListener;
    use tokio::time::sleep;

    use super::super::notes::TracedClaim;
    use super::super::probe::Call;
    use super::*;
    use crate::sale::ids::{CouponId, UserId};

    /// Notes of every claim, and the task that sends them to a URL to which no client connects.
    fn to_nowhere() -> (Outbox, Sending) {
        let metrics = Metrics::new(std::iter::empty(), std::iter::empty()).expect("metrics");
        let metrics = Arc::new(metrics);
        let (outbox, notes) = Outbox::new(1, metrics.clone());
        let sending = Sending {
            notes,
            client: HttpClient::new(limits::SPANS_TIMEOUT, limits::SPANS_REPLY_BYTES_MAX),
            url: Uri::from_static("gopher://nowhere/v1/traces"),
            resource: resource(&[Role::Api]),
            clock: Clock::System,
            metrics,
            throttle: LogThrottle::default(),
        };
        (outbox, sending)
    }

    /// A claim of four spans.
    fn answered(order: i64) -> Answered {
        let (at, order) = (Instant::now(), OrderId::new(order).expect("an id"));
        let call = Call {
            queued_at: at,
            called_at: at,
            answered_at: at,
            claims: 1,
            accepted: Some(order),
        };
        let (coupon, user) = (CouponId::compose(1, 1), UserId::new(1).expect("an id"));
        let claim = TracedClaim { order, coupon, user, call, told_at: at };
        Answered { claim, method: "POST", route: "/", arrived_at: at, status: 202 }
    }

    fn lost(metrics: &Metrics) -> u64 {
        let page = metrics.page();
        let line = page.lines().find_map(|it| it.strip_prefix("flash_sale_spans_lost_total "));
        line.and_then(|number| number.parse().ok()).expect("it is on the page")
    }

    #[tokio::test(start_paused = true)]
    async fn notes_are_sent_period_by_period_and_once_more_at_the_stop() {
        bound_this_test();
        let (outbox, sending) = to_nowhere();
        let (metrics, stop) = (sending.metrics.clone(), CancellationToken::new());
        let tells = async {
            outbox.answered(answered(1));
            sleep(limits::SPANS_PERIOD / 2).await;
            assert_eq!(lost(&metrics), 0);
            sleep(limits::SPANS_PERIOD).await;
            assert_eq!(lost(&metrics), 4);
            outbox.answered(answered(2));
            sleep(limits::SPANS_PERIOD).await;
            assert_eq!(lost(&metrics), 8);
            outbox.answered(answered(3));
            stop.cancel();
        };
        let both = async { tokio::join!(sending.run(stop.clone()), tells) };
        bounded("the end of the task", both).await;
        assert_eq!(lost(&metrics), 12);
    }

    /// Sends the notes of so many claims at once to a collector that takes them. Returns the number of spans in each
    /// request, and of those lost.
    async fn sent(claims: usize) -> (Vec<usize>, u64) {
        let (outbox, mut sending) = to_nowhere();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        sending.url = url.parse().expect("a URL");
        sending.client = HttpClient::new(patience(), limits::SPANS_REPLY_BYTES_MAX);
        let taken = Arc::new(Mutex::new(Vec::new()));
        let take = {
            let taken = taken.clone();
            move |body: String| {
                let body: Value = serde_json::from_str(&body).expect("JSON");
                let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
                let spans = spans.as_array().expect("a list").len();
                taken.lock().expect("no holder panics").push(spans);
                std::future::ready("{}")
            }
        };
        let server = axum::serve(listener, Router::new().route("/", post(take)));
        let (metrics, stop) = (sending.metrics.clone(), CancellationToken::new());
        for order in 1..=claims {
            outbox.answered(answered(i64::try_from(order).expect("a small number")));
        }
        stop.cancel();
        tokio::select! {
            _ = server.into_future() => panic!("the server ends"),
            () = bounded("the end of the task", sending.run(stop)) => {}
        }
        let taken = std::mem::take(&mut *taken.lock().expect("no holder panics"));
        (taken, lost(&metrics))
    }

    #[tokio::test]
    async fn a_request_has_the_spans_of_a_bounded_number_of_notes_and_a_taken_one_is_not_told_of() {
        bound_this_test();
        let lines = LogLines::heard();
        let sent = sent(limits::SPAN_NOTES_AT_A_TIME + 1).await;
        assert_eq!(sent, (vec![4 * limits::SPAN_NOTES_AT_A_TIME, 4], 0));
        assert_eq!(lines.count("the collector of --otlp-url"), 0);
    }

    #[test]
    fn the_span_of_the_log_begins_with_the_entry_and_one_of_an_acknowledgement_needs_the_entry() {
        let (at, order) = (Instant::now(), OrderId::new(1).expect("an id"));
        let time = |ms| DateTime::from_timestamp_millis(ms).expect("a time");
        let spans = Spans { order, trace: TraceName::of(order), now: (time(1_000_000), at) };
        let [earlier, later] = [999_000, 1_000_001].map(|ms| EntryId { ms, sequence: 0 });
        let batch = TracedBatch {
            worker: "w".into(),
            read_at: at,
            taken_at: at,
            locked_at: at,
            committed_at: at,
            acknowledged: (at, vec![earlier]),
            claims: vec![(order, earlier), (order, later)],
        };
        // A clock of Redis that is ahead gives no span that ends before it begins.
        for (entry, begins, count) in [(earlier, 999_000, 5), (later, 1_000_000, 4)] {
            let written = spans.written(entry, &batch);
            assert_eq!(written.len(), count);
            assert_eq!(written[0]["startTimeUnixNano"], in_ns(time(begins)));
            assert_eq!(written[0]["endTimeUnixNano"], in_ns(time(1_000_000)));
        }
    }

    #[tokio::test]
    async fn spans_that_are_lost_are_counted_each_time_and_told_once_in_a_while() {
        bound_this_test();
        for _ in tries() {
            let (_outbox, mut sending) = to_nowhere();
            let lines = LogLines::heard();
            let began = Instant::now();
            for spans in [2, 3] {
                sending.send(vec![Value::Null; spans]).await;
            }
            assert_eq!(lost(&sending.metrics), 5);
            let told = lines.count("the collector of --otlp-url has not taken spans");
            // On a machine this slow the pause between two lines is over.
            if began.elapsed() < limits::LOG_LINE_PAUSE {
                assert_eq!(told, 1);
                break;
            }
        }
    }

    #[test]
    fn spans_that_a_collector_refuses_are_counted() {
        for (reply, count) in [
            ("", 0),
            ("{}", 0),
            (r#"{"partialSuccess":{}}"#, 0),
            (r#"{"partialSuccess":{"rejectedSpans":"7","errorMessage":"full"}}"#, 7),
            (r#"{"partialSuccess":{"rejectedSpans":7}}"#, 7),
        ] {
            assert_eq!(rejected(reply.as_bytes()), count, "{reply}");
        }
    }
}
