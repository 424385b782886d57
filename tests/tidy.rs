//! The laws of this repository, as tests: who may use whom, who owns what, and how everything is written.
//!
//! Each law is one test, and each complaint names the file, the line and what to do. A law that looks
//! for something has a second test beside it, which feeds it a violation: no test that can't fail.
//! Only the standard library is used, and nothing is run: the laws read the files.

/// What README and its sisters point to is there.
#[path = "tidy/documents.rs"]
mod documents;
/// How Rust is written here: no shortcuts, no long functions, no long files.
#[path = "tidy/habits.rs"]
mod habits;
/// A module uses only what stands below it in `src/lib.rs`.
#[path = "tidy/layers.rs"]
mod layers;
/// A Lua script's header agrees with its body.
#[path = "tidy/lua.rs"]
mod lua;
/// Every script, table and key has one owner.
#[path = "tidy/owners.rs"]
mod owners;
/// Planted bugs say what they are, and documents tell of exactly these.
#[path = "tidy/planted.rs"]
mod planted;
/// `.env.example` says what `base/config.rs` says.
#[path = "tidy/settings.rs"]
mod settings;
/// Reading the repository; no laws in here.
#[path = "tidy/source.rs"]
mod source;
/// Each `*.zh.md` keeps step with the document that it translates.
#[path = "tidy/translation.rs"]
mod translation;
/// `kit` and `base` speak of nothing that is sold.
#[path = "tidy/words.rs"]
mod words;
