//! Java's Redisson, driven over its standard input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::{Measured, PERIOD, Servers};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/locks/java");

pub struct Java {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// `None` where something is missing.
pub fn start(port: u16) -> anyhow::Result<Option<Java>> {
    let out = std::env::temp_dir().join("redisson-locks-peer");
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file", &format!("{SOURCES}/pom.xml")]);
    maven.arg(format!("-Dout={}", out.display())).args(["compile", "dependency:build-classpath"]);
    maven.arg(format!("-Dmdep.outputFile={}", out.join("classpath").display()));
    if !maven.stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let others = std::fs::read_to_string(out.join("classpath"))?;
    let mut java = Command::new("java");
    java.arg("-cp").arg(format!("{}:{}", out.join("classes").display(), others.trim()));
    java.args(["Peer", &port.to_string(), "2000"]);
    let mut process =
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let input = process.stdin.take().context("piped")?;
    let output = BufReader::new(process.stdout.take().context("piped")?);
    let mut java = Java { process, input, output };
    java.answer()?;
    // Until it has been compiled.
    for _ in 0..2 {
        java.turns(1)?;
        java.turns(64)?;
    }
    Ok(Some(java))
}

impl Java {
    pub async fn measure(
        &mut self,
        servers: &Servers,
        contenders: usize,
    ) -> anyhow::Result<Measured> {
        let client = self.cpu()?;
        let redis = servers.cpu().await?;
        let began = Instant::now();
        let pairs = self.turns(contenders)?;
        let took = began.elapsed();
        Ok(Measured {
            pairs,
            took,
            client: self.cpu()? - client,
            servers: servers.cpu().await? - redis,
        })
    }

    /// Number of pairs that so many threads have done.
    fn turns(&mut self, threads: usize) -> anyhow::Result<u64> {
        writeln!(self.input, "main crowd lock-of-java {} {threads}", PERIOD.as_millis())?;
        Ok(self.answer()?.parse()?)
    }

    fn answer(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "Java ended");
        let (_, result) = line.trim().split_once(' ').context("a thread and a result")?;
        Ok(result.to_owned())
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        let (_, fields) = stat.rsplit_once(')').context("a line of /proc")?;
        let ticks: Vec<u64> =
            fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
        // A hundred a second, on every Linux that there is.
        Ok(Duration::from_millis(10 * ticks.iter().sum::<u64>()))
    }
}

impl Drop for Java {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
