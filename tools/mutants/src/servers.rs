//! A Redis and a Postgres for test processes, and their opinion on changed scripts and queries.
//!
//! Starting a pair takes longer than most tests, so one pair serves many: tests find it by `TEST_SERVERS`
//! (`tests/it/support/servers.rs`). It belongs to one worker, so a mutant that does harm to it disturbs no other one.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// Time for one answer; only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Triggers of test databases, as `tests/it/support/servers.rs` makes them.
const UPDATED_AT: &str = include_str!("../../../tests/it/support/updated_at.sql");

/// A folder in memory.
const MEMORY: &str = "/dev/shm";
/// Memory in KiB that has to be available for the files of the servers of all jobs.
const MEMORY_KIB_MIN: u64 = 8 << 20;

/// Length of a message's header in Postgres's protocol: its type and its length.
const HEADER_BYTES: usize = 5;

/// A pair of servers. They stop when it is dropped, or when this process ends in any other way.
pub struct Servers {
    keeper: Child,
    /// Their addresses, as `flash-sale private-servers` prints them: JSON.
    pub line: String,
    addresses: Addresses,
}

#[derive(Deserialize)]
struct Addresses {
    redis_url: String,
    database_url: String,
}

/// Whether there is enough memory for the files of all servers. On a disk they cost a fifth more.
fn has_memory() -> bool {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Path::new(MEMORY).is_dir() && kib.is_some_and(|kib| kib >= MEMORY_KIB_MIN)
}

impl Servers {
    /// Starts a pair with the migrated database that test databases are copied from.
    ///
    /// # Errors
    ///
    /// When they can't be started.
    pub fn start(program: &Path) -> Result<Self> {
        let mut keeper = Command::new(program)
            .args(["private-servers", "--throw-away", "--log", "error"])
            .envs(has_memory().then_some(("TMPDIR", MEMORY)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let output = keeper.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let addresses: Addresses = serde_json::from_str(&line)
            .with_context(|| format!("flash-sale private-servers said {line:?}"))?;
        let servers = Self { keeper, line: line.trim().to_owned(), addresses };
        let migrated = Command::new(program)
            .args(["migrate", "--log", "error", "--database-url", &servers.addresses.database_url])
            .args(["--redis-url", &servers.addresses.redis_url])
            .stdout(Stdio::null())
            .status()?;
        ensure!(migrated.success(), "flash-sale migrate: {migrated}");
        if let Some(error) = servers.postgres()?.ask(UPDATED_AT)? {
            bail!("making triggers: {error}");
        }
        Ok(servers)
    }

    /// A connection to Redis.
    ///
    /// # Errors
    ///
    /// When it can't be connected to.
    pub fn redis(&self) -> Result<Redis> {
        let path = self.addresses.redis_url.strip_prefix("redis+unix://");
        let stream = UnixStream::connect(path.context("private servers have Unix sockets")?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Redis(BufReader::new(stream)))
    }

    /// A connection to Postgres.
    ///
    /// # Errors
    ///
    /// When it can't be connected to.
    pub fn postgres(&self) -> Result<Postgres> {
        let url = &self.addresses.database_url;
        let folder = url.split_once("host=").map(|(_, rest)| rest.split('&').next());
        let folder = folder.flatten().context("private servers have Unix sockets")?;
        let path = PathBuf::from(folder.replace("%2F", "/")).join(".s.PGSQL.5432");
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Postgres::new(stream, "flash_sale", "flash_sale")
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// A connection to Redis.
pub struct Redis(BufReader<UnixStream>);

impl Redis {
    /// Whether Redis takes this text for a script.
    ///
    /// # Errors
    ///
    /// When Redis doesn't answer.
    pub fn compiles(&mut self, script: &str) -> Result<bool> {
        let mut request = Vec::new();
        write!(request, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{script}\r\n", script.len())?;
        self.0.get_mut().write_all(&request)?;
        let mut reply = String::new();
        self.0.read_line(&mut reply)?;
        if reply.starts_with('$') {
            // The hash.
            self.0.read_line(&mut reply)?;
            return Ok(true);
        }
        ensure!(reply.starts_with('-'), "Redis said {reply:?}");
        Ok(false)
    }
}

/// A connection to Postgres, by the simple protocol.
pub struct Postgres {
    stream: BufReader<UnixStream>,
}

impl Postgres {
    fn new(stream: UnixStream, user: &str, database: &str) -> Result<Self> {
        let mut postgres = Self { stream: BufReader::new(stream) };
        postgres.stream.get_mut().write_all(&startup(user, database))?;
        match postgres.until_ready()? {
            None => Ok(postgres),
            Some(error) => bail!("Postgres refuses the connection: {error}"),
        }
    }

    /// Error of Postgres about a query with parameters of these types; `None` if the query is accepted.
    ///
    /// # Errors
    ///
    /// When Postgres doesn't answer.
    pub fn refusal(&mut self, query: &str, types: &[String]) -> Result<Option<String>> {
        let types = match types {
            [] => String::new(),
            types => format!("({})", types.join(", ")),
        };
        let refusal = self.ask(&format!("PREPARE mutant {types} AS {query}"))?;
        if refusal.is_none() {
            self.ask("DEALLOCATE mutant")?;
        }
        Ok(refusal)
    }

    fn ask(&mut self, query: &str) -> Result<Option<String>> {
        self.stream.get_mut().write_all(&message(b'Q', &[query.as_bytes(), b"\0"].concat()))?;
        self.until_ready()
    }

    /// Reads up to the end of the answer. Returns the error in it.
    fn until_ready(&mut self) -> Result<Option<String>> {
        let mut error = None;
        loop {
            let mut header = [0; HEADER_BYTES];
            self.stream.read_exact(&mut header)?;
            let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
            let mut body = vec![0; usize::try_from(length)?.saturating_sub(4)];
            self.stream.read_exact(&mut body)?;
            match header[0] {
                b'Z' => return Ok(error),
                b'E' => error = Some(error_text(&body)),
                b'R' if body != [0; 4] => bail!("Postgres wants a password"),
                _ => {}
            }
        }
    }
}

fn startup(user: &str, database: &str) -> Vec<u8> {
    const PROTOCOL: u32 = 196_608;
    let mut body = PROTOCOL.to_be_bytes().to_vec();
    for (name, value) in [("user", user), ("database", database)] {
        for text in [name, value] {
            body.extend(text.as_bytes());
            body.push(0);
        }
    }
    body.push(0);
    // The first message has no type.
    message(0, &body)[1..].to_vec()
}

fn message(of: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("a query is shorter than 4 GB");
    [&[of][..], &length.to_be_bytes(), body].concat()
}

/// The fields `C` (SQLSTATE) and `M` (message) of an error.
fn error_text(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let wanted = fields.filter(|field| matches!(field.first(), Some(b'C' | b'M')));
    let texts: Vec<_> = wanted.map(|field| String::from_utf8_lossy(&field[1..])).collect();
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_the_protocol() {
        assert_eq!(message(b'Q', b"SELECT 1\0"), b"Q\0\0\0\x0dSELECT 1\0");
        assert_eq!(startup("u", "d"), b"\0\0\0\x1b\0\x03\0\0user\0u\0database\0d\0\0");
    }

    #[test]
    fn an_error_is_its_code_and_its_message() {
        let body = b"SERROR\0VERROR\0C42601\0Msyntax error at end of input\0P7\0\0";
        assert_eq!(error_text(body), "42601: syntax error at end of input");
    }
}
