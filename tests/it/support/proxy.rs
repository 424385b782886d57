//! A proxy between one process and Redis that can hold a command back: what the process had done by then
//! stays done, and Redis never hears of the rest.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

use super::TestApp;

/// Listens on TCP, and leads to the Redis of a test app. Ends, with all its connections, when it is dropped.
pub struct RedisProxy {
    /// Where the process finds "Redis".
    url: String,
    hold: Arc<Hold>,
    /// Accepts connections; owns the tasks that serve them.
    _accepting: JoinSet<()>,
}

/// Which command is held back, and how often that has happened.
struct Hold {
    command: &'static str,
    told: AtomicBool,
    held: AtomicUsize,
}

impl RedisProxy {
    /// Forwards everything, until it is told to hold `command` back.
    pub async fn before(app: &TestApp, command: &'static str) -> Self {
        let socket = socket_of(&value_of(&app.store_arguments(), "--redis-url"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
        let hold =
            Arc::new(Hold { command, told: AtomicBool::new(false), held: AtomicUsize::new(0) });
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, socket, hold.clone()));
        Self { url, hold, _accepting: accepting }
    }

    /// The arguments that make the binary use the app's data, with Redis behind this proxy.
    pub fn store_arguments(&self, app: &TestApp) -> Vec<String> {
        let mut arguments = app.store_arguments();
        let direct = value_of(&arguments, "--redis-url");
        for argument in arguments.iter_mut().filter(|argument| **argument == direct) {
            argument.clone_from(&self.url);
        }
        arguments
    }

    /// From now on a connection on which the command comes is forwarded no further, for ever.
    pub fn hold(&self) {
        self.hold.told.store(true, Ordering::SeqCst);
    }

    /// Commands held back so far.
    pub fn held(&self) -> usize {
        self.hold.held.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, hold: Arc<Hold>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("it listens");
        // Its end, by whichever side, says nothing about the test.
        connections.spawn(connect(client, socket.clone(), hold.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, socket: PathBuf, hold: Arc<Hold>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (from_server, to_server) = UnixStream::connect(socket).await?.into_split();
    let commands = forward(&mut from_client, to_server, Some(&hold));
    // `commands` outlives its end of the connection while it holds something back.
    tokio::try_join!(commands, forward(from_server, &mut to_client, None))?;
    Ok(())
}

/// Copies until one side ends. What precedes a command that is held back is forwarded, so Redis may see
/// the beginning of it, which it doesn't execute.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    hold: Option<&Hold>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    // The last bytes that were forwarded: a command may arrive in two pieces.
    let mut tail = Vec::new();
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        let fresh = &buffer[..length];
        if let Some(hold) = hold {
            let seen = [tail.as_slice(), fresh].concat();
            let name = hold.command.as_bytes();
            let at = seen.windows(name.len()).position(|window| window == name);
            if let Some(at) = at.filter(|_| hold.told.load(Ordering::SeqCst)) {
                to.write_all(&fresh[..at.saturating_sub(tail.len())]).await?;
                hold.held.fetch_add(1, Ordering::SeqCst);
                return std::future::pending().await;
            }
            tail = seen[seen.len().saturating_sub(name.len() - 1)..].to_vec();
        }
        to.write_all(fresh).await?;
    }
}

fn value_of(arguments: &[String], flag: &str) -> String {
    let at = arguments.iter().position(|argument| argument == flag).expect("the flag is given");
    arguments[at + 1].clone()
}

/// `redis+unix:///path?...` -> `/path`
fn socket_of(url: &str) -> PathBuf {
    let path = url.strip_prefix("redis+unix://").expect("a private Redis listens on a socket");
    path.split('?').next().expect("there is a first part").into()
}
