//! The end of a connection, as its users learn of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{AsyncPushSender, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind};

use crate::base::limits;

/// State of one connection.
pub(super) struct Line {
    /// Cleared when the connection is known to have broken, or must not be used any more.
    alive: AtomicBool,
    /// Set when another master has taken the place of the one that the connection leads to.
    replaced: AtomicBool,
    /// Listener to published messages and to the end; none where commands are sent.
    listener: Option<Box<dyn AsyncPushSender>>,
}

impl Line {
    /// A connection for commands.
    pub fn for_commands() -> Self {
        Self { alive: AtomicBool::new(true), replaced: AtomicBool::new(false), listener: None }
    }

    /// A connection for published messages, with their listener.
    pub fn for_messages(listener: impl AsyncPushSender) -> Self {
        Self { listener: Some(Box::new(listener)), ..Self::for_commands() }
    }

    /// True for a connection that takes commands.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Ends the use of the connection. Commands that are under way still get their replies.
    pub fn end(&self) {
        self.alive.store(false, Ordering::Release);
    }

    /// Ends the use of the connection, because another master has taken the place of its server. Replies that come
    /// later count for nothing, and a listener is told that the connection has broken.
    pub fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        let end = PushInfo { kind: PushKind::Disconnection, data: Vec::new() };
        // A listener that has gone needs no news.
        let _ = self.send(end);
    }

    /// True once another master has taken the place of the server.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Acquire)
    }
}

impl AsyncPushSender for Line {
    fn send(&self, push: PushInfo) -> Result<(), SendError> {
        if push.kind == PushKind::Disconnection {
            self.end();
        }
        self.listener.as_ref().map_or(Ok(()), |listener| listener.send(push))
    }
}

/// Settings of a connection whose server has `timeout` to answer.
pub(super) fn config(timeout: Duration) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeout))
        .set_response_timeout(Some(timeout))
        .set_pipeline_buffer_size(limits::REDIS_PIPELINE_BUFFER)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn push(kind: PushKind) -> PushInfo {
        PushInfo { kind, data: Vec::new() }
    }

    fn state(line: &Line) -> (bool, bool) {
        (line.is_alive(), line.is_replaced())
    }

    #[test]
    fn a_line_for_commands_ends_with_its_connection_or_on_request() {
        let ends: [fn(&Line); 2] = [Line::end, |line| {
            line.send(push(PushKind::Disconnection)).expect("no listener");
        }];
        for end in ends {
            let line = Line::for_commands();
            assert_eq!(state(&line), (true, false));
            line.send(push(PushKind::Message)).expect("no listener");
            assert_eq!(state(&line), (true, false));
            end(&line);
            assert_eq!(state(&line), (false, false));
        }
    }

    #[test]
    fn a_listener_hears_messages_and_the_end_of_a_line_that_is_replaced() {
        let (heard, messages) = mpsc::channel();
        let line = Line::for_messages(heard);
        line.send(push(PushKind::Message)).expect("a listener");
        assert_eq!(state(&line), (true, false));
        line.replace();
        assert_eq!(state(&line), (false, true));
        let kinds: Vec<PushKind> = messages.try_iter().map(|push| push.kind).collect();
        assert_eq!(kinds, [PushKind::Message, PushKind::Disconnection]);
        drop(messages);
        assert!(line.send(push(PushKind::Message)).is_err(), "the listener has gone");
    }
}
