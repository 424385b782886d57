//! A server for subscriptions, in a test's memory: it answers without delay.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use redis::aio::{AsyncPushSender, MultiplexedConnection};
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisFuture};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Subscribe;
use crate::tasks::Tasks;

/// Records subscriptions, confirms each at once, and publishes what a test says. Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct Broadcast {
    wires: Arc<Mutex<Vec<Wire>>>,
    tasks: Tasks,
}

/// The server's end of one connection.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<End>>);

#[derive(Default)]
struct End {
    asked: Vec<String>,
    /// Bytes that the client hasn't read yet.
    said: Vec<u8>,
    /// Confirmations that are held back; `None` while they are sent at once.
    late: Option<Vec<u8>>,
    is_cut: bool,
    reader: Option<Waker>,
}

impl Broadcast {
    /// The commands since the last call. Each new connection begins with `HELLO`.
    pub(crate) fn asked(&self) -> Vec<String> {
        let wires = self.wires.lock().expect("no holder panics");
        wires.iter().flat_map(|wire| std::mem::take(&mut wire.end().asked)).collect()
    }

    pub(crate) fn publish(&self, channel: &str) {
        self.last().end().say(&push("message", channel, "$1\r\n0\r\n"));
    }

    /// Holds back confirmations until [`confirm`](Self::confirm).
    pub(crate) fn hold_back(&self) {
        self.last().end().late = Some(Vec::new());
    }

    /// Sends the confirmations that were held back, and later ones at once.
    pub(crate) fn confirm(&self) {
        let wire = self.last();
        let late = wire.end().late.take().expect("some are held back");
        wire.end().say(&late);
    }

    /// Ends the newest connection.
    pub(crate) fn cut(&self) {
        let wire = self.last();
        wire.end().is_cut = true;
        wire.end().say(&[]);
    }

    fn last(&self) -> Wire {
        let wires = self.wires.lock().expect("no holder panics");
        wires.last().expect("a client has connected").clone()
    }
}

impl Subscribe for Broadcast {
    fn open(&self, heard: Arc<dyn AsyncPushSender>) -> RedisFuture<'_, MultiplexedConnection> {
        Box::pin(async move {
            let wire = Wire::default();
            self.wires.lock().expect("no holder panics").push(wire.clone());
            let config =
                AsyncConnectionConfig::new().set_push_sender(heard).set_response_timeout(None);
            let info = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
            let info = info.set_skip_set_lib_name();
            let (connection, driver) =
                MultiplexedConnection::new_with_config(&info, wire, config).await?;
            self.tasks.spawn(driver);
            Ok(connection)
        })
    }
}

impl Wire {
    fn end(&self) -> MutexGuard<'_, End> {
        self.0.lock().expect("no holder panics")
    }
}

impl End {
    fn take(&mut self, command: &str) {
        self.asked.push(command.to_owned());
        let reply = match command.split_once(' ') {
            Some(("HELLO", _)) => return self.say(b"%0\r\n"),
            Some(("SUBSCRIBE", channel)) => push("subscribe", channel, ":1\r\n"),
            Some(("UNSUBSCRIBE", channel)) => push("unsubscribe", channel, ":0\r\n"),
            _ => panic!("{command}"),
        };
        match &mut self.late {
            Some(late) => late.extend(reply),
            None => self.say(&reply),
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        self.said.extend(bytes);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// A RESP3 push about a channel.
fn push(kind: &str, channel: &str, last: &str) -> Vec<u8> {
    let (of_kind, of_channel) = (kind.len(), channel.len());
    format!(">3\r\n${of_kind}\r\n{kind}\r\n${of_channel}\r\n{channel}\r\n{last}").into_bytes()
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut end = self.end();
        if end.said.is_empty() && !end.is_cut {
            end.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let bytes = buffer.remaining().min(end.said.len());
        buffer.put_slice(&end.said[..bytes]);
        end.said.drain(..bytes);
        Poll::Ready(Ok(()))
    }
}

/// A client writes only whole commands.
impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let text = std::str::from_utf8(bytes).expect("commands are text");
        for command in text.split('*').skip(1) {
            // The number of words comes first, and the length of each word before it.
            let words: Vec<&str> = command.split("\r\n").skip(2).step_by(2).collect();
            self.end().take(words.join(" ").trim_end());
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
