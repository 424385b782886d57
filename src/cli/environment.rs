//! Rules for environment variables, applied to all settings at once. An empty variable counts as none. A secret may
//! stand in a file, whose path is in the variable with `_FILE` behind its name, as is usual in containers.

use std::env;
use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::{Arg, Command};

/// The command line with these rules applied.
pub fn applied(command: Command) -> Command {
    command.mut_args(by_rules).mut_subcommands(applied)
}

fn by_rules(argument: Arg) -> Arg {
    let Some(name) = argument.get_env().map(ToOwned::to_owned) else { return argument };
    if given(&name).is_some() {
        return argument;
    }
    let is_secret = argument.is_hide_env_values_set();
    // Clap would take the empty variable for a value.
    let argument = match env::var_os(&name) {
        Some(_) => argument.env(Resettable::Reset),
        None => argument,
    };
    let file = is_secret.then(|| given(&joined(&name, OsStr::new("_FILE")))).flatten();
    let Some(path) = file else { return argument };
    // Settings read a value that begins with `@` as a file (`base/secret.rs`). The parser keeps default values for the
    // life of the process.
    let value: &'static OsStr = Box::leak(joined(OsStr::new("@"), &path).into_boxed_os_str());
    argument.default_value(value).hide_default_value(true)
}

/// Whether the log is to be JSON, guessed from a command line that can't be parsed.
pub fn asks_for_json() -> bool {
    let mut words = env::args().skip_while(|word| !word.starts_with("--log-format"));
    let flag = words
        .next()
        .map(|word| word.ends_with("=json") || words.next().is_some_and(|word| word == "json"));
    flag.unwrap_or_else(|| {
        given(OsStr::new("FLASH_SALE_LOG_FORMAT")).is_some_and(|format| format == "json")
    })
}

fn given(name: &OsStr) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn joined(first: &OsStr, second: &OsStr) -> OsString {
    let mut joined = first.to_owned();
    joined.push(second);
    joined
}
