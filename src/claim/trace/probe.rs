//! The measurements of one claim whose client has asked for them. A claim without a probe is not measured.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::ids::OrderId;

/// A call of the claim script, as one of its claims has seen it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// When the claim began to wait for a call.
    pub queued_at: Instant,
    pub called_at: Instant,
    pub answered_at: Instant,
    /// Claims that shared it.
    pub claims: usize,
    /// Order of the claim, if the script has accepted it.
    pub accepted: Option<OrderId>,
}

#[derive(Debug, Default)]
pub struct Probe(Mutex<Option<Call>>);

impl Probe {
    /// Notes a call. If a claim needs several calls, the last one counts: it has the answer.
    pub fn note(&self, call: Call) {
        *self.0.lock().expect("no holder of this lock panics") = Some(call);
    }

    /// The call, if the script was asked.
    pub fn call(&self) -> Option<Call> {
        *self.0.lock().expect("no holder of this lock panics")
    }
}

impl Call {
    /// The durations for the client, as the value of `Server-Timing` (<https://www.w3.org/TR/server-timing/>).
    pub fn server_timing(&self) -> String {
        let Self { queued_at, called_at, answered_at, claims, .. } = *self;
        let queue = in_ms(called_at.saturating_duration_since(queued_at));
        let script = in_ms(answered_at.saturating_duration_since(called_at));
        let plural = if claims == 1 { "" } else { "s" };
        format!(r#"queue;dur={queue:.3}, script;dur={script:.3};desc="{claims} claim{plural}""#)
    }
}

fn in_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_durations_are_told_in_ms() {
        let queued_at = Instant::now();
        let called_at = queued_at + Duration::from_micros(420);
        let answered_at = called_at + Duration::from_micros(1_310);
        let call = Call { queued_at, called_at, answered_at, claims: 17, accepted: None };
        let told = r#"queue;dur=0.420, script;dur=1.310;desc="17 claims""#;
        assert_eq!(call.server_timing(), told);
        let alone = Call { claims: 1, ..call }.server_timing();
        assert!(alone.ends_with(r#"desc="1 claim""#), "{alone}");
    }
}
