//! Plans from seeds.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::fault::{APIS, Fault, PROCESSES};
use super::schedule::{Act, Deed, DeedAt, Plan, Sync};

/// Time in which faults begin, in milliseconds.
const BEGINS_MS: std::ops::Range<u32> = 1_000..6_000;
/// Time that faults last, in milliseconds. A lease of a lock lasts 2,000.
const LASTS_MS: std::ops::Range<u32> = 200..3_500;
/// Faults of a run.
const FAULTS: std::ops::RangeInclusive<usize> = 2..=6;
/// Tries to find a time for a fault at which its ground is free.
const TRIES: usize = 20;

/// The plan of a seed, of these faults.
pub fn generate(seed: u64, faults: &[Fault]) -> Plan {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let sync = if random.random_bool(0.6) { Sync::Always } else { Sync::EverySecond };
    let sales: Vec<i64> = (0..random.random_range(2..=4)).map(|_| total(&mut random)).collect();
    let clients = random.random_range(16..=48);
    let users = random.random_range(5..=40);
    let pause_ms = random.random_range(1..=10);
    let payment_window_s = random.random_range(2..=3);
    let deeds = deeds(&mut random, sales.len());
    let acts = acts(&mut random, faults);
    let is_replicated = random.random_bool(0.25);
    let last = acts.iter().map(|act| act.end_ms).max().unwrap_or(0);
    Plan {
        seed,
        sync,
        is_replicated,
        sales,
        clients,
        users,
        pause_ms,
        payment_window_s,
        duration_ms: last.max(BEGINS_MS.end),
        deeds,
        acts,
    }
}

/// Small sales sell out and get units back; large ones hardly do.
fn total(random: &mut ChaCha8Rng) -> i64 {
    match random.random_range(0..3) {
        0 => random.random_range(3..=20),
        1 => random.random_range(20..=120),
        _ => random.random_range(120..=2_000),
    }
}

fn deeds(random: &mut ChaCha8Rng, sales: usize) -> Vec<DeedAt> {
    let mut deeds: Vec<DeedAt> = (0..random.random_range(1..=5))
        .map(|_| {
            let deed = match random.random_range(0..4) {
                0 => Deed::Restock(random.random_range(1..=20)),
                1 => Deed::Raise(random.random_range(1..=20)),
                2 => Deed::Title,
                _ => Deed::Pause(random.random_range(100..=1_500)),
            };
            DeedAt {
                at_ms: random.random_range(500..6_000),
                sale: random.random_range(0..sales),
                deed,
            }
        })
        .collect();
    deeds.sort_by_key(|deed| deed.at_ms);
    deeds
}

fn acts(random: &mut ChaCha8Rng, faults: &[Fault]) -> Vec<Act> {
    let mut acts: Vec<Act> = Vec::new();
    let count = random.random_range(FAULTS);
    for _ in 0..count {
        let fault = faults[random.random_range(0..faults.len())];
        for _ in 0..TRIES {
            let act = match acts.last() {
                Some(other) if random.random_bool(0.6) => beside(random, fault, other),
                _ => act(random, fault),
            };
            if acts.iter().all(|other| is_apart(&act, other)) {
                acts.push(act);
                break;
            }
        }
    }
    acts.sort_by_key(|act| act.begin_ms);
    acts
}

fn act(random: &mut ChaCha8Rng, fault: Fault) -> Act {
    let begin_ms = random.random_range(BEGINS_MS);
    let end_ms = begin_ms + random.random_range(LASTS_MS);
    let place = random.random_range(0..PROCESSES);
    let places = fault.places();
    let place = places.start + place % places.len();
    debug_assert!(place < PROCESSES && APIS < PROCESSES);
    Act { fault, begin_ms, end_ms, place }
}

/// A fault that begins at about the beginning or the end of another one.
fn beside(random: &mut ChaCha8Rng, fault: Fault, other: &Act) -> Act {
    const BEFORE_MS: u32 = 300;
    let act = act(random, fault);
    let at = if random.random_bool(0.5) { other.begin_ms } else { other.end_ms };
    let begin_ms = (at + random.random_range(0..1_000)).saturating_sub(BEFORE_MS);
    Act { begin_ms, end_ms: begin_ms + (act.end_ms - act.begin_ms), ..act }
}

/// True for two faults with different things, or with different times and some room between them.
fn is_apart(one: &Act, two: &Act) -> bool {
    const ROOM_MS: u32 = 300;
    let clashes = one.fault.ground(one.place).clashes(two.fault.ground(two.place));
    // A rolling restart goes on for some seconds.
    let end = |act: &Act| if act.fault == Fault::RollingRestart { u32::MAX } else { act.end_ms };
    let is_before =
        |a: &Act, b: &Act| end(a).checked_add(ROOM_MS).is_some_and(|end| end <= b.begin_ms);
    !clashes || is_before(one, two) || is_before(two, one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan() {
        for seed in 0..200 {
            assert_eq!(generate(seed, &Fault::all()), generate(seed, &Fault::all()));
        }
        assert_ne!(generate(1, &Fault::all()).acts, generate(2, &Fault::all()).acts);
    }

    #[test]
    fn a_fault_ends_after_its_beginning_and_has_a_place_of_its_kind() {
        for act in (0..300).flat_map(|seed| generate(seed, &Fault::all()).acts) {
            assert!(act.begin_ms < act.end_ms, "{act:?}");
            assert!(act.fault.places().contains(&act.place), "{act:?}");
        }
    }

    #[test]
    fn faults_of_one_ground_never_overlap() {
        for seed in 0..300 {
            let acts = generate(seed, &Fault::all()).acts;
            for (index, act) in acts.iter().enumerate() {
                assert!(acts[..index].iter().all(|other| is_apart(act, other)), "seed {seed}");
            }
        }
    }

    #[test]
    fn faults_that_are_left_out_leave_the_others_as_they_were() {
        let plan = generate(7, &Fault::all());
        let less = plan.clone().without(&[0], Some(2));
        assert_eq!(less.acts, plan.acts[1..]);
        assert_eq!(less.clients, 2);
    }

    #[test]
    fn a_larger_crowd_has_more_clients_and_units_and_the_same_faults() {
        let plan = generate(7, &Fault::all());
        let larger = plan.clone().times(4);
        assert_eq!(larger.clients, 4 * plan.clients);
        for (total, larger) in plan.sales.iter().zip(&larger.sales) {
            assert_eq!(4 * total, *larger);
        }
        let Plan { clients, sales, .. } = plan.clone();
        assert_eq!(Plan { clients, sales, ..larger }, plan);
    }
}
