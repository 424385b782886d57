//! Tokens of an issuer that serves its public keys under a URL: a real server, which rotates its keys, goes away,
//! answers junk, answers slowly, and answers without an end.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::jwt::public_keys::{Pace, PublicKeys};
use flash_sale::kit::jwt::{TokenError, Tokens};
use secrecy::SecretString;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::public_keys::{GRANTS, Issuer, SECRET};
use crate::support::process::{Process, flash_sale, run};
use crate::support::{Bounded, TestApp, eventually};

/// The server of an issuer. It reads one request of each connection.
struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    answer: Mutex<Answer>,
    /// Heads of the requests so far.
    asked: Mutex<Vec<String>>,
}

#[derive(Clone, Default)]
enum Answer {
    /// This whole reply.
    Whole(String),
    /// This beginning, and then a byte every few milliseconds without an end.
    Dripping(String),
    /// This beginning, and then as many bytes as the client takes.
    Endless(String),
    /// None.
    #[default]
    Never,
}

/// A reply of these keys.
fn keys(issuers: &[&Issuer]) -> Answer {
    let keys: Vec<_> = issuers.iter().map(|issuer| issuer.public()).collect();
    reply("200 OK", &json!({ "keys": keys }).to_string())
}

fn reply(status: &str, body: &str) -> Answer {
    let length = body.len();
    // The server closes each connection. If it didn't say so, the client could ask its next question on this one.
    let heads = format!("connection: close\r\ncontent-length: {length}");
    Answer::Whole(format!("HTTP/1.1 {status}\r\n{heads}\r\n\r\n{body}"))
}

impl Server {
    async fn start(answer: Answer) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    async fn start_at(address: SocketAddr, answer: Answer) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared { answer: answer.into(), ..Shared::default() });
        let task = Shutdown::default().spawn({
            let shared = shared.clone();
            async move {
                let mut held = Vec::new();
                while let Ok((stream, _)) = listener.accept().await {
                    held.extend(shared.serve(stream).await);
                }
            }
        });
        Self { address, shared, task }
    }

    fn answers(&self, answer: Answer) {
        *self.shared.answer.lock().unwrap() = answer;
    }

    fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    fn asked(&self) -> usize {
        self.shared.asked.lock().unwrap().len()
    }

    /// From now on, connections are refused.
    async fn goes_away(self) -> SocketAddr {
        self.task.abort();
        assert!(self.task.await.is_err(), "it was running");
        self.address
    }
}

impl Shared {
    /// The connection, if its client has to wait for ever.
    async fn serve(&self, mut stream: TcpStream) -> Option<TcpStream> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.ok()?);
        }
        self.asked.lock().unwrap().push(String::from_utf8(head).expect("a head is ASCII"));
        let answer = self.answer.lock().unwrap().clone();
        let (beginning, more, pause) = match answer {
            Answer::Never => return Some(stream),
            Answer::Whole(whole) => {
                stream.write_all(whole.as_bytes()).await.ok()?;
                return None;
            }
            Answer::Dripping(beginning) => (beginning, 1, Duration::from_millis(5)),
            Answer::Endless(beginning) => (beginning, 64 * 1024, Duration::ZERO),
        };
        stream.write_all(beginning.as_bytes()).await.ok()?;
        let more = vec![b' '; more];
        // Until the client has had enough.
        while stream.write_all(&more).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
        None
    }
}

/// No look of its own within a test.
const NEVER: Duration = Duration::from_secs(100_000);
const PATIENT: Pace = Pace { period: NEVER, pause: NEVER, pause_without_keys: NEVER };

fn accepting(url: &str, pace: Pace) -> (Arc<Tokens>, Arc<PublicKeys>) {
    accepting_within(url, pace, NEVER)
}

/// The same; the issuer has to answer in this time.
fn accepting_within(url: &str, pace: Pace, time: Duration) -> (Arc<Tokens>, Arc<PublicKeys>) {
    let keys = Arc::new(PublicKeys::under(url.parse().unwrap(), pace, time));
    let mut tokens = Tokens::new(&SecretString::from(SECRET));
    tokens.accept(keys.clone());
    (Arc::new(tokens), keys)
}

/// The task of the service, until the token is dropped.
async fn keep(app: &TestApp, keys: &Arc<PublicKeys>) {
    let (app, keys) = (app.app.clone(), keys.clone());
    app.shutdown.clone().spawn(async move {
        keys.keep(&app.metrics, app.shutdown.stop_token()).await;
    });
}

#[tokio::test]
async fn keys_are_fetched_and_change_with_the_issuer_s() {
    let issuers = Issuer::all();
    let [first, second, third] = &issuers;
    let server = Server::start(keys(&[first, second])).await;
    let (tokens, url) = accepting(&server.url(), PATIENT);
    let accepted = || issuers.each_ref().map(|issuer| tokens.verify(&issuer.token(None)).is_ok());
    url.refresh().bounded().await.expect("the issuer answers");
    assert_eq!(accepted(), [true, true, false]);
    server.answers(keys(&[second, third]));
    url.refresh().bounded().await.expect("the issuer answers");
    assert_eq!(accepted(), [false, true, true]);
    let heads = server.shared.asked.lock().unwrap().join("");
    assert_eq!(heads.matches("GET /keys HTTP/1.1\r\n").count(), 2, "{heads}");
    assert!(heads.contains("application/jwk-set+json"), "{heads}");
}

#[tokio::test]
async fn the_last_good_keys_stay_whatever_the_issuer_answers() {
    let [first, second, _] = Issuer::all();
    let server = Server::start(keys(&[&first])).await;
    let (tokens, url) = accepting_within(&server.url(), PATIENT, Duration::from_millis(400));
    let ready = async || url.refresh().bounded().await.is_ok();
    eventually("the keys are fetched", ready).await;
    let large = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1_u64 << 40);
    let open = "HTTP/1.1 200 OK\r\n\r\n{".to_owned();
    let set = json!({"keys": [second.public()]}).to_string();
    for (what, answer, words) in [
        ("no key", reply("200 OK", r#"{"keys":[]}"#), "no key is for RS256"),
        ("no set", reply("200 OK", "<html>sign in</html>"), "no JSON Web Key Set"),
        ("another list", reply("200 OK", "[]"), "no JSON Web Key Set"),
        ("half of it", reply("200 OK", &set[..set.len() - 2]), "no JSON Web Key Set"),
        ("an error", reply("500 Oops", &set), "500"),
        ("moved", reply("301 Moved\r\nlocation: /new", &set), "301"),
        ("no HTTP", Answer::Whole("SSH-2.0-x\r\n".into()), ""),
        ("a broken body", Answer::Whole(large.clone()), ""),
        ("a body of a terabyte", Answer::Endless(large), "length limit"),
        ("a body without an end", Answer::Endless(open.clone()), "length limit"),
        ("a slow body", Answer::Dripping(open), "no answer in 400ms"),
        ("a slow head", Answer::Dripping("HTTP/1.1 200 OK\r\nx-x: ".into()), "no answer"),
        ("silence", Answer::Never, "no answer in 400ms"),
    ] {
        server.answers(answer);
        let error = url.refresh().bounded().await.expect_err(what);
        assert!(error.contains(words) || error.contains("no answer in 400ms"), "{what}: {error}");
        assert_eq!(tokens.verify(&first.token(Some("r"))), Ok(GRANTS), "{what}");
        assert_eq!(tokens.verify(&second.token(Some("e"))), Err(TokenError::Invalid), "{what}");
    }
    let address = server.goes_away().await;
    url.refresh().bounded().await.expect_err("no server is there");
    assert_eq!(tokens.verify(&first.token(None)), Ok(GRANTS));
    let _server = Server::start_at(address, keys(&[&second])).await;
    eventually("it is back", ready).await;
    assert_eq!(tokens.verify(&second.token(None)), Ok(GRANTS));
}

#[tokio::test]
async fn a_server_without_tls_is_no_issuer_for_https() {
    let [first, ..] = Issuer::all();
    let server = Server::start(keys(&[&first])).await;
    let url = server.url().replace("http:", "https:");
    let (_, url) = accepting_within(&url, PATIENT, Duration::from_secs(1));
    url.refresh().bounded().await.expect_err("it does not speak TLS");
    assert!(url.keys().is_none());
}

#[tokio::test]
async fn an_unknown_kid_is_looked_up_in_the_background_and_seldom() {
    let app = TestApp::start().await;
    let [first, second, _] = Issuer::all();
    let (quick, slow) =
        (Server::start(keys(&[&first])).await, Server::start(keys(&[&first])).await);
    let soon = Pace { pause: Duration::from_millis(1), ..PATIENT };
    let (by_quick, quick_url) = accepting(&quick.url(), soon);
    let (by_slow, slow_url) = accepting(&slow.url(), PATIENT);
    for url in [&quick_url, &slow_url] {
        url.refresh().bounded().await.expect("the issuer answers");
        keep(&app, url).await;
    }
    // The issuer is silent from now on, and no verification waits for it.
    quick.answers(Answer::Never);
    for tokens in [&by_quick, &by_slow] {
        assert_eq!(tokens.verify(&first.token(Some("r"))), Ok(GRANTS));
        // A known kid, no kid, and a secret's algorithm ask for nothing.
        assert_eq!(tokens.verify(&(first.token(Some("r")) + "A")), Err(TokenError::Invalid));
        assert_eq!(tokens.verify(&second.token(None)), Err(TokenError::Invalid));
    }
    for tokens in [&by_quick, &by_slow] {
        for _ in 0..100 {
            assert_eq!(tokens.verify(&second.token(Some("e"))), Err(TokenError::Invalid));
        }
    }
    eventually("the unknown kid is looked up", async || quick.asked() == 2).await;
    assert_eq!(slow.asked(), 1, "a hundred tokens with unknown kids within the pause");
    let address = quick.goes_away().await;
    let quick = Server::start_at(address, keys(&[&first, &second])).await;
    let found = async || by_quick.verify(&second.token(Some("e"))) == Ok(GRANTS);
    // The look that hangs is given up with the connection.
    eventually("the new key is found", found).await;
    assert!(quick.asked() >= 1);
    assert_eq!(slow.asked(), 1);
}

#[tokio::test]
async fn before_the_first_keys_a_token_is_not_refused() {
    let app = TestApp::start().await;
    let [first, ..] = Issuer::all();
    let server = Server::start(reply("503 Away", "")).await;
    let soon = Pace { pause_without_keys: Duration::from_millis(1), ..PATIENT };
    let (tokens, url) = accepting(&server.url(), soon);
    url.refresh().bounded().await.expect_err("it has none yet");
    assert_eq!(tokens.verify(&first.token(Some("r"))), Err(TokenError::NoKeys));
    // The secret counts, and another's signature by it is refused as always.
    let own = tokens.issue(GRANTS, Clock::System.now() + TimeDelta::seconds(60));
    assert_eq!(tokens.verify(&own), Ok(GRANTS));
    assert_eq!(tokens.verify(&(own + "A")), Err(TokenError::Invalid));
    keep(&app, &url).await;
    let failures = || {
        let page = app.app.metrics.page();
        let line = page.lines().find(|line| line.starts_with("flash_sale_key_set_failures_total"));
        let count = line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        count.expect("it is on the page")
    };
    eventually("failures are counted", async || failures() > 1).await;
    server.answers(keys(&[&first]));
    let found = async || tokens.verify(&first.token(Some("r"))) == Ok(GRANTS);
    eventually("the first keys are found", found).await;
}

#[tokio::test]
async fn a_service_starts_without_its_issuer_and_says_so() {
    let app = TestApp::start().await;
    let [_, first, _] = Issuer::all();
    let address = Server::start(Answer::Never).await.goes_away().await;
    let url = format!("http://{address}/keys");
    let service = Process::serve(&app, &["--token-jwks-url", &url]);
    service.logged("the keys of tokens can't be read; until they can be").await;
    let orders = format!("{}/v1/orders", service.url().await);
    let ask = async || {
        let request = app.client().get(&orders).bearer_auth(first.token(Some("e")));
        app.send(request, "GET", "/v1/orders").await
    };
    let early = ask().await;
    assert_eq!(early.refusal(), (503, "unavailable"));
    assert_eq!(early.header("retry-after"), "1");
    assert!(early.text("detail").contains("ask again"), "{early:?}");
    let _server = Server::start_at(address, keys(&[&first])).await;
    eventually("its issuer is back", async || ask().await.status == 200).await;
    service.logged("public keys: 0 for RS256, 1 for ES256, 0 for EdDSA").await;
}

#[tokio::test]
async fn doctor_says_which_keys_are_loaded() {
    let app = TestApp::start().await;
    let [_, _, first] = Issuer::all();
    let server = Server::start(keys(&[&first])).await;
    let url = server.url();
    let doctor = async |more: &[&str]| {
        let stores = app.store_arguments();
        let words = ["doctor"].into_iter().chain(stores.iter().map(String::as_str));
        run(flash_sale(&words.chain(more.iter().copied()).collect::<Vec<_>>())).await
    };
    let found = doctor(&["--token-jwks-url", &url]).await;
    let expected =
        format!("ok    Token keys under {url}: public keys: 0 for RS256, 0 for ES256, 1 for EdDSA");
    assert!(found.stdout.contains(&expected), "{found:?}");
    server.answers(reply("404 Not Found", ""));
    let failed = doctor(&["--token-jwks-url", &url, "--token-keys", "/nowhere"]).await;
    for expected in [
        format!("FAIL  Token keys under {url}: answered 404 Not Found; tokens"),
        "FAIL  Token keys: --token-keys: /nowhere can't be read".to_owned(),
    ] {
        assert!(failed.stdout.contains(&expected), "{failed:?}");
    }
    // A worker verifies no token.
    let worker = doctor(&["--token-jwks-url", &url, "--roles", "worker"]).await;
    assert!(!worker.stdout.contains("Token keys"), "{worker:?}");
}
