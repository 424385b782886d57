//! Redis by TLS, with a certificate of a private authority.

use private_servers::testing::{DataFolder, RedisServer};
use rcgen::{CertificateParams, KeyPair};

use super::key_urls_https::Authority;
use crate::support::process::{Process, flash_sale, run};
use crate::support::{SECRET, TestApp, eventually};

#[tokio::test]
async fn a_private_authority_is_named_in_the_url() {
    let app = TestApp::start().await;
    let folder = DataFolder::made(0o700);
    let authority = Authority::new();
    let ca = authority.write(folder.path());
    let (certificate, key) = pair(&authority, &folder);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    drop(listener);
    let tls = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
    let client = ["--tls-auth-clients", "no", "--tls-ca-cert-file", &ca];
    let _redis = RedisServer::start(&[&tls[..], &client].concat());

    let database = app.database_url();
    let stores = |query: &str| {
        let redis = format!("rediss://127.0.0.1:{port}/{query}");
        let flags = ["--redis-url", &redis, "--database-url", &database, "--token-secret", SECRET];
        flags.map(str::to_owned)
    };
    let doctor = async |query: &str| {
        let mut command = flash_sale(&["doctor"]);
        command.args(stores(query));
        run(command).await
    };
    let unknown = doctor("").await;
    assert!(unknown.stdout.contains("sslrootcert=/path"), "{unknown:?}");
    let known = format!("?sslrootcert={ca}");
    let found = doctor(&known).await;
    assert!(found.stdout.contains(&format!("ok    Redis at 127.0.0.1:{port}")), "{found:?}");
    let nowhere = doctor("?sslrootcert=/nowhere/ca.pem").await;
    assert_eq!(nowhere.code, Some(2), "{nowhere:?}");
    let mut plain = flash_sale(&["doctor"]);
    plain.args(stores(&known).map(|word| word.replace("rediss://", "redis://")));
    assert_eq!(run(plain).await.code, Some(2), "an authority without TLS");

    // Locks, subscriptions and all else go the same way.
    let mut command = flash_sale(&["serve", "--listen", "127.0.0.1:0"]);
    command.args(stores(&known));
    let mut process = Process::spawn(command);
    let url = process.url().await;
    eventually("the service is ready", async || {
        let ready = app.client().get(format!("{url}/readyz")).send().await;
        ready.expect("it answers").status() == 200
    })
    .await;
    process.assert_stops().await;
}

/// A certificate for 127.0.0.1 and its key, as files.
fn pair(authority: &Authority, folder: &DataFolder) -> (String, String) {
    let key = KeyPair::generate().expect("a key pair");
    let parameters = CertificateParams::new(["127.0.0.1".to_owned()]).expect("the name is right");
    let certificate = parameters.signed_by(&key, &authority.0).expect("a certificate");
    let write = |name: &str, text: String| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("the folder is ours");
        file.to_str().expect("plain characters").to_owned()
    };
    (write("server.pem", certificate.pem()), write("server.key", key.serialize_pem()))
}
