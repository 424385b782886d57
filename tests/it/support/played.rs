//! A Redis that is played: the test answers some commands itself, and the real server the others. And a clock that
//! stands still.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::redis::Redis;
use flash_sale::sale::Stores;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};

use super::TestApp;

/// Answer to a command.
pub enum Play {
    /// The real server answers.
    Real,
    /// The same, and the command is noted.
    Heard,
    /// This is the answer, as Redis writes it.
    Reply(String),
}

/// A proxy before a real Redis. Ends, with all its connections, when it is dropped.
pub struct Played {
    url: String,
    stage: Arc<Stage>,
    _accepting: JoinSet<()>,
}

/// The words of a command, and how it is played.
type Decide = dyn Fn(&[String]) -> Play + Send + Sync;

struct Stage {
    real: PathBuf,
    play: Box<Decide>,
    /// Commands that were noted: all but those of [`Play::Real`].
    asked: Mutex<Vec<Vec<String>>>,
    connections: AtomicUsize,
    /// Counts the times that all connections were closed.
    closed: watch::Sender<usize>,
}

impl Played {
    /// Before the Redis at `real` (`redis+unix://...`). The test plays each command as `play` says.
    pub async fn before(
        real: &str,
        play: impl Fn(&[String]) -> Play + Send + Sync + 'static,
    ) -> Self {
        let socket = real.strip_prefix("redis+unix://").expect("a Redis on a Unix socket");
        let stage = Arc::new(Stage {
            real: socket.split('?').next().expect("a path").into(),
            play: Box::new(play),
            asked: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: watch::Sender::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("it is bound"));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, stage.clone()));
        Self { url, stage, _accepting: accepting }
    }

    /// A connection of a process, which has so long to be answered.
    pub fn redis(&self, timeout: Duration) -> Redis {
        Redis::with_timeout(&self.url, timeout).expect("a valid URL")
    }

    /// A second process on the app's data, whose Redis this is.
    pub async fn process(&self, app: &TestApp) -> Arc<App> {
        let redis = self.redis(app.config.stores.redis_timeout());
        let stores = Stores { redis, ..app.app.stores.clone() };
        let process = App::assemble(&app.config, stores, Clock::System, Shutdown::default()).await;
        process.expect("both stores answer")
    }

    /// The commands so far that the test has played or heard, word by word.
    pub fn asked(&self) -> Vec<Vec<String>> {
        self.stage.asked.lock().expect("no holder panics").clone()
    }

    /// The same, and forgets them.
    pub fn take_asked(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut *self.stage.asked.lock().expect("no holder panics"))
    }
}

async fn accept(listener: TcpListener, stage: Arc<Stage>) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("the listener accepts");
        stage.connections.fetch_add(1, Ordering::SeqCst);
        let mut closed = stage.closed.subscribe();
        let stage = stage.clone();
        connections.spawn(async move {
            tokio::select! {
                // The end of a connection says nothing about the test.
                _ = stage.serve(client) => {}
                _ = closed.changed() => {}
            }
        });
    }
}

/// Answer that a connection owes to a command. A client takes answers in the order of its commands.
enum Owed {
    Real,
    Own(String),
}

impl Stage {
    async fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_real, mut to_real) = UnixStream::connect(&self.real).await?.into_split();
        let (mut chunk, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let (mut commands, mut replies, mut owed) = (Vec::new(), Vec::new(), VecDeque::new());
        loop {
            tokio::select! {
                read = from_client.read(&mut chunk) => {
                    commands.extend_from_slice(&chunk[..some(read?)?]);
                    while let Some((command, length)) = command_in(&commands) {
                        let sent: Vec<u8> = commands.drain(..length).collect();
                        match (self.play)(&command) {
                            play @ (Play::Real | Play::Heard) => {
                                to_real.write_all(&sent).await?;
                                // A subscription has a message in place of an answer.
                                owed.extend((!command[0].ends_with("SUBSCRIBE")).then_some(Owed::Real));
                                if let Play::Heard = play {
                                    self.note(command);
                                }
                            }
                            Play::Reply(reply) => {
                                self.note(command);
                                owed.push_back(Owed::Own(reply));
                            }
                        }
                    }
                }
                read = from_real.read(&mut reply) => {
                    replies.extend_from_slice(&reply[..some(read?)?]);
                }
            }
            while let Some(next) = next_reply(&mut replies, &mut owed) {
                to_client.write_all(&next).await?;
            }
        }
    }

    fn note(&self, command: Vec<String>) {
        self.asked.lock().expect("no holder panics").push(command);
    }
}

/// The next bytes for the client, if they are there: a message of the real server, or the answer that is due.
fn next_reply(replies: &mut Vec<u8>, owed: &mut VecDeque<Owed>) -> Option<Vec<u8>> {
    let real = reply_in(replies);
    if let Some(length) = real.filter(|_| replies[0] == b'>') {
        return Some(replies.drain(..length).collect());
    }
    match owed.pop_front()? {
        Owed::Own(reply) => Some(reply.into_bytes()),
        due => match (&due, real) {
            (Owed::Real, Some(length)) => Some(replies.drain(..length).collect()),
            _ => {
                owed.push_front(due);
                None
            }
        },
    }
}

/// Length of the first reply in these bytes; `None` while it isn't whole.
fn reply_in(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|two| two == b"\r\n")?;
    let number = || std::str::from_utf8(&bytes[1..line]).ok()?.parse::<usize>().ok();
    let values = match bytes[0] {
        b'$' | b'=' | b'!' => {
            let length = line + 2 + number().map_or(0, |length| length + 2);
            return (length <= bytes.len()).then_some(length);
        }
        b'*' | b'~' | b'>' => number().unwrap_or(0),
        b'%' => 2 * number()?,
        _ => 0,
    };
    (0..values).try_fold(line + 2, |at, _| Some(at + reply_in(bytes.get(at..)?)?))
}

/// The number, unless it is 0: then the connection is to be closed.
fn some(length: usize) -> io::Result<usize> {
    if length == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(length) }
}

/// The first command in these bytes, and its length; `None` while it isn't whole.
fn command_in(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let (count, mut at) = number_in(bytes, 0)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let (length, begin) = number_in(bytes, at)?;
        words.push(String::from_utf8_lossy(bytes.get(begin..begin + length)?).into_owned());
        at = begin + length + 2;
    }
    (at <= bytes.len()).then_some((words, at))
}

/// The number of a line like `*3`, and the place behind that line.
fn number_in(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = bytes.get(at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let number = std::str::from_utf8(&rest[1..end]).ok()?.parse().ok()?;
    Some((number, at + end + 2))
}

/// Answer of a Redis that has a key of another type.
pub const OTHER_TYPE: &str =
    "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

/// The clock of a test's runtime, which moves only when it is told to, however long the stores take.
pub struct Still(mpsc::Sender<()>);

impl Still {
    /// From now on.
    pub fn begin() -> Self {
        tokio::time::pause();
        let (ends, ended) = mpsc::channel();
        // A paused clock jumps to the next timer while all tasks wait, unless such a task runs.
        drop(Handle::current().spawn_blocking(move || ended.recv().is_ok()));
        Self(ends)
    }

    /// Moves on, and lets the tasks see that.
    pub async fn advance(&self, ms: u64) {
        tokio::time::advance(Duration::from_millis(ms)).await;
        self.settle().await;
    }

    /// Lets all tasks go on as far as they can without an answer.
    pub async fn settle(&self) {
        for _ in 0..200 {
            yield_now().await;
        }
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        // The task that holds the clock ends.
        let _ = self.0.send(());
        if !std::thread::panicking() {
            tokio::time::resume();
        }
    }
}

/// Waits without a clock until `holds` says yes, which another task brings about.
pub async fn soon(what: &str, holds: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < super::patience(), "never happened: {what}");
        yield_now().await;
    }
}
