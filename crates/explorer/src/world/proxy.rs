//! A way between a process and a store, which can be disturbed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The present state of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Data pass.
    Clear,
    /// Each piece of data is late by so many milliseconds.
    Late(u64),
    /// Data arrive in pieces of one byte.
    Slices,
    /// No data pass; they arrive when the mood ends.
    Hole,
    /// Each third reply is dropped, and its connection cut.
    DropReplies,
    /// No connection is taken.
    Closed,
}

/// Of so many replies one is dropped.
const DROPPED_OF: u64 = 3;

/// A way to a store. Ends with its drop.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    way: Arc<Way>,
    _accepting: JoinSet<()>,
}

#[derive(Debug)]
struct Way {
    mood: watch::Sender<Mood>,
    /// Socket of the server.
    server: watch::Sender<PathBuf>,
    /// Raised to cut all connections.
    cuts: watch::Sender<u64>,
    replies: AtomicU64,
}

impl Proxy {
    /// A way to the server on this socket, at a free port of 127.0.0.1.
    pub async fn to(socket: PathBuf) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let way = Arc::new(Way {
            mood: watch::Sender::new(Mood::Clear),
            server: watch::Sender::new(socket),
            cuts: watch::Sender::new(0),
            replies: AtomicU64::new(0),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, way.clone()));
        Ok(Self { port, way, _accepting: accepting })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Disturbs the way from now on.
    pub fn set(&self, mood: Mood) {
        self.way.mood.send_replace(mood);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.way.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// New connections lead to the server on this socket, and those that are open are cut.
    pub fn lead_to(&self, socket: PathBuf) {
        self.way.server.send_replace(socket);
        self.cut();
    }
}

async fn accept(listener: TcpListener, way: Arc<Way>) {
    let mut connections = JoinSet::new();
    loop {
        if let Ok((client, _)) = listener.accept().await
            && *way.mood.borrow() != Mood::Closed
        {
            connections.spawn(connect(client, way.clone()));
        }
        while connections.try_join_next().is_some() {}
    }
}

/// The end of a connection says nothing: either side may go at any time.
async fn connect(client: TcpStream, way: Arc<Way>) {
    let mut cuts = way.cuts.subscribe();
    cuts.mark_unchanged();
    let server = way.server.borrow().clone();
    let carried = async {
        client.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = UnixStream::connect(server).await?.into_split();
        let commands = carry(from_client, to_server, &way, false);
        let replies = carry(from_server, to_client, &way, true);
        // Either direction ends the connection.
        tokio::select! { ended = commands => ended, ended = replies => ended }
    };
    tokio::select! {
        _ = carried => {}
        _ = cuts.changed() => {}
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: &Way,
    are_replies: bool,
) -> io::Result<()> {
    let mut mood = way.mood.subscribe();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let now = *mood.borrow();
        match now {
            Mood::Clear => {}
            Mood::Late(ms) => sleep(Duration::from_millis(ms)).await,
            Mood::Hole | Mood::Closed => {
                // The sender lives as long as the way.
                let _ = mood.wait_for(|mood| !matches!(mood, Mood::Hole | Mood::Closed)).await;
            }
            Mood::DropReplies if are_replies => {
                if way.replies.fetch_add(1, Ordering::Relaxed).is_multiple_of(DROPPED_OF) {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
            Mood::DropReplies => {}
            Mood::Slices => {
                for byte in &buffer[..length] {
                    to.write_all(std::slice::from_ref(byte)).await?;
                    tokio::task::yield_now().await;
                }
                continue;
            }
        }
        to.write_all(&buffer[..length]).await?;
    }
}
