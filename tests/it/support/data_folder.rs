//! A folder for private servers that are not thrown away: what is killed in it can be started again.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

/// A folder for private servers, deleted at the end together with whatever servers still use it.
pub struct DataFolder(PathBuf);

/// The lock that a server holds while it lives, and where its process id stands.
const SERVERS: [(&str, &str); 2] =
    [("redis.alive", "redis/redis.pid"), ("postgres.alive", "postgres/data/postmaster.pid")];

impl DataFolder {
    /// A name that nobody has; the folder is made by whoever uses it.
    pub fn new() -> Self {
        let name = format!("fs-it-{}", Uuid::new_v4().simple());
        Self(std::env::temp_dir().join(name))
    }

    /// This folder; it is made by whoever uses it.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path, as an argument.
    pub fn text(&self) -> &str {
        self.0.to_str().expect("made of plain characters")
    }

    /// One that is there already, with this mode.
    pub fn made(mode: u32) -> Self {
        let folder = Self::new();
        let made = DirBuilder::new().mode(mode).create(folder.path());
        made.expect("nobody has the name");
        folder
    }

    /// How many things lie in it.
    pub fn entries(&self) -> usize {
        fs::read_dir(&self.0).expect("it is there").count()
    }

    /// Process ids of Redis and Postgres, from their pid files.
    pub fn server_pids(&self) -> [i32; 2] {
        let pids = SERVERS.map(|(_, pid_file)| self.pid(pid_file));
        pids.map(|pid| pid.expect("a server that runs says so"))
    }

    fn pid(&self, pid_file: &str) -> Option<i32> {
        let text = fs::read_to_string(self.0.join(pid_file)).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Whether any server of the folder lives.
    pub fn has_servers(&self) -> bool {
        SERVERS.iter().any(|(alive, _)| self.is_held(alive))
    }

    /// Whether a server, or a child of it, lives.
    fn is_held(&self, alive: &str) -> bool {
        let lock = File::open(self.0.join(alive));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    }

    /// SIGKILL for every server that lives.
    pub fn kill_servers(&self) {
        for (alive, pid_file) in SERVERS {
            if let Some(pid) = self.pid(pid_file).filter(|_| self.is_held(alive)) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it lives, and it is ours");
            }
        }
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        self.kill_servers();
        // As root, Postgres' home may lie elsewhere, behind a link.
        let home = self.0.join("postgres");
        if home.is_symlink()
            && let Ok(target) = home.canonicalize()
        {
            let _ = fs::remove_dir_all(target);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}
