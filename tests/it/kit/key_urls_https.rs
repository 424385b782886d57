//! Public keys of an issuer under an https URL: a real server, whose certificate an authority of its own has signed.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flash_sale::base::shutdown::Shutdown;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::public_keys::{Issuer, folder};
use crate::support::TestApp;
use crate::support::process::{Process, flash_sale};

/// An authority, and the certificates that it signs.
pub(super) struct Authority(pub(super) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Self {
        let mut parameters = CertificateParams::new([]).expect("no name is wrong");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key pair");
        Self(CertifiedIssuer::self_signed(parameters, key).expect("a certificate"))
    }

    /// Writes its own certificate, as a file that `SSL_CERT_FILE` can name.
    pub(super) fn write(&self, folder: &Path) -> String {
        let file = folder.join("authority.pem");
        std::fs::write(&file, self.0.pem()).expect("the file can be written");
        file.to_str().expect("the path is UTF-8").to_owned()
    }

    /// TLS for a server of this name.
    fn tls(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().expect("a key pair");
        let parameters = CertificateParams::new([name.to_owned()]).expect("the name is right");
        let certificate = parameters.signed_by(&key, &self.0).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("the key fits the certificate");
        Arc::new(config).into()
    }
}

/// The https server of an issuer.
struct Server {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(tls: TlsAcceptor, keys: &[&Issuer]) -> Self {
        let keys: Vec<_> = keys.iter().map(|issuer| issuer.public()).collect();
        let body = json!({ "keys": keys }).to_string();
        let heads = format!("connection: close\r\ncontent-length: {}", body.len());
        let reply = format!("HTTP/1.1 200 OK\r\n{heads}\r\n\r\n{body}");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let asked = Arc::<AtomicUsize>::default();
        let task = Shutdown::default().spawn({
            let asked = asked.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    if serve(&tls, stream, &reply).await.is_ok() {
                        asked.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        Self { address, asked, task }
    }

    fn url(&self) -> String {
        format!("https://{}/keys", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Answers the request of a connection, if the client trusts the certificate.
async fn serve(tls: &TlsAcceptor, stream: TcpStream, reply: &str) -> std::io::Result<()> {
    let mut stream = tls.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}

/// The service, which trusts the authorities of this file alone.
fn service(app: &TestApp, url: &str, authorities: &str) -> Process {
    let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0", "--roles", "api"]);
    command.args(app.store_arguments()).args(["--token-jwks-url", url]);
    command.env("SSL_CERT_FILE", authorities).env_remove("SSL_CERT_DIR");
    Process::spawn(command)
}

async fn status(app: &TestApp, service: &Process, token: &str) -> u16 {
    let url = format!("{}/v1/orders", service.url().await);
    let reply = app.client().get(url).bearer_auth(token).send().await;
    reply.expect("the service answers").status().as_u16()
}

#[tokio::test]
async fn keys_come_by_https_from_a_server_whose_authority_is_trusted() {
    let app = TestApp::start().await;
    let authority = Authority::new();
    let folder = folder();
    let trusted = authority.write(&folder);
    let [first, second, _] = Issuer::all();
    let server = Server::start(authority.tls("127.0.0.1"), &[&first]).await;
    let service = service(&app, &server.url(), &trusted);
    service.logged("the keys of tokens have been read").await;
    assert_eq!(status(&app, &service, &first.token(Some("r"))).await, 200);
    // Tokens with unknown keys, within a minute of the last check.
    for _ in 0..50 {
        assert_eq!(status(&app, &service, &second.token(Some("e"))).await, 401);
    }
    assert_eq!(server.asked(), 1, "the keys are kept, and an unknown one is no reason to ask");
    server.task.abort();
    assert!(server.task.await.is_err(), "it was running");
    assert_eq!(status(&app, &service, &first.token(Some("r"))).await, 200, "the last good keys");
    std::fs::remove_dir_all(folder).expect("it was made here");
}

#[tokio::test]
async fn keys_of_a_server_without_a_trusted_certificate_are_not_taken() {
    let app = TestApp::start().await;
    let (authority, stranger) = (Authority::new(), Authority::new());
    let folder = folder();
    let trusted = authority.write(&folder);
    let [first, ..] = Issuer::all();
    for (what, tls) in [
        ("another authority", stranger.tls("127.0.0.1")),
        ("another name", authority.tls("issuer.example")),
    ] {
        let server = Server::start(tls, &[&first]).await;
        let service = service(&app, &server.url(), &trusted);
        let line = service.logged("the keys of tokens can't be read").await;
        assert!(line.contains("certificate"), "{what}: {line}");
        assert_eq!(status(&app, &service, &first.token(Some("r"))).await, 503, "{what}");
        assert_eq!(server.asked(), 0, "{what}: the request was sent");
    }
    std::fs::remove_dir_all(folder).expect("it was made here");
}
