//! From the naive lock to the careful one, a rung at a time: each provokes its flaw for real, on private servers, prints
//! the effect, and gives the reason for another rung. The essay to it is `crates/redisson-locks/docs/locks.md`.
//!
//! ```text
//! cargo run -p redisson-locks --example lock_ladder                     # the tour, in about fifteen seconds
//! cargo run -p redisson-locks --example lock_ladder -- --check ESSAY    # and is that the output in the essay?
//! cargo run -p redisson-locks --example lock_ladder -- --write ESSAY    # put it there
//! ```
//!
//! Ends with an exit code other than 0 if a flaw doesn't show, or the essay shows something else.

mod database;
mod expiry;
mod lease;
mod ownership;
mod process;
mod scene;
mod several;
mod waiting;

use std::path::Path;

use anyhow::{Context, ensure};
use scene::Scene;

/// Lines around the output in the essay.
const BEGIN: &str = "<!-- the output of the ladder begins here -->\n```text\n";
const END: &str = "```\n<!-- and ends here -->";

/// The result of one rung.
pub struct Shown {
    /// The effect, which had to show.
    pub happened: String,
    /// The reason for another rung.
    pub therefore: &'static str,
}

impl Shown {
    fn new(happened: impl Into<String>, therefore: &'static str) -> anyhow::Result<Self> {
        Ok(Self { happened: happened.into(), therefore })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["child", role, rest @ ..] => process::child(role, rest).await,
        [] => climb().await.map(drop),
        ["--check", essay] => check(&climb().await?, Path::new(essay)),
        ["--write", essay] => write(&climb().await?, Path::new(essay)),
        _ => anyhow::bail!("give nothing, --check FILE or --write FILE"),
    }
}

/// Runs one rung after the other, and prints and returns their results.
async fn climb() -> anyhow::Result<String> {
    let scene = Scene::set().await?;
    let mut output = String::new();
    let mut number = 0;
    macro_rules! rung {
        ($title:literal, $run:path) => {
            number += 1;
            let shown = $run(&scene).await.context($title)?;
            let text = format!(
                "{number:2}. {}\n    {}\n    -> {}\n",
                $title, shown.happened, shown.therefore
            );
            print!("{text}");
            output.push_str(&text);
        };
    }
    rung!("a mutex in the process", process::mutex_in_the_process);
    rung!("a lock object made for each request", process::lock_for_each_request);
    rung!("a lock released before the commit", database::released_before_the_commit);
    rung!("a row lock in Postgres", database::row_lock);
    rung!("an advisory lock in Postgres", database::advisory_lock);
    rung!("SETNX without an expiry", expiry::setnx_alone);
    rung!("SETNX, then EXPIRE", expiry::setnx_then_expire);
    rung!("SETNX and EXPIRE in MULTI", expiry::setnx_and_expire_in_multi);
    rung!("time stamps and GETSET", expiry::getset_with_time_stamps);
    rung!("time stamps and DEL", expiry::two_deletes);
    rung!("SETNX and EXPIRE in one script", expiry::a_script_that_fails_half_way);
    rung!("SET NX PX with a fixed value, and DEL", ownership::fixed_value);
    rung!("a random value, GET and then DEL", ownership::get_then_delete);
    rung!("a random value, compared and deleted in one script", ownership::compare_and_delete);
    rung!("polling, up to a limit", waiting::polling);
    rung!("waiting to be told", waiting::waiting_to_be_told);
    rung!("a lease that ends while the work goes on", lease::ends_while_working);
    rung!("a lease that was asked for", lease::asked_for);
    rung!("a lease that is renewed", lease::renewed);
    rung!("a lock that its own holder waits for", lease::not_re_entrant);
    rung!("a fail-over to a replica", several::fail_over);
    rung!("Redlock over five servers", several::redlock);
    rung!("a pause after the lock was taken", several::pause_defeats_redlock);
    rung!("a fencing token at the resource", several::fencing_token);
    scene.strike().await?;
    Ok(output)
}

fn parts(text: &str) -> anyhow::Result<(&str, &str, &str)> {
    let (before, rest) = text.split_once(BEGIN).context("the essay has no place for the output")?;
    let (output, after) = rest.split_once(END).context("the output in the essay has no end")?;
    Ok((before, output, after))
}

fn check(output: &str, essay: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(essay)?;
    let shown = parts(&text)?.1;
    ensure!(
        without_numbers(shown) == without_numbers(output),
        "{} shows something else; run with --write {0}",
        essay.display()
    );
    println!("{} shows the same", essay.display());
    Ok(())
}

fn write(output: &str, essay: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(essay)?;
    let (before, _, after) = parts(&text)?;
    Ok(std::fs::write(essay, format!("{before}{BEGIN}{output}{END}{after}"))?)
}

/// Times and counts differ from run to run.
fn without_numbers(text: &str) -> String {
    text.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect()
}
