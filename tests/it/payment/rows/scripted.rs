//! A gateway that answers about a payment as the id of the payment says, and notes the ids that it was asked about.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, Uri};
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::signature::Signatures;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::app_with;
use crate::support::{SECRET, TestApp, now};

/// The gateway, as a test sees it.
#[derive(Clone, Default)]
pub struct Scripted(Arc<Mutex<Script>>);

struct Script {
    /// Ids of payments that it was asked about or asked to refund, and keys of payments that it was asked to open.
    asked: Vec<String>,
    /// Keys of the refunds that it was asked for.
    refunds: Vec<String>,
    /// Its answer to the opening of a payment; none for an error. `KEY` stands for the key of the request.
    opened: Option<(String, String)>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            asked: Vec::new(),
            refunds: Vec::new(),
            opened: Some(("open/KEY".into(), "https://pay/KEY".into())),
        }
    }
}

/// An app that opens its payments at a scripted gateway.
pub async fn shop() -> (TestApp, Scripted) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address: SocketAddr = listener.local_addr().expect("it is bound");
    let url = format!("http://{address}");
    let app = app_with(&["--gateway-url", &url, "--gateway-timeout-ms", "30000"]).await;
    let gateway = Scripted::default();
    let paths = Router::new().fallback(answer).with_state(gateway.clone());
    Shutdown::default().spawn(async move { axum::serve(listener, paths).await });
    (app, gateway)
}

impl Scripted {
    /// Ids and keys that it was asked about since the last call, in this order.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test has failed").asked)
    }

    /// Keys of the refunds that it was asked for since the last call, in this order.
    pub fn refunds(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no test has failed").refunds)
    }

    /// From now on it answers with this id and page, or with an error.
    pub fn opens(&self, answer: Option<(&str, &str)>) {
        let answer = answer.map(|(id, page)| (id.to_owned(), page.to_owned()));
        self.0.lock().expect("no test has failed").opened = answer;
    }
}

async fn answer(
    State(gateway): State<Scripted>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let request: Value = serde_json::from_slice(&body).expect("a request is JSON");
    let text = |name: &str| request[name].as_str().map(str::to_owned);
    let mut script = gateway.0.lock().expect("no test has failed");
    let (status, answer) = match uri.path() {
        "/payments" => {
            let key = text("key").expect("an opening has a key");
            script.asked.push(key.clone());
            match &script.opened {
                Some((id, page)) => {
                    let answer = json!({"payment_id": id.replace("KEY", &key), "pay_url": page.replace("KEY", &key)});
                    (200, answer.to_string())
                }
                None => (500, String::new()),
            }
        }
        _ => {
            let id = text("payment_id").expect("it names a payment");
            script.asked.push(id.clone());
            script.refunds.extend(text("key"));
            state(&id)
        }
    };
    let asked = headers["x-signature"].as_bytes();
    let signatures = Signatures::new(&SecretString::from(SECRET));
    let stamp = signatures.stamp(&[asked, b".", answer.as_bytes()].concat(), now());
    let reply = Response::builder().status(status).header("x-signature", stamp);
    reply.body(Body::from(answer)).expect("a reply")
}

/// The answer about a payment: its id is `STATE/AMOUNT/CURRENCY/...`, without those that the gateway doesn't tell; or
/// `fails/...`, `unknown/...`, or `long/BYTES`.
fn state(id: &str) -> (u16, String) {
    let mut parts = id.split('/');
    let state = parts.next().unwrap_or_default();
    let amount: Option<i64> = parts.next().and_then(|amount| amount.parse().ok());
    let currency = parts.next().filter(|currency| !currency.is_empty());
    match state {
        "fails" => (500, String::new()),
        "unknown" => (404, "no such payment".to_owned()),
        "long" => {
            let bytes = usize::try_from(amount.unwrap_or_default()).unwrap_or_default();
            let answer = json!({"state": "open"}).to_string();
            (200, format!("{answer}{}", " ".repeat(bytes - answer.len())))
        }
        _ => {
            let answer = json!({"state": state, "amount_cents": amount, "currency": currency});
            (200, answer.to_string())
        }
    }
}
