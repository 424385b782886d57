//! Exhaustive search, breadth first: the first path to a broken promise is a shortest one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::model::{Action, Model};
use crate::promises;
pub use crate::state::Broken;
use crate::state::State;

/// Result of a search.
#[derive(Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// States in which nothing happens by itself.
    pub at_rest: usize,
    /// Length of the longest of all shortest paths.
    pub depth: usize,
    /// Steps that any state is away from rest, at most, once users and faults stay away.
    pub steps_to_rest: usize,
    /// True when all states were looked at.
    pub is_complete: bool,
    /// The broken promise, and the shortest path to it.
    pub broken: Option<(Broken, Vec<Action>)>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, at_rest, depth, steps_to_rest, .. } = self;
        write!(f, "{states} states, {at_rest} at rest, {depth} steps deep")?;
        match &self.broken {
            None if self.is_complete => write!(f, "; at rest within {steps_to_rest} steps"),
            None => write!(f, "; not all of them"),
            Some((broken, path)) => write!(f, "; {broken:?} after {} steps: {path:?}", path.len()),
        }
    }
}

/// Where a state was reached from.
#[derive(Clone, Copy)]
struct Origin {
    before: u32,
    action: u8,
}

struct Search<'a> {
    model: &'a Model,
    /// Numbers of the states, by 64 bits of each.
    known: HashMap<u64, u32, BuildHasherDefault<Same>>,
    origins: Vec<Origin>,
    /// States that certain steps lead to, one state after the other; and where each begins.
    certain: Vec<u32>,
    begins: Vec<u32>,
    at_rest: usize,
}

/// Looks at all states of a model, up to `states_max`, or until a promise is broken.
pub fn search(model: &Model, states_max: usize) -> Found {
    let first = model.first();
    let mut search = Search {
        model,
        known: HashMap::default(),
        origins: Vec::new(),
        certain: Vec::new(),
        begins: Vec::new(),
        at_rest: 0,
    };
    search.number(&first, Origin { before: 0, action: 0 });
    let mut level = vec![(0, first)];
    let mut depth = 0;
    while !level.is_empty() && search.origins.len() < states_max {
        let mut next_level = Vec::new();
        for (number, state) in level {
            if let Some(broken) = search.expand(number, &state, &mut next_level) {
                return search.found(depth, false, Some(broken));
            }
        }
        level = next_level;
        depth += 1;
    }
    let is_complete = level.is_empty();
    search.found(depth, is_complete, None)
}

impl Search<'_> {
    /// The number of a state; the second value says whether it is new.
    fn number(&mut self, state: &State, origin: Origin) -> (u32, bool) {
        let mut hasher = Mixed::default();
        state.hash(&mut hasher);
        let number = self.origins.len() as u32;
        match self.known.entry(hasher.finish()) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(place) => {
                place.insert(number);
                self.origins.push(origin);
                (number, true)
            }
        }
    }

    /// Takes each possible step. Returns a broken promise, and the state and step that lead to it.
    fn expand(
        &mut self,
        before: u32,
        state: &State,
        next_level: &mut Vec<(u32, State)>,
    ) -> Option<(Broken, u32, Option<usize>)> {
        let begin = self.certain.len();
        self.begins.push(begin as u32);
        for (action, step) in self.model.actions().iter().enumerate() {
            let Some(next) = self.model.after(state, *step) else {
                continue;
            };
            if let Some(broken) = next.broken {
                return Some((broken, before, Some(action)));
            }
            let (number, is_new) = self.number(&next, Origin { before, action: action as u8 });
            if step.is_certain() {
                self.certain.push(number);
            }
            if is_new {
                next_level.push((number, next));
            }
        }
        if self.certain.len() > begin {
            return None;
        }
        self.at_rest += 1;
        promises::at_rest(&self.model.settings, state).map(|broken| (broken, before, None))
    }

    fn found(
        self,
        depth: usize,
        is_complete: bool,
        broken: Option<(Broken, u32, Option<usize>)>,
    ) -> Found {
        let broken = broken.map(|(broken, state, last)| (broken, self.path(state, last)));
        let mut found = Found {
            states: self.origins.len(),
            at_rest: self.at_rest,
            depth,
            steps_to_rest: 0,
            is_complete,
            broken,
        };
        if is_complete {
            match self.steps_to_rest() {
                Some(steps) => found.steps_to_rest = steps,
                None => found.broken = Some((Broken::Unbounded, Vec::new())),
            }
        }
        found
    }

    fn path(&self, mut state: u32, last: Option<usize>) -> Vec<Action> {
        let actions = self.model.actions();
        let mut path: Vec<Action> = last.map(|last| actions[last]).into_iter().collect();
        while state != 0 {
            let Origin { before, action } = self.origins[state as usize];
            path.push(actions[usize::from(action)]);
            state = before;
        }
        path.reverse();
        path
    }

    /// Length of the longest run of certain steps. `None` if one leads back to a state before it.
    fn steps_to_rest(&self) -> Option<usize> {
        let states = self.origins.len();
        let ahead = |state: usize| {
            let end = self.begins.get(state + 1).map_or(self.certain.len(), |end| *end as usize);
            &self.certain[self.begins[state] as usize..end]
        };
        let mut arrows = vec![0u32; states];
        self.certain.iter().for_each(|to| arrows[*to as usize] += 1);
        let mut ready: Vec<usize> = (0..states).filter(|state| arrows[*state] == 0).collect();
        let mut steps = vec![0u16; states];
        let mut done = 0;
        while let Some(state) = ready.pop() {
            done += 1;
            for to in ahead(state).iter().map(|to| *to as usize) {
                steps[to] = steps[to].max(steps[state] + 1);
                arrows[to] -= 1;
                if arrows[to] == 0 {
                    ready.push(to);
                }
            }
        }
        let longest = steps.iter().max().map_or(0, |steps| usize::from(*steps));
        (done == states).then_some(longest)
    }
}

/// Folds bytes into 64 bits, eight at a time.
#[derive(Default)]
struct Mixed {
    folded: u64,
    /// Bytes that are still to be folded, and their number.
    rest: u64,
    length: u32,
}

impl Mixed {
    fn fold(&mut self, word: u64) {
        let product =
            u128::from(self.folded ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        let mixed = product as u64 ^ (product >> 64) as u64;
        self.folded = mixed.rotate_left(23).wrapping_add(word);
    }
}

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, byte: u8) {
        self.rest = self.rest << 8 | u64::from(byte);
        self.length += 1;
        if self.length.is_multiple_of(8) {
            self.fold(self.rest);
        }
    }

    // Lengths of arrays and numbers of variants, all of them small.
    fn write_usize(&mut self, number: usize) {
        self.write_u8(number as u8);
    }

    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }

    fn finish(&self) -> u64 {
        let mut last = Self { ..*self };
        last.fold(self.rest);
        last.fold(u64::from(self.length));
        last.folded
    }
}

/// Takes a key that is mixed already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
