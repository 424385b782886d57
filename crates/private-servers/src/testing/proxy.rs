//! A proxy between one process and Redis, and a switch between several servers.
//!
//! The proxy interferes with one command: it holds the command back (Redis has executed everything before it and nothing
//! after it), loses the reply to it (Redis has executed it, and the process never hears of that), or breaks the
//! connections that have carried it, and no others.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::patience::eventually;

/// A proxy that listens on TCP and forwards to a Redis. Ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct RedisProxy {
    /// The address that the process takes for that of Redis.
    url: String,
    hold: Arc<Hold>,
    /// Accepts connections; owns the tasks that serve them.
    _accepting: JoinSet<()>,
}

/// An address behind which one server stands, and later another one: the address of a service, or of a balancer. Open
/// connections stay with their server. Ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct Switch {
    url: String,
    socket: Arc<Mutex<PathBuf>>,
    _accepting: JoinSet<()>,
}

impl Switch {
    /// Leads to the server with this URL, `redis+unix://...`.
    ///
    /// # Panics
    ///
    /// If the URL is another one, or 127.0.0.1 has no free port.
    pub async fn to(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let own = format!("redis://{}", listener.local_addr().expect("the listener is bound"));
        let socket = Arc::new(Mutex::new(socket_of(url)));
        let mut accepting = JoinSet::new();
        let led_to = socket.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.expect("the listener accepts");
                let socket = led_to.lock().expect("no holder panics").clone();
                connections.spawn(forward(client, socket));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url: own, socket, _accepting: accepting }
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Leads connections that begin from now on to another server.
    ///
    /// # Panics
    ///
    /// If the URL is not `redis+unix://...`.
    pub fn lead_to(&self, url: &str) {
        *self.socket.lock().expect("no holder panics") = socket_of(url);
    }
}

async fn forward(mut client: TcpStream, socket: PathBuf) -> io::Result<()> {
    client.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut UnixStream::connect(socket).await?).await?;
    Ok(())
}

/// The command that is interfered with, the interference, and its counts.
#[derive(Debug)]
struct Hold {
    command: &'static str,
    told: AtomicBool,
    /// Notified when commands are held back no more.
    released: Notify,
    held: AtomicUsize,
    /// Commands to come whose replies are lost.
    replies_to_lose: AtomicUsize,
    /// Fate of the connections on which the command has come or comes.
    fate: watch::Sender<Fate>,
    /// Connections that have carried the command, and are open.
    carriers: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Forwarded,
    /// Closed on both sides.
    Cut,
    /// Open, and nothing arrives any more, in either direction.
    Silent,
}

impl RedisProxy {
    /// Forwards all bytes to the Redis at `url` (`redis+unix://...`), until it is told to interfere with `command`: a name
    /// or any other text that stands in the command as it is sent.
    ///
    /// # Panics
    ///
    /// If the URL is another one, or 127.0.0.1 has no free port.
    pub async fn before(url: &str, command: &'static str) -> Self {
        let socket = socket_of(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("the listener is bound"));
        let hold = Arc::new(Hold {
            command,
            told: AtomicBool::new(false),
            released: Notify::new(),
            held: AtomicUsize::new(0),
            replies_to_lose: AtomicUsize::new(0),
            fate: watch::Sender::new(Fate::Forwarded),
            carriers: AtomicUsize::new(0),
        });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, socket, hold.clone()));
        Self { url, hold, _accepting: accepting }
    }

    /// The address that the process takes for that of Redis.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on, a connection on which the command comes is forwarded no further, until the command is released.
    pub fn hold(&self) {
        self.hold.told.store(true, Ordering::SeqCst);
    }

    /// Forwards what was held back, and all that follows.
    pub fn release(&self) {
        self.hold.told.store(false, Ordering::SeqCst);
        self.hold.released.notify_waiters();
    }

    /// The next command is forwarded, and its connection is cut as soon as Redis answers.
    pub fn lose_next_reply(&self) {
        self.hold.replies_to_lose.fetch_add(1, Ordering::SeqCst);
    }

    /// Cuts the connections that have carried the command, and from now on each on which it comes. The former are closed
    /// when this returns.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`PATIENCE`](super::PATIENCE).
    pub async fn cut(&self) {
        self.hold.fate.send_replace(Fate::Cut);
        let carriers = &self.hold.carriers;
        eventually("the connections that have carried the command are closed", async || {
            carriers.load(Ordering::SeqCst) == 0
        })
        .await;
    }

    /// From now on, nothing arrives on the connections that have carried the command, nor on those on which it comes. They
    /// stay open.
    pub fn silence(&self) {
        self.hold.fate.send_replace(Fate::Silent);
    }

    /// New connections are forwarded again.
    pub fn heal(&self) {
        self.hold.fate.send_replace(Fate::Forwarded);
    }

    /// Replies that are still to be lost.
    #[must_use]
    pub fn replies_to_lose(&self) -> usize {
        self.hold.replies_to_lose.load(Ordering::SeqCst)
    }

    /// Commands held back so far.
    #[must_use]
    pub fn held(&self) -> usize {
        self.hold.held.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, hold: Arc<Hold>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("the listener accepts");
        // The end of a connection says nothing about the test.
        connections.spawn(connect(client, socket.clone(), hold.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, socket: PathBuf, hold: Arc<Hold>) -> io::Result<()> {
    // Dropped last: an open connection is counted.
    let carrier = Carrier { hold: &hold, carries: CancellationToken::new() };
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = UnixStream::connect(socket).await?.into_split();
    // Set when the next reply on this connection is to be lost.
    let cut = AtomicBool::new(false);
    let commands = forward_commands(&mut from_client, &mut to_server, &carrier, &cut);
    let replies = forward_replies(&mut from_server, &mut to_client, &cut);
    tokio::select! {
        // `commands` outlives its end of the connection while it holds something back.
        ended = async { tokio::try_join!(commands, replies) } => ended.map(|_| ()),
        fate = carrier.broken() => match fate {
            Fate::Silent => std::future::pending().await,
            _ => Ok(()),
        },
    }
}

/// A connection that may carry the command.
struct Carrier<'a> {
    hold: &'a Hold,
    /// Cancelled when the command has come.
    carries: CancellationToken,
}

impl Carrier<'_> {
    fn carry(&self) {
        if !self.carries.is_cancelled() {
            self.carries.cancel();
            self.hold.carriers.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Returns when the connection is to be forwarded no further.
    async fn broken(&self) -> Fate {
        self.carries.cancelled().await;
        let mut fate = self.hold.fate.subscribe();
        let broken = fate.wait_for(|fate| *fate != Fate::Forwarded).await;
        *broken.expect("the hold has the sender")
    }
}

impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        if self.carries.is_cancelled() {
            self.hold.carriers.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Copies until one side ends. Bytes before a command that is held back are forwarded, so Redis may see the beginning of
/// the command, and doesn't execute it.
async fn forward_commands(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    carrier: &Carrier<'_>,
    cut: &AtomicBool,
) -> io::Result<()> {
    let hold = carrier.hold;
    let mut buffer = vec![0; 16 * 1024];
    // The last bytes that were forwarded: a command may arrive in two pieces.
    let mut tail = Vec::new();
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        let fresh = &buffer[..length];
        let seen = [tail.as_slice(), fresh].concat();
        let name = hold.command.as_bytes();
        if let Some(at) = seen.windows(name.len()).position(|window| window == name) {
            carrier.carry();
            if *hold.fate.borrow() != Fate::Forwarded {
                return std::future::pending().await;
            }
            if hold.told.load(Ordering::SeqCst) {
                let before = at.saturating_sub(tail.len());
                to.write_all(&fresh[..before]).await?;
                let released = hold.released.notified();
                hold.held.fetch_add(1, Ordering::SeqCst);
                released.await;
                tail = seen[seen.len().saturating_sub(name.len() - 1)..].to_vec();
                to.write_all(&fresh[before..]).await?;
                continue;
            }
            let left = &hold.replies_to_lose;
            let one_less = |left: usize| left.checked_sub(1);
            let lose = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
            cut.fetch_or(lose, Ordering::SeqCst);
        }
        tail = seen[seen.len().saturating_sub(name.len() - 1)..].to_vec();
        to.write_all(fresh).await?;
    }
}

/// Copies until one side ends, or until a reply is to be lost: then both sides are cut.
async fn forward_replies(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    cut: &AtomicBool,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if cut.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}

/// The path of a socket: `/path` of `redis+unix:///path?...`.
fn socket_of(url: &str) -> PathBuf {
    let path = url
        .strip_prefix("redis+unix://")
        .expect("the URL of a Redis on a Unix socket: redis+unix://...");
    path.split('?').next().expect("splitting gives one part at least").into()
}
