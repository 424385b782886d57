//! Whether a connection may still be used, and how its users learn that it has ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::{AsyncPushSender, SendError};
use redis::{AsyncConnectionConfig, PushInfo, PushKind};

use crate::base::limits;

pub(super) struct Line {
    /// False once the connection is known to be broken, or must not be used any more.
    alive: AtomicBool,
    /// True once another master has replaced the one that the connection leads to.
    replaced: AtomicBool,
    /// Gets published messages, and learns of the end; `None` on a connection for commands.
    listener: Option<Box<dyn AsyncPushSender>>,
}

impl Line {
    pub fn for_commands() -> Self {
        Self { alive: AtomicBool::new(true), replaced: AtomicBool::new(false), listener: None }
    }

    pub fn for_messages(listener: impl AsyncPushSender) -> Self {
        Self { listener: Some(Box::new(listener)), ..Self::for_commands() }
    }

    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Ends the use of the connection. Commands under way still get their replies.
    pub fn end(&self) {
        self.alive.store(false, Ordering::Release);
    }

    /// Ends the use of the connection because another master has replaced its server. Later replies are rejected, and
    /// the listener is told that the connection is broken.
    pub fn replace(&self) {
        self.replaced.store(true, Ordering::Release);
        let end = PushInfo { kind: PushKind::Disconnection, data: Vec::new() };
        // A listener that has gone doesn't need to know.
        let _ = self.send(end);
    }

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

/// Settings of a connection. `timeout` bounds connecting, and the wait for each reply.
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
