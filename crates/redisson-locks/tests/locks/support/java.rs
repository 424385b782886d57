//! Java's Redisson in a process of its own: `tests/locks/java`, built with Maven where Java is installed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// A JVM that starts on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Starts fast, shares no file with other JVMs, and writes its own warnings to standard error: standard output is the
/// peer's alone.
const JVM: [&str; 4] =
    ["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xlog:disable", "-Xlog:all=warning:stderr"];
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/locks/java");

/// A Redisson client. Killed when it is dropped.
pub struct Peer {
    process: Child,
    input: ChildStdin,
    answers: Mutex<Receiver<String>>,
}

impl Peer {
    /// Connects to the Redis on this port; leases that weren't asked for are this long. `None` where Java, Maven or the
    /// packages are missing, which is said on standard error whatever the test runner captures.
    pub fn start(port: u16, lease: Duration) -> Option<Self> {
        static BUILT: OnceLock<Option<String>> = OnceLock::new();
        let classpath = BUILT.get_or_init(build).as_ref()?;
        let mut command = Command::new("java");
        command.args(JVM).args(["-cp", classpath, "Peer"]);
        command.args([port.to_string(), lease.as_millis().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("java --version worked");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (tell, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        let peer = Self { process, input, answers: Mutex::new(answers) };
        assert_eq!(peer.answer(), "main ready");
        Some(peer)
    }

    /// Tells it to do something: "thread verb lock [milliseconds]".
    pub fn tell(&mut self, order: &str) {
        writeln!(self.input, "{order}").expect("it reads");
    }

    /// The next answer: "thread result".
    pub fn answer(&self) -> String {
        let answers = self.answers.lock().expect("no holder panics");
        answers.recv_timeout(PATIENCE).expect("it answers")
    }

    /// Tells it, and returns the result.
    pub fn does(&mut self, order: &str) -> String {
        self.tell(order);
        let answer = self.answer();
        let (thread, result) = answer.split_once(' ').expect("a thread and a result");
        assert_eq!(order.split(' ').next(), Some(thread), "{answer}");
        result.to_owned()
    }

    /// SIGKILL, and gone when this returns.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is our child");
        self.process.wait().expect("it is our child");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The class path, with everything on it; built anew when the sources are younger.
fn build() -> Option<String> {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("redisson");
    let classpath = out.join("classpath");
    if !is_built(&classpath) {
        for tool in ["java", "mvn"] {
            let answers = Command::new(tool).arg("-version").output();
            if !answers.is_ok_and(|output| output.status.success()) {
                return skip(&format!("{tool} is not installed"));
            }
        }
        if ![&["--offline"][..], &[]].iter().any(|how| maven(&out, how)) {
            return skip("Maven could not get Redisson's packages");
        }
    }
    let others = std::fs::read_to_string(&classpath).ok()?;
    Some(format!("{}:{}", out.join("classes").display(), others.trim()))
}

fn is_built(classpath: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified());
    let sources = [format!("{SOURCES}/pom.xml"), format!("{SOURCES}/src/main/java/Peer.java")];
    let others = std::fs::read_to_string(classpath).unwrap_or_default();
    changed(classpath).is_ok_and(|built| {
        sources.iter().all(|source| changed(Path::new(source)).is_ok_and(|changed| changed < built))
    }) && others.trim().split(':').all(|jar| Path::new(jar).exists())
}

fn maven(out: &Path, how: &[&str]) -> bool {
    let mut command = Command::new("mvn");
    command.args(["--quiet", "--batch-mode", "--file"]).arg(format!("{SOURCES}/pom.xml"));
    command.args(how).arg(format!("-Dout={}", out.display()));
    command.args(["compile", "dependency:build-classpath"]);
    command.arg(format!("-Dmdep.outputFile={}", out.join("classpath").display()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Past the test runner, which would show it only if the test failed.
fn skip(why: &str) -> Option<String> {
    let line =
        format!("\nSKIPPED, because {why}: the locks were not tried against Java's Redisson\n");
    std::io::stderr().write_all(line.as_bytes()).expect("there is a standard error");
    None
}
