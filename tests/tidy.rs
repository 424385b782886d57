//! The laws of this repository, as tests: uses between modules, owners, and the style of code and documents.
//!
//! Each law is one test, and each complaint names the file, the line and the remedy. A law that searches has a second
//! test beside it, which feeds it a violation, so that each law is seen to fail.
//! The laws use the standard library only; they read the files, and run none of the code.

/// Alerts, their sections and tests, and the metrics that they and the dashboard speak of.
#[path = "tidy/alarms.rs"]
mod alarms;
/// Imports run in no circle.
#[path = "tidy/circles.rs"]
mod circles;
/// Links and paths in documents and comments lead somewhere.
#[path = "tidy/documents.rs"]
mod documents;
/// Style of Rust: no shortcuts, no long functions, no full rooms of tests.
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
/// Planted bugs have a header, and stand beside a promise.
#[path = "tidy/planted.rs"]
mod planted;
/// `.env.example` agrees with `base/config.rs`.
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
