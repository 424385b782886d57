//! A server for the tests of connections: it speaks as much of Redis's protocol as they need, and notes each command.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use private_servers::testing::Bounded;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;

use super::{Link, Redis};

/// A listener, and what it answers. Ends, with its connections, when it is dropped.
pub struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepting: JoinSet<()>,
}

/// The answer to a command, whose words are joined by blanks; `None` ends the connection.
type Answer = dyn Fn(&str) -> Option<String> + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    commands: Mutex<Vec<String>>,
    connections: AtomicUsize,
    is_held: watch::Sender<bool>,
    /// Messages for the connections that have subscribed.
    told: broadcast::Sender<String>,
}

impl Fake {
    /// Answers in this way, but for the commands that begin a connection.
    pub async fn start(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            commands: Mutex::default(),
            connections: AtomicUsize::new(0),
            is_held: watch::Sender::new(false),
            told: broadcast::Sender::new(100),
        });
        let mut accepting = JoinSet::new();
        let serving = shared.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serving.clone().serve(stream));
            }
        });
        Self { address, shared, _accepting: accepting }
    }

    /// A master in its life `run_id`, which answers other commands in this way.
    pub async fn master(
        run_id: &'static str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |command| match command.starts_with("INFO") {
            true => Some(info(run_id, "role:master\r\nloading:0\r\n")),
            false => answer(command),
        })
        .await
    }

    /// Host and port.
    pub fn place(&self) -> String {
        self.address.to_string()
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// A link to the server, which is a master.
    pub async fn link(&self) -> Arc<Link> {
        let redis = Redis::new(&self.url()).expect("a valid URL");
        redis.link().bounded().await.expect("a master")
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Commands so far that begin with these words.
    pub fn commands(&self, begin: &str) -> Vec<String> {
        let commands = self.shared.commands.lock().expect("no holder of this lock panics");
        commands.iter().filter(|command| command.starts_with(begin)).cloned().collect()
    }

    /// Holds answers back, or lets them go.
    pub fn hold(&self, is_held: bool) {
        self.shared.is_held.send_replace(is_held);
    }

    /// Publishes a message to all that have subscribed to this channel.
    pub fn publish(&self, channel: &str) {
        let words = ["message", channel, "x"].map(bulk).concat();
        // It is heard by all that are there.
        let _ = self.shared.told.send(format!(">3\r\n{words}"));
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, stream: TcpStream) {
        let (from, to) = stream.into_split();
        let (mut from, to) = (BufReader::new(from), tokio::sync::Mutex::new(to));
        let (subscribed, mut subscription) = watch::channel(false);
        let answers = async {
            while let Ok(command) = command(&mut from).await {
                self.commands.lock().expect("no holder panics").push(command.clone());
                let answer = match command.split(' ').next() {
                    Some("HELLO") => Some("%1\r\n+server\r\n+redis\r\n".to_owned()),
                    Some("CLIENT" | "SELECT") => Some("+OK\r\n".to_owned()),
                    _ => (self.answer)(&command),
                };
                let free = self.is_held.subscribe().wait_for(|is_held| !is_held).await.is_ok();
                let Some(answer) = answer.filter(|_| free) else { return };
                if to.lock().await.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
                if command.starts_with("SUBSCRIBE") {
                    subscribed.send_replace(true);
                }
            }
        };
        let mut told = self.told.subscribe();
        let messages = async {
            while let Ok(message) = told.recv().await {
                if *subscription.borrow_and_update()
                    && to.lock().await.write_all(message.as_bytes()).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = answers => {}
            () = messages => {}
        }
    }
}

/// The next command: an array of texts.
async fn command(from: &mut BufReader<OwnedReadHalf>) -> io::Result<String> {
    let mut words = Vec::new();
    for _ in 0..length(from).await? {
        let mut word = vec![0; length(from).await? + 2];
        from.read_exact(&mut word).await?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words.join(" "))
}

async fn length(from: &mut BufReader<OwnedReadHalf>) -> io::Result<usize> {
    let mut line = String::new();
    from.read_line(&mut line).await?;
    line.get(1..).and_then(|text| text.trim().parse().ok()).ok_or(io::ErrorKind::InvalidData.into())
}

/// A text as Redis answers it.
pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// The answer to INFO: these lines, and those about a life.
pub fn info(run_id: &str, lines: &str) -> String {
    bulk(&format!(
        "run_id:{run_id}\r\nserver_time_usec:1700000000000000\r\nuptime_in_seconds:5\r\n{lines}"
    ))
}

/// An answer to SUBSCRIBE.
pub fn subscribed(channel: &str) -> String {
    format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk(channel))
}
