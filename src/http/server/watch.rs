//! One connection as its table sees it: whether a request is under way, since when the client is silent, and since when
//! it does not read.
//!
//! Requests only note times, from a clock that the table sets a few times a second; so they ask no clock and set no
//! timer. The table compares ([`Watch::overdue`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use axum::http::Version;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::limits;
use crate::base::telemetry::ConnectionEnd;

/// Time since the listener began, in milliseconds, as of the last look. Never 0.
#[derive(Debug)]
pub struct CoarseClock {
    began: Instant,
    now_ms: AtomicU64,
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self { began: Instant::now(), now_ms: AtomicU64::new(1) }
    }
}

impl CoarseClock {
    /// Looks at the real clock.
    pub fn set(&self) -> u64 {
        let now_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
        self.now_ms.store(now_ms, Ordering::Relaxed);
        now_ms
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }
}

/// Notes of one connection. Moments are in milliseconds of the coarse clock; 0 is none.
#[derive(Debug)]
pub struct Watch {
    clock: Arc<CoarseClock>,
    /// Requests whose reply has not begun.
    requests: AtomicU32,
    /// Replies of unknown length that have not ended.
    streams: AtomicU32,
    /// Moment in which such a reply could last be written.
    streamed_at: AtomicU64,
    /// True if the last reply was of unknown length.
    streamed: AtomicBool,
    /// Beginning of the connection, or the moment in which the last reply began.
    quiet_since: AtomicU64,
    /// Moment in which the head of an HTTP/1 request began.
    head_since: AtomicU64,
    /// Moment since when the kernel takes no bytes for the client.
    blocked_since: AtomicU64,
    /// Whether there has been a request.
    served: AtomicBool,
    http2: AtomicBool,
    /// True if the client understands interim replies (RFC 9110, section 15.2).
    http11: AtomicBool,
    /// True while the body of a request is read and its next bytes have not come.
    body_awaited: AtomicBool,
    /// Whether a reply of the service has begun and not one byte of it has been written.
    reply_due: AtomicBool,
    /// Cancelled when the connection has to end: by the service's stop, or because it is overdue.
    pub end: CancellationToken,
}

impl Watch {
    /// Of a connection that begins now.
    pub fn new(clock: Arc<CoarseClock>, end: CancellationToken) -> Self {
        Self {
            quiet_since: clock.now_ms().into(),
            clock,
            requests: AtomicU32::new(0),
            streams: AtomicU32::new(0),
            streamed_at: AtomicU64::new(0),
            streamed: AtomicBool::new(false),
            head_since: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            http11: AtomicBool::new(false),
            body_awaited: AtomicBool::new(false),
            reply_due: AtomicBool::new(false),
            end,
        }
    }

    /// A request has come; it is under way for as long as the guard lives.
    pub fn request(self: &Arc<Self>, version: Version) -> UnderWay {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        if self.streamed.load(Ordering::Relaxed) {
            self.streamed.store(false, Ordering::Relaxed);
        }
        if !self.served.load(Ordering::Relaxed) {
            self.http2.store(version == Version::HTTP_2, Ordering::Relaxed);
            self.http11.store(version == Version::HTTP_11, Ordering::Relaxed);
            self.served.store(true, Ordering::Relaxed);
        }
        UnderWay(self.clone())
    }

    /// A reply of unknown length begins; it lasts for as long as the guard lives.
    pub fn stream(self: &Arc<Self>) -> Streaming {
        self.streams.fetch_add(1, Ordering::Relaxed);
        self.streamed.store(true, Ordering::Relaxed);
        let streaming = Streaming(self.clone());
        streaming.is_read();
        streaming
    }

    /// The client has sent bytes. True if a head begins with them.
    pub fn received(&self) -> bool {
        let silent = self.head_since.load(Ordering::Relaxed) == 0;
        let begins = silent && self.requests.load(Ordering::Relaxed) == 0;
        if begins {
            self.head_since.store(self.clock.now_ms(), Ordering::Relaxed);
        }
        begins
    }

    /// The kernel takes no more bytes for the client.
    pub fn blocked(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.blocked_since.store(self.clock.now_ms(), Ordering::Relaxed);
        }
    }

    /// The kernel has taken bytes for the client.
    pub fn written(&self) {
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the bytes that are about to be written belong to a reply of the service. Said once for each reply.
    pub fn takes_reply(&self) -> bool {
        let due = self.reply_due.load(Ordering::Relaxed);
        if due {
            self.reply_due.store(false, Ordering::Relaxed);
        }
        due || self.requests.load(Ordering::Relaxed) > 0 || self.http2.load(Ordering::Relaxed)
    }

    /// True while a client of HTTP/1.1 waits for a reply of known length, or for the rest of it.
    pub fn owes_reply(&self) -> bool {
        let under_way = self.requests.load(Ordering::Relaxed) > 0
            || self.reply_due.load(Ordering::Relaxed)
            || self.blocked_since.load(Ordering::Relaxed) != 0;
        self.http11.load(Ordering::Relaxed) && under_way && !self.streams()
    }

    /// True if all bytes before the next reply have reached the kernel.
    pub fn is_between_replies(&self) -> bool {
        let due = self.reply_due.load(Ordering::Relaxed);
        !due && self.blocked_since.load(Ordering::Relaxed) == 0
    }

    /// True while a reply of unknown length goes on.
    pub fn streams(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    /// Ends when the client of a service that stops leaves such a reply unread. The table looks at no clock any more.
    pub async fn left_unread(&self) {
        loop {
            tokio::time::sleep(limits::STREAM_STOP_MAX).await;
            self.clock.set();
            if self.leaves_stream_unread() {
                return;
            }
        }
    }

    /// True if the connection owes no more than a reply of unknown length, and the client takes no part of that.
    fn leaves_stream_unread(&self) -> bool {
        let stuck = |moment| self.since(moment) >= limits::STREAM_STOP_MAX;
        let goes_on = self.streams() && stuck(&self.streamed_at);
        let has_ended = self.streamed.load(Ordering::Relaxed) && stuck(&self.blocked_since);
        self.requests.load(Ordering::Relaxed) == 0 && (goes_on || has_ended)
    }

    /// Notes whether a request waits for bytes of its body.
    pub fn awaits_body(&self, awaits: bool) {
        if self.body_awaited.load(Ordering::Relaxed) != awaits {
            self.body_awaited.store(awaits, Ordering::Relaxed);
        }
    }

    /// True while a request waits for bytes of its body.
    pub fn body_is_awaited(&self) -> bool {
        self.body_awaited.load(Ordering::Relaxed)
    }

    /// Time for which the client has had nothing to wait for; `None` while it has.
    pub fn quiet(&self) -> Option<Duration> {
        let busy = self.requests.load(Ordering::Relaxed) + self.streams.load(Ordering::Relaxed) > 0;
        (!busy).then(|| self.since(&self.quiet_since))
    }

    /// Whether the connection may be closed because others need its place: not while a client may be about to ask.
    pub fn may_make_room(&self, quiet: Duration) -> bool {
        let served = self.served.load(Ordering::Relaxed);
        quiet >= if served { limits::EVICTED_AFTER } else { limits::EVICTED_UNUSED_AFTER }
    }

    /// The reason to close the connection now, if there is one.
    pub fn overdue(&self, keep_alive: Duration) -> Option<ConnectionEnd> {
        let blocked = self.since(&self.blocked_since);
        if blocked >= limits::WRITE_TIMEOUT {
            return Some(ConnectionEnd::Unread);
        }
        let Some(quiet) = self.quiet() else {
            let stuck = self.since(&self.streamed_at) >= limits::STREAM_TIMEOUT;
            let only_streams = self.requests.load(Ordering::Relaxed) == 0;
            return (only_streams && stuck).then_some(ConnectionEnd::Unread);
        };
        let served = self.served.load(Ordering::Relaxed);
        let head = self.since(&self.head_since);
        if !served && quiet >= limits::HEADER_READ_TIMEOUT
            || !self.http2.load(Ordering::Relaxed) && head >= limits::HEADER_READ_TIMEOUT
        {
            return Some(ConnectionEnd::Head);
        }
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            let patience = keep_alive.max(limits::REPLY_READ_MAX);
            return (quiet >= patience).then_some(ConnectionEnd::Unread);
        }
        (quiet >= keep_alive).then_some(ConnectionEnd::Idle)
    }

    /// Time since a moment; none if there was none.
    fn since(&self, moment: &AtomicU64) -> Duration {
        match moment.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            moment => Duration::from_millis(self.clock.now_ms().saturating_sub(moment)),
        }
    }
}

/// A request whose reply has not begun.
pub struct UnderWay(Arc<Watch>);

impl UnderWay {
    /// The reply is there.
    pub fn replied(self) {
        self.0.reply_due.store(true, Ordering::Relaxed);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let watch = &self.0;
        watch.quiet_since.store(watch.clock.now_ms(), Ordering::Relaxed);
        watch.awaits_body(false);
        watch.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A reply of unknown length that has not ended.
pub struct Streaming(Arc<Watch>);

impl Streaming {
    /// The client has taken what was written so far.
    pub fn is_read(&self) {
        self.0.streamed_at.store(self.0.clock.now_ms(), Ordering::Relaxed);
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.quiet_since.store(self.0.clock.now_ms(), Ordering::Relaxed);
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    const KEEP_ALIVE: Duration = Duration::from_secs(75);

    /// A connection, and its clock set to so many seconds after its beginning.
    struct Story {
        clock: Arc<CoarseClock>,
        watch: Arc<Watch>,
    }

    impl Story {
        fn begin() -> Self {
            let clock = Arc::new(CoarseClock::default());
            let watch = Watch::new(clock.clone(), CancellationToken::new());
            Self { clock, watch: Arc::new(watch) }
        }

        fn at(&self, seconds: u64) -> &Arc<Watch> {
            self.at_ms(seconds * 1_000)
        }

        fn at_ms(&self, ms: u64) -> &Arc<Watch> {
            self.clock.now_ms.store(1 + ms, Ordering::Relaxed);
            &self.watch
        }

        fn overdue_at(&self, seconds: u64) -> Option<ConnectionEnd> {
            self.at(seconds).overdue(KEEP_ALIVE)
        }

        /// A request that comes at one moment and is answered at another.
        fn request(&self, version: Version, from: u64, to: u64) {
            self.at(from).received();
            let under_way = self.watch.request(version);
            self.at(to);
            under_way.replied();
        }
    }

    #[test]
    fn the_first_head_counts_from_the_beginning() {
        let story = Story::begin();
        assert_eq!(story.overdue_at(9), None);
        story.at(9).received();
        assert_eq!(story.overdue_at(10), Some(ConnectionEnd::Head));
    }

    #[test]
    fn a_later_head_counts_from_its_first_byte() {
        let story = Story::begin();
        story.request(Version::HTTP_11, 1, 2);
        assert_eq!(story.overdue_at(76), None);
        story.at(70).received();
        assert_eq!(story.overdue_at(76), None);
        // More of it is no new beginning.
        story.at(79).received();
        assert_eq!(story.overdue_at(80), Some(ConnectionEnd::Head));
    }

    #[test]
    fn an_idle_connection_is_kept_for_its_time() {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let story = Story::begin();
            story.request(version, 1, 2);
            assert_eq!(story.overdue_at(76), None);
            assert_eq!(story.overdue_at(77), Some(ConnectionEnd::Idle));
            story.request(version, 76, 76);
            assert_eq!(story.overdue_at(150), None);
        }
    }

    #[test]
    fn frames_of_http2_begin_no_head_and_are_no_request() {
        let story = Story::begin();
        story.request(Version::HTTP_2, 0, 0);
        for second in 1..75 {
            story.at(second).received();
            assert_eq!(story.overdue_at(second), None);
        }
        assert_eq!(story.overdue_at(75), Some(ConnectionEnd::Idle));
    }

    #[test]
    fn a_request_under_way_is_waited_for() {
        let story = Story::begin();
        let under_way = story.at(0).request(Version::HTTP_11);
        assert_eq!(story.overdue_at(1_000), None);
        assert_eq!(story.watch.quiet(), None);
        drop(under_way);
        assert_eq!(story.at(1_002).quiet(), Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_client_that_takes_nothing_is_waited_for_for_a_while() {
        let story = Story::begin();
        story.request(Version::HTTP_11, 0, 0);
        story.at(1).blocked();
        story.at(20).blocked();
        assert_eq!(story.overdue_at(30), None);
        assert_eq!(story.overdue_at(31), Some(ConnectionEnd::Unread));
        // One byte now and then is not enough either.
        for second in (40..75).step_by(10) {
            story.at(second).written();
            story.watch.blocked();
            assert_eq!(story.overdue_at(second), None);
        }
        assert_eq!(story.overdue_at(75), Some(ConnectionEnd::Unread));
    }

    #[test]
    fn a_reply_that_goes_on_lasts_for_as_long_as_it_is_taken() {
        let story = Story::begin();
        let under_way = story.at(0).request(Version::HTTP_2);
        let streaming = story.watch.stream();
        drop(under_way);
        for second in (0..1_000).step_by(50) {
            story.at(second);
            streaming.is_read();
            assert_eq!(story.overdue_at(second + 49), None);
        }
        assert_eq!(story.overdue_at(1_009), None);
        assert_eq!(story.overdue_at(1_010), Some(ConnectionEnd::Unread));
        // A request beside it is waited for.
        let beside = story.watch.request(Version::HTTP_2);
        assert_eq!(story.overdue_at(1_011), None);
        drop(beside);
        assert_eq!(story.overdue_at(1_011), Some(ConnectionEnd::Unread));
        drop(streaming);
        assert_eq!(story.overdue_at(1_012), None);
        assert_eq!(story.watch.quiet(), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_connection_has_been_quiet_since_its_streaming_reply_was_dropped() {
        let story = Story::begin();
        let under_way = story.at(0).request(Version::HTTP_11);
        let streaming = story.watch.stream();
        under_way.replied();
        assert_eq!(story.at(70).quiet(), None);
        drop(streaming);
        assert_eq!(story.at(75).quiet(), Some(Duration::from_secs(5)));
        assert_eq!(story.overdue_at(70 + 74), None);
        assert_eq!(story.overdue_at(70 + 75), Some(ConnectionEnd::Idle));
    }

    #[test]
    fn the_time_of_a_reply_that_goes_on_counts_from_its_beginning() {
        let story = Story::begin();
        let under_way = story.at(5).request(Version::HTTP_11);
        let _streaming = story.watch.stream();
        under_way.replied();
        assert_eq!(story.overdue_at(64), None);
        assert_eq!(story.overdue_at(65), Some(ConnectionEnd::Unread));
    }

    #[test]
    fn a_stop_waits_for_no_stream_that_is_not_taken() {
        let story = Story::begin();
        let under_way = story.at(0).request(Version::HTTP_11);
        let streaming = story.watch.stream();
        under_way.replied();
        story.at(9);
        streaming.is_read();
        assert!(!story.watch.leaves_stream_unread());
        assert!(story.at(10).leaves_stream_unread());
        // Its last event waits for the client.
        story.watch.blocked();
        drop(streaming);
        assert!(!story.watch.leaves_stream_unread());
        assert!(story.at(11).leaves_stream_unread());
        story.watch.written();
        assert!(!story.watch.leaves_stream_unread());
        // A reply of known length is waited for, and so is a request beside a stream.
        story.watch.blocked();
        drop(story.watch.request(Version::HTTP_11));
        assert!(!story.at(20).leaves_stream_unread());
        let _streaming = story.watch.stream();
        let _under_way = story.watch.request(Version::HTTP_2);
        assert!(!story.at(30).leaves_stream_unread());
    }

    #[test]
    fn room_is_made_by_connections_that_have_been_idle_for_a_moment() {
        let story = Story::begin();
        assert!(story.watch.may_make_room(limits::EVICTED_UNUSED_AFTER));
        story.request(Version::HTTP_11, 0, 0);
        assert!(!story.watch.may_make_room(limits::EVICTED_UNUSED_AFTER));
        assert!(story.watch.may_make_room(limits::EVICTED_AFTER));
    }

    #[tokio::test(start_paused = true)]
    async fn the_coarse_clock_tells_the_time_of_its_last_look_and_never_0() {
        bound_this_test();
        let clock = CoarseClock::default();
        assert_eq!((clock.now_ms(), clock.set(), clock.now_ms()), (1, 1, 1));
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(clock.now_ms(), 1);
        assert_eq!((clock.set(), clock.now_ms()), (6, 6));
    }

    #[test]
    fn a_head_begins_with_the_first_bytes_behind_a_reply() {
        let story = Story::begin();
        let watch = story.at(1);
        assert!(watch.received(), "the first bytes");
        assert!(!watch.received(), "more of them");
        let under_way = watch.request(Version::HTTP_11);
        assert!(!watch.received(), "a body, or the next request before the reply to this one");
        under_way.replied();
        assert!(watch.received());
    }

    #[test]
    fn bytes_belong_to_a_reply_of_the_service_while_one_is_due() {
        let story = Story::begin();
        let watch = story.at(1);
        assert!(!watch.takes_reply(), "hyper refuses what came before a request");
        let under_way = watch.request(Version::HTTP_11);
        assert!(watch.takes_reply(), "an interim reply to it");
        under_way.replied();
        assert!(watch.takes_reply(), "its reply");
        assert!(!watch.takes_reply(), "said once for each reply");
        let two = [(); 2].map(|()| watch.request(Version::HTTP_11));
        assert!(watch.takes_reply());
        drop(two);
        assert!(!watch.takes_reply(), "neither was answered");
        // Frames of HTTP/2 are no refusals of hyper that could be replaced.
        let story = Story::begin();
        story.request(Version::HTTP_2, 1, 2);
        assert!(story.watch.takes_reply() && story.watch.takes_reply());
    }

    /// Owed to a client of HTTP/1.1: the reply to a request, from its head to its last byte.
    #[test]
    fn a_reply_is_owed_until_its_last_byte_has_reached_the_kernel() {
        let story = Story::begin();
        let watch = story.at(1);
        assert!(!watch.owes_reply() && watch.is_between_replies());
        let under_way = watch.request(Version::HTTP_11);
        assert!(watch.owes_reply() && watch.is_between_replies(), "nothing of it is written");
        under_way.replied();
        assert!(watch.owes_reply() && !watch.is_between_replies(), "it is due");
        assert!(watch.takes_reply());
        assert!(!watch.owes_reply() && watch.is_between_replies(), "it is written");
        watch.blocked();
        assert!(watch.owes_reply() && !watch.is_between_replies(), "its rest waits for the client");
        watch.written();
        assert!(!watch.owes_reply() && watch.is_between_replies());
    }

    #[test]
    fn no_reply_is_owed_to_a_client_without_interim_replies_or_of_a_stream() {
        for (version, owes) in
            [(Version::HTTP_10, false), (Version::HTTP_11, true), (Version::HTTP_2, false)]
        {
            let story = Story::begin();
            let under_way = story.at(1).request(version);
            assert_eq!(story.watch.owes_reply(), owes, "{version:?}");
            assert!(!story.watch.streams());
            let streaming = story.watch.stream();
            assert!(story.watch.streams() && !story.watch.owes_reply(), "{version:?}");
            drop(streaming);
            assert_eq!(story.watch.owes_reply(), owes, "{version:?}");
            under_way.replied();
            assert!(!story.watch.streams());
        }
        // Before its first request, nothing is known of a client; the first one tells for all.
        let story = Story::begin();
        story.at(1).blocked();
        assert!(!story.watch.owes_reply());
        story.watch.written();
        story.request(Version::HTTP_10, 1, 1);
        let _under_way = story.watch.request(Version::HTTP_11);
        assert!(!story.watch.owes_reply());
    }

    #[test]
    fn a_body_is_awaited_at_most_until_the_end_of_its_request() {
        let story = Story::begin();
        let watch = story.at(1);
        assert!(!watch.body_is_awaited());
        let under_way = watch.request(Version::HTTP_11);
        for awaits in [true, true, false, false, true] {
            watch.awaits_body(awaits);
            assert_eq!(watch.body_is_awaited(), awaits);
        }
        drop(under_way);
        assert!(!watch.body_is_awaited());
    }

    #[test]
    fn a_stop_gives_up_a_stream_after_its_time_and_no_connection_without_one() {
        let story = Story::begin();
        story.watch.blocked();
        assert!(!story.at(30).leaves_stream_unread(), "there was no stream");
        let story = Story::begin();
        let under_way = story.at(1).request(Version::HTTP_11);
        let streaming = story.watch.stream();
        under_way.replied();
        let patience = u64::try_from(limits::STREAM_STOP_MAX.as_millis()).expect("a short time");
        assert!(!story.at_ms(1_000 + patience - 1).leaves_stream_unread());
        assert!(story.at_ms(1_000 + patience).leaves_stream_unread());
        streaming.is_read();
        assert!(!story.watch.leaves_stream_unread());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_notices_an_unread_stream_at_its_next_look() {
        bound_this_test();
        let patience = limits::STREAM_STOP_MAX;
        for (read_after, looks) in [(None, 1), (Some(patience / 2), 2)] {
            let clock = Arc::new(CoarseClock::default());
            let watch = Arc::new(Watch::new(clock.clone(), CancellationToken::new()));
            let under_way = watch.request(Version::HTTP_11);
            let streaming = watch.stream();
            under_way.replied();
            let began = Instant::now();
            let reads = async {
                if let Some(after) = read_after {
                    tokio::time::sleep(after).await;
                    clock.set();
                    streaming.is_read();
                }
            };
            let noticed = async {
                watch.left_unread().await;
                began.elapsed()
            };
            let both =
                tokio::time::timeout(patience * 10, futures_util::future::join(reads, noticed));
            let ((), noticed) = both.await.expect("it is noticed");
            // A timer may be a millisecond late.
            assert_eq!(
                noticed.as_millis() / patience.as_millis(),
                looks,
                "{read_after:?}: {noticed:?}"
            );
        }
    }
}
