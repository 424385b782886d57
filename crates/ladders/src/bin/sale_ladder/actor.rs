//! A process of this program that plays a design, as the stage sees it.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::child::{GO, IN_HAND, READY, REST};
use crate::crowd::Summary;
use crate::scene::Task;

/// Longer than any answer takes; a design that takes longer hangs.
const HANGS: Duration = Duration::from_secs(900);

/// The process. Killed when it is dropped.
pub struct Actor {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    rung: String,
}

impl Actor {
    /// Starts it, and waits until it is ready.
    pub async fn start(task: &Task) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("play").arg(serde_json::to_string(task)?).kill_on_drop(true);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = process.stdin.take().context("piped")?;
        let output = BufReader::new(process.stdout.take().context("piped")?).lines();
        let mut actor = Self { process, input, output, rung: task.rung.clone() };
        let word = actor.hear().await?;
        ensure!(word == READY, "{}: {word} in place of {READY}", actor.rung);
        Ok(actor)
    }

    pub fn pid(&self) -> u32 {
        self.process.id().unwrap_or_default()
    }

    /// Sends the crowd, and does not wait for the answers.
    pub async fn begin(&mut self) -> anyhow::Result<()> {
        self.say(GO).await
    }

    /// The answers to the crowd.
    pub async fn answers(&mut self) -> anyhow::Result<Summary> {
        Ok(serde_json::from_str(&self.hear().await?)?)
    }

    pub async fn has_one_in_hand(&mut self) -> anyhow::Result<()> {
        self.say(IN_HAND).await?;
        self.hear().await.map(drop)
    }

    pub async fn rests(&mut self) -> anyhow::Result<()> {
        self.say(REST).await?;
        self.hear().await.map(drop)
    }

    /// SIGKILL; gone when this returns.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.process.kill().await?)
    }

    /// Ends it by closing its input.
    pub async fn end(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let status = timeout(HANGS, self.process.wait()).await;
        ensure!(
            status.with_context(|| format!("{} goes on", self.rung))??.success(),
            "{} failed",
            self.rung
        );
        Ok(())
    }

    async fn say(&mut self, word: &str) -> anyhow::Result<()> {
        Ok(self.input.write_all(format!("{word}\n").as_bytes()).await?)
    }

    async fn hear(&mut self) -> anyhow::Result<String> {
        let line = timeout(HANGS, self.output.next_line()).await;
        let line = line.with_context(|| format!("{} hangs", self.rung))??;
        line.with_context(|| format!("{} ended; its error stands above", self.rung))
    }
}
