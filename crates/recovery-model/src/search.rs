//! Exhaustive search, breadth first: the first path to a broken promise is a shortest one. It keeps 64 bits of each
//! state.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use crate::model::{self, Action};
use crate::promises;
use crate::settings::Settings;
use crate::state::State;

/// Result of a search.
#[derive(Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// True when all states were looked at.
    pub is_complete: bool,
    /// The broken promise, and the shortest path to it.
    pub broken: Option<Broken>,
}

type Broken = (&'static str, Vec<String>);

struct Search<'a> {
    rules: &'a Settings,
    actions: Vec<Action>,
    /// Numbers of the states, by 64 bits of each; and from which state and by which action each was reached.
    numbers: HashMap<u64, u32, FixedState>,
    origins: Vec<(u32, u8)>,
    /// States that certain steps lead to, one state after the other; and where each begins.
    certain: Vec<u32>,
    begins: Vec<usize>,
}

/// Looks at all states of a model, up to `states_max`, or until a promise is broken.
pub fn search(rules: &Settings, states_max: usize) -> Found {
    let mut search = Search {
        rules,
        actions: model::actions(rules),
        numbers: HashMap::default(),
        origins: vec![(0, 0)],
        certain: Vec::new(),
        begins: Vec::new(),
    };
    let mut level = vec![(0, State::begin(rules))];
    while !level.is_empty() && search.origins.len() < states_max {
        let mut next_level = Vec::new();
        for (number, state) in level {
            if let Some(broken) = search.expand(number, &state, &mut next_level) {
                return search.found(false, Some(broken));
            }
        }
        level = next_level;
    }
    search.found(level.is_empty(), None)
}

impl Search<'_> {
    /// Takes each possible step. Returns a broken promise, and the path to it.
    fn expand(
        &mut self,
        before: u32,
        state: &State,
        next_level: &mut Vec<(u32, State)>,
    ) -> Option<Broken> {
        let begin = self.certain.len();
        self.begins.push(begin);
        for number in 0..self.actions.len() {
            let Some(next) = model::after(self.rules, state, &self.actions[number]) else {
                continue;
            };
            if let Some(promise) = next.broken {
                let last = self.actions[number].name.clone();
                return Some((promise, [self.path(before), vec![last]].concat()));
            }
            let is_known = self.origins.len() as u32;
            let to = *self.numbers.entry(FixedState::default().hash_one(next)).or_insert(is_known);
            if to == is_known {
                self.origins.push((before, number as u8));
                next_level.push((to, next));
            }
            if self.actions[number].is_certain {
                self.certain.push(to);
            }
        }
        if self.certain.len() > begin {
            return None;
        }
        promises::at_rest(self.rules, state).map(|promise| (promise, self.path(before)))
    }

    fn found(self, is_complete: bool, broken: Option<Broken>) -> Found {
        let circle = ("each state comes to rest", Vec::new());
        let is_endless = is_complete && !self.comes_to_rest();
        let broken = broken.or(is_endless.then_some(circle));
        Found { states: self.origins.len(), is_complete, broken }
    }

    fn path(&self, mut state: u32) -> Vec<String> {
        let mut path = Vec::new();
        while state != 0 {
            let (before, action) = self.origins[state as usize];
            path.push(self.actions[usize::from(action)].name.clone());
            state = before;
        }
        path.reverse();
        path
    }

    /// False if certain steps lead back to a state before them.
    fn comes_to_rest(&self) -> bool {
        let mut arrows = vec![0u32; self.origins.len()];
        self.certain.iter().for_each(|to| arrows[*to as usize] += 1);
        let is_first = |state: &usize| arrows[*state] == 0;
        let mut ready: Vec<usize> = (0..arrows.len()).filter(is_first).collect();
        let mut done = 0;
        while let Some(state) = ready.pop() {
            done += 1;
            let end = self.begins.get(state + 1).copied().unwrap_or(self.certain.len());
            for to in self.certain[self.begins[state]..end].iter().map(|to| *to as usize) {
                arrows[to] -= 1;
                if arrows[to] == 0 {
                    ready.push(to);
                }
            }
        }
        done == arrows.len()
    }
}
