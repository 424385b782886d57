//! The lanes that one look compares: those in use, some of those at rest, and witnesses.
//!
//! # Model
//!
//! A lane is at rest if nothing was promised between its last two beats, and all that was promised before is written.
//! A look compares each lane in use, and a [part](limits::BEAT_REST_LOOKS) of those at rest, each in its turn; and one
//! that has had an entry since its beat, which the keeper asks about for all of them at once. Some of the lanes that the
//! look before has compared are compared again, last: the *witnesses*.
//!
//! # Authority
//!
//! The memory of Redis goes back as a whole. A witness that is as noted proves that Redis has all that it had at the
//! look before, and so that no lane has lost more than one that is compared each time would have. Without such a proof,
//! a lane with an older note may have lost what came after that note, although its beat is as noted.
//!
//! # What each failure does
//!
//! * Another process keeps the lanes: it knows of no rest, and its first look compares all of them. Its witnesses are
//!   the lanes that the last look of any process has noted.
//! * A recovery notes a beat, too. It may have found a memory that had gone back, so its lane is no witness.
//! * A process dies while it closes the lanes without a proof, or Postgres refuses to close one: first, a beat is noted
//!   for all of them that Redis can't have, so that they are found to be behind by any process from then on.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};

use super::scripts::Beat;
use super::table::{LaneBeat, NotedBeat, Settled};
use crate::base::limits;
use crate::sale::ids::Lane;

/// The looks of a keeper.
#[derive(Default)]
pub struct Rounds {
    /// Number of the look.
    look: u32,
    at_rest: HashMap<Lane, Rest>,
}

/// A lane at rest.
#[derive(Clone, Copy)]
struct Rest {
    /// The beat that was noted then.
    beat: i64,
    /// Time of Redis at that beat.
    since: DateTime<Utc>,
}

/// The lanes of one look.
#[derive(Debug, Default)]
pub struct Round {
    /// Lanes without a sale, after a suspicion: they guard nothing.
    unused: Vec<NotedBeat>,
    /// Lanes with an older note than that of the look before, or none: compared before the witnesses.
    older: Vec<NotedBeat>,
    /// Lanes that the look before has noted: compared last, when they can speak for the others.
    witnesses: Vec<NotedBeat>,
    /// Lanes at rest that aren't compared.
    left_out: Vec<Lane>,
}

impl Rounds {
    /// Beats of the lanes at rest among these, each with its time by Redis.
    pub fn at_rest(&self, beats: &[LaneBeat]) -> Vec<(NotedBeat, DateTime<Utc>)> {
        let rest = |beat: &LaneBeat| Some((beat.noted, self.rest(&beat.noted)?.since));
        beats.iter().filter_map(rest).collect()
    }

    /// Begins a look at these lanes. Those of `awake` are compared in any case.
    pub fn begin(&mut self, beats: &[LaneBeat], awake: &BTreeSet<Lane>) -> Round {
        self.look = self.look.wrapping_add(1);
        let by_looks = beats.iter().filter(|beat| beat.by_look && beat.holds_sale);
        let last = by_looks.map(|beat| beat.noted.at).max();
        let mut round = Round::default();
        let mut extra = 0;
        for LaneBeat { noted, by_look, holds_sale } in beats {
            if !holds_sale {
                round.unused.push(*noted);
                continue;
            }
            let is_last = *by_look && Some(noted.at) == last;
            let is_compared = awake.contains(&noted.lane)
                || self.rest(noted).is_none()
                || self.is_turn_of(noted.lane);
            let is_witness = is_last && !is_compared && extra < limits::BEAT_WITNESSES;
            extra += usize::from(is_witness);
            match is_compared || is_witness {
                true if is_last => round.witnesses.push(*noted),
                true => round.older.push(*noted),
                false => round.left_out.push(noted.lane),
            }
        }
        round
    }

    /// Notes that a lane had this beat before, and has been confirmed and noted with the next one. A rest that was known
    /// before is of an older beat, and so counts no more.
    pub fn note(&mut self, before: &NotedBeat, confirmed: &NotedBeat, settled_now: bool) {
        let rests = settled_now && confirmed.promised == before.promised;
        if let Some(Settled { at: since, .. }) = confirmed.settled.filter(|_| rests) {
            self.at_rest.insert(confirmed.lane, Rest { beat: confirmed.beat, since });
        }
    }

    /// The rest of a lane, if the noted beat is the one of this keeper.
    fn rest(&self, noted: &NotedBeat) -> Option<&Rest> {
        self.at_rest.get(&noted.lane).filter(|rest| rest.beat == noted.beat)
    }

    fn is_turn_of(&self, lane: Lane) -> bool {
        let number = u32::try_from(lane.get()).unwrap_or_default();
        self.look.wrapping_add(number).is_multiple_of(limits::BEAT_REST_LOOKS)
    }
}

impl Round {
    /// The lanes to compare, in this order.
    pub fn compared(&self) -> impl Iterator<Item = &NotedBeat> {
        self.unused.iter().chain(&self.older).chain(&self.witnesses)
    }

    /// Lanes that may have lost what came after their note: none of the witnesses among these findings has what was noted.
    pub fn unproven(&self, found: &[(NotedBeat, Beat)]) -> BTreeSet<Lane> {
        // A log is only looked for in a lane that is as it was noted.
        let is_as_noted = |beat: &Beat| matches!(beat, Beat::Confirmed { .. } | Beat::Logless);
        let of = |lanes: &[NotedBeat]| -> BTreeMap<Lane, bool> {
            let lanes: BTreeSet<Lane> = lanes.iter().map(|noted| noted.lane).collect();
            let found = found.iter().filter(|(noted, _)| lanes.contains(&noted.lane));
            found.map(|(noted, beat)| (noted.lane, is_as_noted(beat))).collect()
        };
        let witnesses = of(&self.witnesses);
        if witnesses.is_empty() || witnesses.into_values().any(|proves| proves) {
            return BTreeSet::new();
        }
        let older = of(&self.older).into_iter().filter(|(_, as_noted)| *as_noted);
        self.left_out.iter().copied().chain(older.map(|(lane, _)| lane)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANES: i32 = 40;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).expect("a time")
    }

    fn noted(lane: i32, beat: i64, second: i64) -> NotedBeat {
        let settled = Some(Settled { promised: 7, at: at(second) });
        NotedBeat { lane: Lane::numbered(lane), beat, promised: 7, settled, at: at(second) }
    }

    fn numbers<'a>(lanes: impl IntoIterator<Item = &'a NotedBeat>) -> Vec<i32> {
        lanes.into_iter().map(|noted| noted.lane.get()).collect()
    }

    /// Lanes, their notes, and a keeper that finds all of them as they were noted.
    struct Kept {
        rounds: Rounds,
        beats: Vec<LaneBeat>,
        second: i64,
    }

    impl Kept {
        fn new() -> Self {
            let lane =
                |lane| LaneBeat { noted: noted(lane, 1, 0), by_look: false, holds_sale: true };
            Self { rounds: Rounds::default(), beats: (0..LANES).map(lane).collect(), second: 0 }
        }

        fn begin(&mut self, awake: &[i32]) -> Round {
            let awake = awake.iter().map(|lane| Lane::numbered(*lane)).collect();
            self.rounds.begin(&self.beats, &awake)
        }

        fn note(&mut self, round: &Round) {
            self.second += 1;
            for before in round.compared() {
                let lane = before.lane.get();
                let confirmed = noted(lane, before.beat + 1, self.second);
                self.rounds.note(before, &confirmed, true);
                let index = usize::try_from(lane).expect("no lane is below 0");
                self.beats[index] = LaneBeat { noted: confirmed, by_look: true, holds_sale: true };
            }
        }

        fn look(&mut self, awake: &[i32]) -> Round {
            let round = self.begin(awake);
            self.note(&round);
            round
        }
    }

    #[test]
    fn a_lane_at_rest_is_compared_in_its_turn_and_some_once_more_as_witnesses() {
        let mut kept = Kept::new();
        let first = kept.look(&[]);
        assert_eq!((first.older.len(), first.witnesses.len(), first.left_out.len()), (40, 0, 0));
        let mut seen = vec![0; 40];
        for _ in 0..limits::BEAT_REST_LOOKS {
            let before = kept.beats.iter().map(|beat| beat.noted.at).max();
            let round = kept.look(&[]);
            assert!(round.witnesses.iter().all(|noted| Some(noted.at) == before), "{round:?}");
            assert!((1..=3 + limits::BEAT_WITNESSES).contains(&round.witnesses.len()));
            numbers(round.compared()).iter().for_each(|lane| seen[*lane as usize] += 1);
            assert_eq!(round.compared().count() + round.left_out.len(), 40);
        }
        assert!(seen.iter().all(|looks| *looks >= 1), "{seen:?}");
        let most = 40 + limits::BEAT_REST_LOOKS as usize * limits::BEAT_WITNESSES;
        assert!(seen.iter().sum::<usize>() <= most, "{seen:?}");
    }

    #[test]
    fn a_lane_in_use_is_compared_each_time() {
        let mut kept = Kept::new();
        kept.look(&[]);
        let everything: Vec<i32> = (0..LANES).collect();
        for awake in [&[20, 30][..], &everything] {
            let round = kept.look(awake);
            let compared = numbers(round.compared());
            assert!(awake.iter().all(|lane| compared.contains(lane)), "{compared:?}");
        }
        // All are noted now: some are witnesses beside those that are compared anyway.
        let awake: Vec<i32> = (0..20).collect();
        let round = kept.begin(&awake);
        let in_turn = |lane: &i32| kept.rounds.is_turn_of(Lane::numbered(*lane));
        let witnesses = numbers(&round.witnesses).into_iter();
        let extra = witnesses.filter(|lane| !awake.contains(lane) && !in_turn(lane)).count();
        assert_eq!(extra, limits::BEAT_WITNESSES);
        // Something was promised, not all of it is written, and the note of another process.
        let before = noted(20, 8, 8);
        let settled = Settled { promised: 7, at: at(9) };
        for (promised, settled_now, noted_beat, rests) in
            [(7, true, 9, true), (8, true, 9, false), (7, false, 9, false), (7, true, 11, false)]
        {
            let mut rounds = Rounds::default();
            let confirmed =
                NotedBeat { beat: 9, promised, settled: Some(settled), at: at(9), ..before };
            rounds.note(&before, &confirmed, settled_now);
            let now = LaneBeat { noted: noted(20, noted_beat, 9), by_look: true, holds_sale: true };
            let at_rest = rounds.at_rest(&[now]);
            let at_rest: Vec<_> = at_rest.iter().map(|(of, since)| (of.lane, *since)).collect();
            let expected = if rests { vec![(Lane::numbered(20), at(9))] } else { vec![] };
            assert_eq!(at_rest, expected, "{promised} {settled_now} {noted_beat}");
        }
    }

    #[test]
    fn without_a_witness_that_is_as_noted_the_lanes_with_older_notes_are_unproven() {
        let confirmed = || Beat::Confirmed { promised: 7, settled_at: None };
        for (beat, proves) in [
            (confirmed(), true),
            (Beat::Logless, true),
            (Beat::Behind(1), false),
            (Beat::Missing, false),
            (Beat::Closed, false),
            (Beat::Epoch(1), false),
        ] {
            for some_proves in [false, true] {
                let mut kept = Kept::new();
                kept.look(&[]);
                kept.look(&[]);
                let round = kept.begin(&[]);
                assert!(!round.older.is_empty() && round.witnesses.len() > 1, "{round:?}");
                let mut found: Vec<_> =
                    round.older.iter().map(|noted| (*noted, confirmed())).collect();
                found[0].1 = Beat::Missing;
                found.extend(round.witnesses.iter().map(|noted| (*noted, beat)));
                if some_proves {
                    found.last_mut().expect("there are witnesses").1 = confirmed();
                }
                let unproven = round.unproven(&found).len();
                let expected = round.left_out.len() + round.older.len() - 1;
                let expected = if proves || some_proves { 0 } else { expected };
                assert_eq!(unproven, expected, "{beat:?}");
            }
        }
    }

    #[test]
    fn a_lane_without_a_sale_is_no_witness_and_is_not_unproven() {
        let mut kept = Kept::new();
        kept.look(&[]);
        kept.look(&[]);
        kept.beats.iter_mut().for_each(|beat| beat.holds_sale = beat.noted.lane.get() < 20);
        kept.beats[39].noted.at = at(kept.second + 1);
        let round = kept.begin(&[]);
        assert!(!round.witnesses.is_empty(), "its note isn't newer for the others");
        assert_eq!(numbers(&round.unused), (20..LANES).collect::<Vec<_>>());
        let found: Vec<_> = round.compared().map(|noted| (*noted, Beat::Behind(1))).collect();
        let unproven = round.unproven(&found);
        assert_eq!(unproven, round.left_out.iter().copied().collect());
        assert!(!unproven.is_empty() && unproven.iter().all(|lane| lane.get() < 20));
    }

    /// A recovery may have found a memory that had gone back.
    #[test]
    fn a_note_of_a_recovery_makes_no_witness() {
        let mut kept = Kept::new();
        let none = kept.look(&[]);
        assert!(none.unproven(&[(none.older[0], Beat::Missing)]).is_empty());
        kept.look(&[]);
        let recovered = noted(39, 9, kept.second + 1);
        kept.beats[39] = LaneBeat { noted: recovered, by_look: false, holds_sale: true };
        // One that was noted at the moment of the look.
        let recovered = noted(38, 9, kept.second);
        kept.beats[38] = LaneBeat { noted: recovered, by_look: false, holds_sale: true };
        let round = kept.begin(&[]);
        assert!([38, 39].iter().all(|lane| numbers(&round.older).contains(lane)));
        assert!(round.witnesses.iter().all(|noted| noted.at == at(kept.second)), "{round:?}");
        assert!(!round.witnesses.is_empty());
    }
}
