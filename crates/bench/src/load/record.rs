//! The records of answers.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::connection::Answer;

/// The longest latency that can be told from longer ones.
const LATENCY_US_MAX: u64 = 120_000_000;

/// The end of a request: its status and, of a refusal, the code in its body; or the reason why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ending {
    /// 0 without an answer.
    pub status: u16,
    pub code: String,
    pub count: u64,
}

/// The notes of one thread; no two threads share any.
pub struct Recorder {
    /// In microseconds, of the measured requests only.
    pub latency: Histogram<u64>,
    /// Delay of sending measured requests, in microseconds: for want of a free connection, or because the client was
    /// too slow.
    pub lateness: Histogram<u64>,
    /// As `latency`, of requests with a hoped-for answer.
    pub good: Histogram<u64>,
    /// Answers `overloaded` that don't say when to come back.
    pub without_retry_after: u64,
    pub endings: Vec<Ending>,
}

impl Recorder {
    pub fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("sane bounds");
        Self {
            latency: histogram(),
            lateness: histogram(),
            good: histogram(),
            without_retry_after: 0,
            endings: Vec::new(),
        }
    }

    /// An answer.
    pub fn answered(&mut self, answer: Answer, body: &[u8]) {
        let Answer { status, retry_after } = answer;
        let code = if status >= 400 { text_after(body, "\"code\":\"") } else { "" };
        self.ended(status, code);
        self.without_retry_after += u64::from(code == "overloaded" && !retry_after);
    }

    /// The end of a request.
    pub fn ended(&mut self, status: u16, code: &str) {
        self.add_endings(status, code, 1);
    }

    fn add_endings(&mut self, status: u16, code: &str, count: u64) {
        let same = |known: &&mut Ending| known.status == status && known.code == code;
        match self.endings.iter_mut().find(same) {
            Some(known) => known.count += count,
            None => self.endings.push(Ending { status, code: code.to_owned(), count }),
        }
    }

    /// Counts a measured request: its latency, its delay of sending, and whether its answer was hoped for.
    pub fn measured(&mut self, latency: Duration, late: Duration, good: bool) {
        if good {
            self.good.saturating_record(microseconds(latency));
        }
        self.latency.saturating_record(microseconds(latency));
        self.lateness.saturating_record(microseconds(late));
    }

    /// Adds another thread's notes.
    pub fn add(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("same bounds");
        self.lateness.add(&other.lateness).expect("same bounds");
        self.good.add(&other.good).expect("same bounds");
        self.without_retry_after += other.without_retry_after;
        for ending in &other.endings {
            self.add_endings(ending.status, &ending.code, ending.count);
        }
    }
}

/// True if the client can't know whether a unit was taken: no answer came, or `unavailable`.
pub fn is_unknown(ending: &Ending) -> bool {
    ending.status == 0 || ending.status >= 500 && ending.code != "overloaded"
}

/// The order id in the body of an accepted claim.
pub fn order_id(body: &[u8]) -> Option<i64> {
    text_after(body, "\"order_id\":\"").parse().ok()
}

/// Up to the closing quote. Reading all of a body as JSON would cost more than sending the request.
fn text_after<'a>(body: &'a [u8], name: &str) -> &'a str {
    let found = body.windows(name.len()).position(|window| window == name.as_bytes());
    let rest = found.map_or(&[][..], |at| &body[at + name.len()..]);
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or(0);
    std::str::from_utf8(&rest[..end]).unwrap_or("")
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_status_and_code() {
        let mut one = Recorder::new();
        let answer = |status| Answer { status, retry_after: false };
        let accepted = br#"{"order_id":"77","status":"pending"}"#;
        one.answered(answer(202), accepted);
        one.answered(answer(410), br#"{"status":410,"code":"sold_out"}"#);
        one.answered(answer(503), br#"{"code":"overloaded"}"#);
        let mut all = Recorder::new();
        all.answered(answer(410), br#"{"code":"sold_out"}"#);
        let come_back = Answer { status: 503, retry_after: true };
        all.answered(come_back, br#"{"code":"overloaded"}"#);
        all.ended(0, "time-out");
        all.add(&one);
        let count = |status, code: &str| {
            let same = |ending: &&Ending| ending.status == status && ending.code == code;
            all.endings.iter().find(same).map_or(0, |ending| ending.count)
        };
        assert_eq!((count(410, "sold_out"), count(202, ""), count(0, "time-out")), (2, 1, 1));
        assert_eq!((count(503, "overloaded"), all.without_retry_after), (2, 1));
    }

    #[test]
    fn only_what_may_have_taken_a_unit_is_unknown() {
        let ending = |status, code: &str| Ending { status, code: code.to_owned(), count: 1 };
        assert!(is_unknown(&ending(0, "time-out")));
        assert!(is_unknown(&ending(503, "unavailable")));
        for known in [ending(202, ""), ending(410, "sold_out"), ending(503, "overloaded")] {
            assert!(!is_unknown(&known), "{known:?}");
        }
        assert_eq!(order_id(br#"{"order_id":"77","status":"pending"}"#), Some(77));
        assert_eq!(order_id(b"{}"), None);
    }
}
