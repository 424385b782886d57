//! Switches of the mutants. Only the copy that is built for mutation testing has this file, once in each crate.
//!
//! One process has one mutant on at most, and learns from its environment which:
//!
//! * `MUTANT_ON`: the number of a mutant in Rust;
//! * `MUTANT_TEXT`: a file with the number of a script or query in its first line, and the text that takes its place;
//! * `MUTANT_RECORD`: a file; the byte at a place's number becomes 1 when the place is reached. All processes of a test
//!   write to the same file, and at once, so what one of them has reached is known also if it is killed.
//!
//! None of them begins with `FLASH_SALE_`: tests clear those from their children's environment.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

const PLACES: usize = 0;

enum Mode {
    Off,
    On(u32),
    Text { number: u32, text: &'static str },
    Record(File),
}

static MODE: LazyLock<Mode> = LazyLock::new(Mode::of_environment);
static REACHED: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
static SCRIPTS: Mutex<Vec<(&'static str, u32)>> = Mutex::new(Vec::new());

impl Mode {
    fn of_environment() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(number) = variable("MUTANT_ON") {
            return Self::On(number.parse().expect("MUTANT_ON is a number"));
        }
        if let Some(path) = variable("MUTANT_TEXT") {
            let file = std::fs::read_to_string(path).expect("MUTANT_TEXT is a file");
            let (number, text) = file.split_once('\n').expect("its first line is a number");
            let number = number.parse().expect("its first line is a number");
            return Self::Text { number, text: String::leak(text.to_owned()) };
        }
        match variable("MUTANT_RECORD") {
            Some(path) => {
                let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
                Self::Record(file.expect("MUTANT_RECORD can be written"))
            }
            None => Self::Off,
        }
    }
}

fn reach(number: u32, file: &File) {
    if !REACHED[number as usize].swap(true, Ordering::Relaxed) {
        file.write_all_at(&[1], u64::from(number)).expect("MUTANT_RECORD can be written");
    }
}

/// Whether a mutant is on.
pub fn m(number: u32) -> bool {
    match &*MODE {
        Mode::On(on) => *on == number,
        Mode::Record(file) => {
            reach(number, file);
            false
        }
        Mode::Off | Mode::Text { .. } => false,
    }
}

/// A condition that one mutant takes for true, and another one for false; 0 for none.
pub fn f(value: bool, to_true: u32, to_false: u32) -> bool {
    let is_true = to_true > 0 && m(to_true);
    let is_false = to_false > 0 && m(to_false);
    (value || is_true) && !is_false
}

/// A script as it is loaded.
pub fn lua(number: u32, text: &'static str) -> &'static str {
    let text = match &*MODE {
        Mode::Text { number: changed, text: other } if *changed == number => *other,
        _ => text,
    };
    if let Mode::Record(_) = &*MODE {
        SCRIPTS.lock().expect("nothing panics with it").push((text, number));
    }
    text
}

/// A script is run.
pub fn ran(text: &str) {
    if let Mode::Record(file) = &*MODE {
        let scripts = SCRIPTS.lock().expect("nothing panics with it");
        for (_, number) in scripts.iter().filter(|(of, _)| std::ptr::eq(*of, text)) {
            reach(*number, file);
        }
    }
}
