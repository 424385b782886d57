//! Sums and rates over all processes, computed from their reports.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;
use utoipa::ToSchema;

use super::presence::{Claims, Word};
use crate::base::limits;
use crate::base::tally::{Counts, quantile_ms};

/// A process of the installation.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Process {
    /// Host and process number; or the start of its id, if this board has never heard it.
    pub name: String,
    /// Roles of the process.
    pub roles: Vec<String>,
    /// Whether it was heard within the last 5 s. A process that ended normally is not listed.
    pub is_heard: bool,
    /// Time of its last report, in ms since 1970.
    pub heard_ms: i64,
    /// Whether it will stop soon.
    pub is_stopping: bool,
    /// Start of the process, in ms since 1970.
    pub started_ms: Option<i64>,
    /// Requests per second.
    pub requests: Option<f64>,
    /// Orders written per second.
    pub rows: Option<f64>,
    /// Open connections of clients.
    pub connections: Option<u64>,
    /// Processor time per second, as a share of one processor.
    pub cpu: Option<f64>,
    /// Resident memory, in bytes.
    pub memory_bytes: Option<u64>,
}

/// Remembers the reports of the processes, to compute how fast their counts grow.
#[derive(Default)]
pub struct Processes {
    words: HashMap<String, Known>,
    /// Times of answers, and from claims to rows, for each of the last seconds.
    times: VecDeque<(Counts, Counts)>,
}

/// The last report of a process, and its growth since the one before.
struct Known {
    word: Word,
    speed: Speed,
}

/// Growth per second.
#[derive(Clone, Copy, Default)]
struct Speed {
    requests: f64,
    claims: Claims<f64>,
    rows: f64,
    /// Processor time, as a share of one processor.
    cpu: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub struct Together {
    pub processes: Vec<Process>,
    /// Claims per second, by kind of answer.
    pub claims: Claims<f64>,
    /// Rows per second.
    pub rows: f64,
    /// Half of the claims were answered within this time; `None` without any.
    pub p50_ms: Option<f64>,
    /// 99 of 100 claims were answered within this time.
    pub p99_ms: Option<f64>,
    /// 99 of 100 accepted claims were rows within this time.
    pub row_p99_ms: Option<f64>,
}

impl Processes {
    /// Adds reports: of each process its id, when it was last heard, and its report if it isn't silent.
    pub fn hear(&mut self, words: Vec<(String, i64, Option<Word>)>, now_ms: i64) -> Together {
        let mut times = (Counts::new(), Counts::new());
        let mut together = Together::default();
        self.words.retain(|id, _| words.iter().any(|(name, ..)| name == id));
        for (id, heard_ms, word) in words {
            let Some(word) = word else {
                let unheard = || Word { name: id.chars().take(8).collect(), ..Word::default() };
                let known = self.words.get(&id).map_or_else(unheard, |known| known.word.clone());
                together.processes.push(Process::of(&known, heard_ms, None));
                continue;
            };
            let speed = self.speed(&id, &word, &mut times);
            together.claims = together.claims.with(&speed.claims, |sum, more| sum + more);
            together.rows += speed.rows;
            together.processes.push(Process::of(&word, word.at_ms.min(now_ms), Some(speed)));
            self.words.insert(id, Known { word, speed });
        }
        together.processes.sort_by(|a, b| (a.is_heard, &a.name).cmp(&(b.is_heard, &b.name)));
        self.times.push_back(times);
        if self.times.len() > limits::BOARD_QUANTILE_SECONDS {
            self.times.pop_front();
        }
        let (mut answers, mut to_rows) = (Counts::new(), Counts::new());
        for (of_answers, of_rows) in &self.times {
            add(&mut answers, of_answers);
            add(&mut to_rows, of_rows);
        }
        together.p50_ms = quantile_ms(&answers, 0.5);
        together.p99_ms = quantile_ms(&answers, 0.99);
        together.row_p99_ms = quantile_ms(&to_rows, 0.99);
        together
    }

    /// The growth since the last report; or the last growth, if there is no newer report.
    fn speed(&self, id: &str, word: &Word, times: &mut (Counts, Counts)) -> Speed {
        let Some(Known { word: before, speed }) = self.words.get(id) else {
            return Speed::default();
        };
        let seconds = (word.at_ms - before.at_ms) as f64 / 1_000.0;
        if seconds <= 0.0 {
            return *speed;
        }
        grow(&mut times.0, &before.answers, &word.answers);
        grow(&mut times.1, &before.claims_to_rows, &word.claims_to_rows);
        let a_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Speed {
            requests: a_second(word.requests, before.requests),
            claims: word.claims.with(&before.claims, a_second),
            rows: a_second(word.rows, before.rows),
            cpu: word.cpu_ms.zip(before.cpu_ms).map(|(now, then)| a_second(now, then) / 1_000.0),
        }
    }
}

impl Process {
    /// A process according to its last report. It has a `speed` only if it isn't silent.
    fn of(word: &Word, heard_ms: i64, speed: Option<Speed>) -> Self {
        Self {
            name: word.name.clone(),
            roles: word.roles.clone(),
            is_heard: speed.is_some(),
            heard_ms,
            is_stopping: word.stopping,
            started_ms: (word.started_ms > 0).then_some(word.started_ms),
            requests: speed.map(|speed| speed.requests),
            rows: speed.map(|speed| speed.rows),
            connections: speed.map(|_| word.connections),
            cpu: speed.and_then(|speed| speed.cpu),
            memory_bytes: speed.and(word.memory_bytes),
        }
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    for (bucket, count) in counts {
        *sum.entry(*bucket).or_default() += count;
    }
}

fn grow(sum: &mut Counts, before: &Counts, now: &Counts) {
    for (bucket, count) in now {
        let before = before.get(bucket).copied().unwrap_or_default();
        if let Some(more) = count.checked_sub(before).filter(|more| *more > 0) {
            *sum.entry(*bucket).or_default() += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(name: &str, at_ms: i64, accepted: u64, rows: u64) -> Word {
        let claims = Claims { accepted, ..Claims::default() };
        Word { name: name.into(), at_ms, claims, rows, ..Word::default() }
    }

    fn heard_at(processes: &mut Processes, at_ms: i64, words: &[Word]) -> Together {
        let words = words.iter().map(|word| (word.name.clone(), word.at_ms, Some(word.clone())));
        processes.hear(words.collect(), at_ms)
    }

    #[test]
    fn the_growth_of_all_processes_is_added_up() {
        let mut processes = Processes::default();
        let first =
            heard_at(&mut processes, 1_000, &[word("a", 1_000, 5, 0), word("b", 900, 0, 9)]);
        assert!(first.claims.accepted == 0.0 && first.rows == 0.0, "counts of before are no speed");
        let words = [word("a", 2_000, 15, 0), word("b", 2_900, 20, 19)];
        let second = heard_at(&mut processes, 3_000, &words);
        assert!((second.claims.accepted - 20.0).abs() < 1e-9 && (second.rows - 5.0).abs() < 1e-9);
        // The same reports again, so the speed stays.
        let third = heard_at(&mut processes, 3_500, &words);
        assert!((third.claims.accepted - 20.0).abs() < 1e-9);
    }

    /// A busy process and a slow idle one: each time counts once, whichever process it comes from.
    #[test]
    fn quantiles_are_those_of_all_times_of_all_processes() {
        let mut processes = Processes::default();
        let told = |name: &str, at_ms, answers: &[(usize, u64)]| {
            let counts: Counts = answers.iter().copied().collect();
            Word { answers: counts.clone(), claims_to_rows: counts, ..word(name, at_ms, 0, 0) }
        };
        heard_at(&mut processes, 1_000, &[told("a", 1_000, &[(8, 500)]), told("b", 1_000, &[])]);
        let words = [told("a", 2_000, &[(8, 590), (20, 5)]), told("b", 2_000, &[(20, 3), (40, 2)])];
        let together = heard_at(&mut processes, 2_000, &words);
        // Of the last second's 100 times: 90 in the fast bucket, 8 in the next, 2 in the slowest.
        let at = |bucket| quantile_ms(&Counts::from([(bucket, 1)]), 1.0);
        assert_eq!((together.p50_ms, together.p99_ms), (at(8), at(40)));
        assert_eq!(together.row_p99_ms, at(40));
        // With a thousand fast ones, 99 of 100 are fast.
        let words =
            [told("a", 3_000, &[(8, 1_590), (20, 5)]), told("b", 3_000, &[(20, 3), (40, 2)])];
        let together = heard_at(&mut processes, 3_000, &words);
        assert_eq!((together.p50_ms, together.p99_ms), (at(8), at(8)));
    }

    #[test]
    fn a_silent_process_stays_in_the_list_and_in_no_sum() {
        let mut processes = Processes::default();
        heard_at(&mut processes, 1_000, &[word("a", 1_000, 0, 0)]);
        heard_at(&mut processes, 2_000, &[word("a", 2_000, 9, 0)]);
        let now = processes.hear(vec![("a".into(), 2_000, None)], 9_000);
        assert_eq!(now.claims, Claims::default());
        let [process] = &now.processes[..] else { panic!("{now:?}") };
        assert_eq!((&*process.name, process.is_heard, process.heard_ms), ("a", false, 2_000));
    }

    /// Two reports of a process, two seconds apart.
    #[test]
    fn the_speed_of_a_process_is_the_growth_of_each_count_by_the_second() {
        let mut processes = Processes::default();
        let counts = |n: u64| Claims {
            accepted: n,
            sold_out: 2 * n,
            repeats: 3 * n,
            shed: 4 * n,
            others: 5 * n,
        };
        let told = |at_ms, n: u64| Word {
            claims: counts(n),
            requests: 6 * n,
            rows: 7 * n,
            cpu_ms: Some(500 * n),
            connections: 8,
            memory_bytes: Some(9),
            started_ms: 10,
            stopping: n > 1,
            roles: vec!["api".into()],
            ..word("a", at_ms, 0, 0)
        };
        heard_at(&mut processes, 1_000, &[told(1_000, 1)]);
        let together = heard_at(&mut processes, 2_900, &[told(3_000, 3)]);
        let expected =
            Claims { accepted: 1.0, sold_out: 2.0, repeats: 3.0, shed: 4.0, others: 5.0 };
        assert_eq!((together.claims, together.rows), (expected, 7.0));
        let [process] = &together.processes[..] else { panic!("{together:?}") };
        assert_eq!(
            (process.requests, process.rows, process.cpu),
            (Some(6.0), Some(7.0), Some(0.5))
        );
        assert_eq!((process.connections, process.memory_bytes), (Some(8), Some(9)));
        assert_eq!((process.started_ms, process.is_stopping), (Some(10), true));
        assert_eq!((process.is_heard, process.heard_ms), (true, 2_900), "its clock is ahead");
        // A process that has restarted under its name counts from 0 again.
        let again = heard_at(&mut processes, 4_000, &[told(4_000, 0)]);
        assert_eq!((again.claims, again.rows), (Claims::default(), 0.0));
    }
}
