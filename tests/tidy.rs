//! The laws of this repository, as tests: uses between modules, owners, and the style of code and documents.
//!
//! Each law is one test, and each complaint names the file, the line and the remedy. A law that searches has a second
//! test beside it, which feeds it a violation, so that each law is seen to fail.
//! The laws read the files, and run none of the code.

/// Alerts, their sections and tests, and the metrics that they and the dashboard speak of.
#[path = "tidy/alarms.rs"]
mod alarms;
/// Imports run in no circle.
#[path = "tidy/circles.rs"]
mod circles;
/// Links and paths in documents and comments lead somewhere, and translations keep step.
#[path = "tidy/documents.rs"]
mod documents;
/// Style of Rust that clippy knows nothing of.
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
/// The table of promises names tests, faults and planted bugs that exist, and each patch applies.
#[path = "tidy/promises.rs"]
mod promises;
/// `.env.example` agrees with `base/config.rs`.
#[path = "tidy/settings.rs"]
mod settings;
/// Reading the repository; no laws in here.
#[path = "tidy/source.rs"]
mod source;
