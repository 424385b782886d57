//! The gateway's door: requests of the shop, the payer's page, and callbacks that are repeated until they are answered
//! 200.

#![expect(clippy::disallowed_types, reason = "a gateway has no order ids of the service's inside")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{self, Body, Bytes};
use axum::extract::{Path, Request, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Faults;
use super::books::{self, Books, Entry, Opening, State, Taking};
use super::signature::Secret;

/// Pause before a callback is repeated.
const REPEAT_PAUSE: Duration = Duration::from_millis(200);

/// Settings of a gateway.
pub struct Settings {
    /// Secret that the shop knows, too.
    pub secret: String,
    /// URL of the shop's callback.
    pub callback_url: String,
    /// File with the books; none keeps them in memory.
    pub books: Option<PathBuf>,
    /// Faults from the start on.
    pub faults: Faults,
}

/// A gateway that runs. Clones share it; it stops with the last one, or by [`stop`](Self::stop).
#[derive(Clone)]
pub struct Sample(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    secret: Secret,
    callback_url: Mutex<String>,
    books: Mutex<Books>,
    faults: Mutex<Faults>,
    client: reqwest::Client,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Deserialize)]
struct Refunding {
    key: String,
    payment_id: String,
}

#[derive(Deserialize)]
struct Query {
    payment_id: String,
}

impl Sample {
    /// Starts a gateway behind this listener.
    ///
    /// # Errors
    ///
    /// When the listener has no address, or the books can't be read.
    pub fn start(listener: TcpListener, settings: Settings) -> std::io::Result<Self> {
        let kept = settings.books.as_deref().map(Books::of_file).transpose()?.unwrap_or_default();
        let untold = kept.untold();
        let sample = Self(Arc::new(Inner {
            address: listener.local_addr()?,
            secret: Secret::new(&settings.secret),
            callback_url: Mutex::new(settings.callback_url),
            books: Mutex::new(kept),
            faults: Mutex::new(settings.faults),
            client: reqwest::Client::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }));
        let routes = Router::new()
            .route("/payments", post(open))
            .route("/refunds", post(refund))
            .route("/queries", post(query))
            .route_layer(middleware::from_fn_with_state(sample.clone(), sign))
            .route("/pay/{payment_id}", get(pay))
            .route("/charge-back/{payment_id}", post(charge_back))
            .route("/close/{payment_id}", post(close))
            .route("/unopened", post(unopened))
            .route("/callback-url", post(set_callback_url))
            .route("/books", get(books))
            .route("/untold", get(untold_callbacks))
            .route("/faults", post(set_faults))
            .with_state(sample.clone());
        let stop = sample.0.stop.clone();
        sample.0.tasks.spawn(async move {
            let served = axum::serve(listener, routes);
            let _ = served.with_graceful_shutdown(stop.cancelled_owned()).await;
        });
        untold.into_iter().for_each(|(number, notice)| sample.keep_telling(number, notice));
        Ok(sample)
    }

    /// URL of the gateway, for the shop's `--gateway-url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// Has callbacks sent to another URL.
    pub fn call_back(&self, url: String) {
        *lock(&self.0.callback_url) = url;
    }

    /// Switches faults on and off.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.0.faults) = faults;
    }

    /// All payments.
    pub fn books(&self) -> Vec<Entry> {
        lock(&self.0.books).all()
    }

    /// Number of callbacks that the shop has not answered 200 yet.
    pub fn untold(&self) -> usize {
        lock(&self.0.books).untold().len()
    }

    /// The payer pays.
    pub fn pay(&self, payment_id: &str) {
        let faults = self.faults();
        let taking = Taking {
            twice: faults.takes_twice,
            more: faults.takes_more,
            foreign: faults.takes_foreign,
        };
        self.change(|books| {
            let paid = books.pay(payment_id, taking);
            ((), paid.iter().map(payment_notice).collect())
        });
    }

    /// The payer pays for an order whose payment the shop has not opened, perhaps because the order isn't written yet.
    /// Nothing without [`Faults::takes_unopened`].
    pub fn pay_unopened(&self, opening: &Opening) {
        if self.faults().takes_unopened {
            let payment_id = self.change(|books| (books.open(opening), Vec::new()));
            self.pay(&payment_id);
        }
    }

    /// The payer's bank takes the money back.
    pub fn charge_back(&self, payment_id: &str) {
        self.change(|books| {
            let is_back = books.charge_back(payment_id);
            ((), is_back.then(|| refund_notice(payment_id)).into_iter().collect())
        });
    }

    /// Takes a request of the shop for a refund, by this key, and makes no callback.
    pub fn ask_refund(&self, key: &str, payment_id: &str) {
        self.change(|books| (books.refund(key.to_owned(), payment_id, false), Vec::new()));
    }

    /// The gateway begins to send the money back, which the shop hasn't asked for.
    pub fn begin_refund(&self, payment_id: &str) {
        self.change(|books| (books.refund(String::new(), payment_id, true), Vec::new()));
    }

    /// The money is back.
    pub fn end_refund(&self, payment_id: &str) {
        self.change(|books| {
            let is_back = books.refunded(payment_id);
            ((), is_back.then(|| refund_notice(payment_id)).into_iter().collect())
        });
    }

    /// The gateway waits for the payer no longer.
    pub fn close(&self, payment_id: &str) {
        self.change(|books| (books.close(payment_id), Vec::new()));
    }

    /// Changes the books, with callbacks to be sent. All is on the disk before anything is sent or answered.
    fn change<T>(&self, change: impl FnOnce(&mut Books) -> (T, Vec<Value>)) -> T {
        let faults = self.faults();
        let times = if faults.confirms_twice { 2 } else { 1 };
        let times = if faults.confirms_nothing { 0 } else { times };
        let mut books = lock(&self.0.books);
        let (done, notices) = change(&mut books);
        let notices = notices.iter().flat_map(|notice| (0..times).map(|_| notice.to_string()));
        let noted: Vec<_> =
            notices.map(|notice| (books.note_untold(notice.clone()), notice)).collect();
        books.save().expect("the books can be written");
        drop(books);
        noted.into_iter().for_each(|(number, notice)| self.keep_telling(number, notice));
        done
    }

    /// Stops: no request is answered any more, and no callback repeated.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    fn faults(&self) -> Faults {
        *lock(&self.0.faults)
    }

    /// Tells the shop, until it has answered 200.
    fn keep_telling(&self, number: u64, notice: String) {
        let sample = self.clone();
        self.0.tasks.spawn(async move {
            while !sample.tell(&notice).await {
                tokio::select! {
                    () = sample.0.stop.cancelled() => return,
                    () = tokio::time::sleep(REPEAT_PAUSE) => {}
                }
            }
            let mut books = lock(&sample.0.books);
            books.told(number);
            books.save().expect("the books can be written");
        });
    }

    async fn tell(&self, notice: &str) -> bool {
        let url = lock(&self.0.callback_url).clone();
        let stamp = self.0.secret.stamp(notice.as_bytes());
        let request = self.0.client.post(url).header("x-signature", stamp).body(notice.to_owned());
        let told = request.timeout(Duration::from_secs(5)).send().await;
        told.is_ok_and(|reply| reply.status() == reqwest::StatusCode::OK)
    }

    /// A signed request that may be answered; else the refusal.
    async fn read<T: DeserializeOwned>(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<T, Response> {
        let faults = self.faults();
        tokio::time::sleep(Duration::from_millis(faults.slow_ms)).await;
        let stamp = headers.get("x-signature").and_then(|value| value.to_str().ok());
        if !stamp.is_some_and(|stamp| self.0.secret.verifies(body, stamp)) {
            return Err((StatusCode::FORBIDDEN, "the signature is wrong").into_response());
        }
        if faults.refuses {
            return Err((StatusCode::UNPROCESSABLE_ENTITY, "not today").into_response());
        }
        serde_json::from_slice(body)
            .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()).into_response())
    }

    fn answer(&self, payment_id: &str, answer: Value) -> Response {
        let faults = self.faults();
        let fails = faults.fails_at.is_some_and(|number| payment_id == books::id(number));
        match faults.loses_answers || fails {
            true => (StatusCode::INTERNAL_SERVER_ERROR, "lost").into_response(),
            false => Json(answer).into_response(),
        }
    }
}

/// Signs the answer to a signed request.
async fn sign(Shared(sample): Shared<Sample>, request: Request, next: Next) -> Response {
    let asked = request.headers().get("x-signature").cloned();
    let (mut head, body) = next.run(request).await.into_parts();
    let body = body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    if let Some(asked) = asked {
        let message = [asked.as_bytes(), b".", &body].concat();
        let stamp = match sample.faults().signs_wrongly {
            true => Secret::new("another").stamp(&message),
            false => sample.0.secret.stamp(&message),
        };
        head.headers.insert("x-signature", stamp.parse().expect("digits and letters"));
    }
    Response::from_parts(head, Body::from(body))
}

async fn open(
    Shared(sample): Shared<Sample>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Response> {
    let opening: Opening = sample.read(&headers, &body).await?;
    let payment_id = sample.change(|books| (books.open(&opening), Vec::new()));
    if sample.faults().confirms_early {
        sample.pay(&payment_id);
        tokio::time::sleep(REPEAT_PAUSE).await;
    }
    let pay_url = format!("{}/pay/{payment_id}", sample.url());
    Ok(sample.answer(&payment_id, json!({"payment_id": payment_id, "pay_url": pay_url})))
}

async fn refund(
    Shared(sample): Shared<Sample>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Response> {
    let Refunding { key, payment_id } = sample.read(&headers, &body).await?;
    let later = sample.faults().refunds_later;
    let state = sample.change(|books| {
        let state = books.refund(key, &payment_id, later);
        let is_back = state == Some(State::Refunding) && books.refunded(&payment_id);
        (state, is_back.then(|| refund_notice(&payment_id)).into_iter().collect())
    });
    let Some(state) = state else {
        return Err((StatusCode::NOT_FOUND, "no such payment").into_response());
    };
    Ok(sample.answer(&payment_id, json!({"state": state})))
}

async fn query(
    Shared(sample): Shared<Sample>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Response> {
    let Query { payment_id } = sample.read(&headers, &body).await?;
    let found = lock(&sample.0.books).find(&payment_id).cloned();
    match found {
        Some(Entry { state, amount_cents, currency, .. }) => {
            let found = json!({"state": state, "amount_cents": amount_cents, "currency": currency});
            Ok(sample.answer(&payment_id, found))
        }
        None => Err((StatusCode::NOT_FOUND, "no such payment").into_response()),
    }
}

async fn pay(Shared(sample): Shared<Sample>, Path(payment_id): Path<String>) -> Response {
    if lock(&sample.0.books).find(&payment_id).is_none() {
        return (StatusCode::NOT_FOUND, "no such payment").into_response();
    }
    sample.pay(&payment_id);
    Html("<!doctype html><title>Paid</title><p>Paid: no money has moved.</p>").into_response()
}

async fn charge_back(Shared(sample): Shared<Sample>, Path(payment_id): Path<String>) -> StatusCode {
    sample.charge_back(&payment_id);
    StatusCode::NO_CONTENT
}

async fn close(Shared(sample): Shared<Sample>, Path(payment_id): Path<String>) -> StatusCode {
    sample.close(&payment_id);
    StatusCode::NO_CONTENT
}

async fn unopened(Shared(sample): Shared<Sample>, Json(opening): Json<Opening>) -> StatusCode {
    sample.pay_unopened(&opening);
    StatusCode::NO_CONTENT
}

async fn books(Shared(sample): Shared<Sample>) -> Json<Vec<Entry>> {
    Json(sample.books())
}

async fn untold_callbacks(Shared(sample): Shared<Sample>) -> Json<usize> {
    Json(sample.untold())
}

async fn set_callback_url(Shared(sample): Shared<Sample>, Json(url): Json<String>) -> StatusCode {
    sample.call_back(url);
    StatusCode::NO_CONTENT
}

async fn set_faults(Shared(sample): Shared<Sample>, Json(faults): Json<Faults>) -> StatusCode {
    sample.set_faults(faults);
    StatusCode::NO_CONTENT
}

fn payment_notice(entry: &Entry) -> Value {
    let method = match entry.method.as_str() {
        "balance" => 1,
        "alipay" => 2,
        _ => 3,
    };
    json!({"kind": "payment", "payment_id": entry.payment_id, "order_id": entry.order_id,
           "method": method, "amount_cents": entry.amount_cents, "currency": entry.currency})
}

fn refund_notice(payment_id: &str) -> Value {
    json!({"kind": "refund", "payment_id": payment_id})
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
