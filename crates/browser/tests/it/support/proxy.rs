//! A proxy between the browser and the service, which can be switched off: pages and their files pass in any case, calls
//! of the API only while it is on.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Fate of the calls of the API, those under way among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// They pass.
    Pass,
    /// They wait.
    Wait,
    /// Their connections are cut.
    Cut,
}

/// A proxy on a port of its own. Ends, with all its connections, when it is dropped.
pub struct Proxy {
    url: String,
    calls: watch::Sender<Calls>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// Leads to the service at this address.
    pub async fn before(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let calls = watch::Sender::new(Calls::Pass);
        let (address, heard) = (address.to_owned(), calls.subscribe());
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("the listener accepts");
                // The end of a connection says nothing about the test.
                connections.spawn(forward(client, address.clone(), heard.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url, calls, _accepting: accepting }
    }

    /// Its URL, without a path.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Decides about the calls from now on.
    pub fn turn(&self, calls: Calls) {
        self.calls.send_replace(calls);
    }
}

/// One request on each connection, so that each is looked at.
async fn forward(
    mut client: TcpStream,
    address: String,
    mut calls: watch::Receiver<Calls>,
) -> io::Result<()> {
    let mut begin = Vec::new();
    while !begin.windows(4).any(|window| window == b"\r\n\r\n") {
        if client.read_buf(&mut begin).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&begin);
    let is_call = request.split(' ').nth(1).is_some_and(|path| path.starts_with("/v1/"));
    if is_call {
        let decided = calls.wait_for(|calls| *calls != Calls::Wait).await;
        if decided.is_ok_and(|calls| *calls == Calls::Cut) {
            return Ok(());
        }
    }
    let request = request.replace("Connection: keep-alive", "Connection: close");
    let mut service = TcpStream::connect(address).await?;
    service.write_all(request.as_bytes()).await?;
    tokio::select! {
        copied = copy_bidirectional(&mut client, &mut service) => copied.map(|_| ()),
        Ok(_) = calls.wait_for(|calls| is_call && *calls == Calls::Cut) => Ok(()),
    }
}
