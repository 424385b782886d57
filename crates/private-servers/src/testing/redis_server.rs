//! A Redis on a Unix socket, for tests that break servers or need several.
//!
//! A shell keeps the server, and the shell ends with its standard input.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

/// Time for a server to answer after its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// The settings of a sentinel, which it rewrites.
const SENTINEL: &str = "sentinel.conf";
/// The file that holds the seconds by which the server's clock is off.
const CLOCK: &str = "clock";
/// Source of the library that shifts the clock.
const CLOCK_SOURCE: &str = include_str!("clock.c");

/// Script of the shell: prints the server's process id, and kills the server when the input ends.
const KEEP: &str = r#""$0" "$@" >/dev/null 2>&1 & server=$!; echo "$server"; cat >/dev/null; kill -9 "$server" 2>/dev/null; wait"#;

/// A Redis server. Killed, and its data removed, when it is dropped.
#[derive(Debug)]
pub struct RedisServer {
    keeper: Child,
    pid: i32,
    folder: PathBuf,
    settings: Vec<String>,
    /// The library that shifts the server's clock, if the test may set it.
    clock: Option<PathBuf>,
}

impl RedisServer {
    /// Starts a server that listens on its socket only, with these settings, as in `["--appendonly", "yes"]`.
    ///
    /// # Panics
    ///
    /// If neither `redis-server` nor `valkey-server` is in PATH, or the server does not answer within 30 s.
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(Self::new_folder(), settings, None)
    }

    /// Starts a server whose clock the test can set.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start); also without the C compiler `cc`.
    pub fn with_a_clock_to_set(settings: &[&str]) -> Self {
        let folder = Self::new_folder();
        let library = folder.join("clock.so");
        let mut compile = Command::new("cc");
        let source = folder.join("clock.c");
        fs::write(&source, CLOCK_SOURCE).expect("the folder is new");
        compile.args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &source]);
        let is_compiled = compile.status().is_ok_and(|status| status.success());
        assert!(is_compiled, "the clock needs the C compiler: install cc");
        let server = Self::start_in(folder, settings, Some(library));
        server.set_clock(0);
        server
    }

    fn new_folder() -> PathBuf {
        // A short name: the path of a socket has room for some 100 bytes.
        let name = Uuid::new_v4().simple().to_string();
        let folder = std::env::temp_dir().join(format!("redis-{}", &name[..12]));
        fs::create_dir(&folder).expect("the name is new");
        folder
    }

    fn start_in(folder: PathBuf, settings: &[&str], clock: Option<PathBuf>) -> Self {
        let settings: Vec<String> = settings.iter().map(|word| (*word).to_owned()).collect();
        fs::write(folder.join(CLOCK), 0_i64.to_ne_bytes()).expect("the folder is ours");
        let (keeper, pid) = keep(&folder, &settings, clock.as_deref());
        let server = Self { keeper, pid, folder, settings, clock };
        server.answers();
        server
    }

    /// Sets the server's clock this many seconds off the machine's. The monotonic clock goes on.
    ///
    /// # Panics
    ///
    /// If the server was not started with [`with_a_clock_to_set`](Self::with_a_clock_to_set).
    pub fn set_clock(&self, seconds: i64) {
        assert!(
            self.clock.is_some(),
            "the server has no clock to set: start it with `with_a_clock_to_set`"
        );
        // Into the same file, which the server has mapped.
        let file = fs::OpenOptions::new().write(true).open(self.folder.join(CLOCK));
        let written = file.and_then(|file| file.write_all_at(&seconds.to_ne_bytes(), 0));
        written.expect("the folder is ours");
    }

    /// Starts a server that listens on a free TCP port of 127.0.0.1 as well, and returns the port, too.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn on_tcp(settings: &[&str]) -> (Self, u16) {
        let port = free_port();
        let text = port.to_string();
        (Self::start(&[&["--port", &text], settings].concat()), port)
    }

    /// Starts a sentinel with these lines of settings, as in `["sentinel monitor mymaster 127.0.0.1 6379 2"]`. It listens
    /// on a free TCP port of 127.0.0.1, which is returned, too. Started again after a kill, it knows what it knew.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub fn sentinel(settings: &[&str]) -> (Self, u16) {
        let (folder, port) = (Self::new_folder(), free_port());
        let port_line = format!("port {port}");
        let lines = [&[port_line.as_str(), "bind 127.0.0.1"], settings].concat();
        fs::write(folder.join(SENTINEL), lines.join("\n") + "\n").expect("the folder is new");
        (Self::start_in(folder, &["--sentinel"], None), port)
    }

    /// The server's address: `redis+unix:///path/to/redis.sock`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Id of the server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// Pauses the server (SIGSTOP): it takes connections and answers nothing.
    ///
    /// # Panics
    ///
    /// If the server has ended.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a paused server go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If the server has ended.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills the server (SIGKILL). It is gone when this returns.
    pub fn kill(&mut self) {
        self.end();
    }

    /// Starts the server again after [`kill`](Self::kill), with the data that it had written to disk.
    ///
    /// # Panics
    ///
    /// If the server does not answer within 30 s.
    pub fn start_again(&mut self) {
        (self.keeper, self.pid) = keep(&self.folder, &self.settings, self.clock.as_deref());
        self.answers();
    }

    /// The same with other settings.
    ///
    /// # Panics
    ///
    /// As [`start_again`](Self::start_again).
    pub fn start_again_with(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|word| (*word).to_owned()).collect();
        self.start_again();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("the server runs");
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    fn end(&mut self) {
        drop(self.keeper.stdin.take());
        self.keeper.wait().expect("it is our child");
        let _ = fs::remove_file(self.socket());
    }

    fn answers(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.pings() {
            assert!(Instant::now() < deadline, "Redis doesn't answer at {}", self.url());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn pings(&self) -> bool {
        let ask = || {
            let mut stream = UnixStream::connect(self.socket())?;
            stream.write_all(b"PING\r\n")?;
            let mut reply = [0; 5];
            stream.read_exact(&mut reply)?;
            // The user `default` may be off.
            std::io::Result::Ok(reply == *b"+PONG" || reply == *b"-NOAU")
        };
        ask().unwrap_or(false)
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

fn keep(folder: &Path, settings: &[String], clock: Option<&Path>) -> (Child, i32) {
    let mut command = Command::new("sh");
    if let Some(library) = clock {
        command.env("LD_PRELOAD", library).env("CLOCK_SHIFT", folder.join(CLOCK));
    }
    command.args(["-c", KEEP, program()]);
    if folder.join(SENTINEL).exists() {
        command.arg(folder.join(SENTINEL));
    } else {
        command.args(["--port", "0", "--save", ""]);
    }
    command.arg("--dir").arg(folder);
    command.arg("--unixsocket").arg(folder.join("redis.sock")).args(settings);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut keeper = command.spawn().expect("there is a shell");
    let mut line = String::new();
    let output = keeper.stdout.as_mut().expect("piped");
    BufReader::new(output).read_line(&mut line).expect("the shell prints the process id");
    (keeper, line.trim().parse().expect("a process id"))
}

/// Name of the installed program. Valkey takes the same settings.
fn program() -> &'static str {
    let runs = |name: &str| {
        Command::new(name)
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    if runs("redis-server") { "redis-server" } else { "valkey-server" }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
