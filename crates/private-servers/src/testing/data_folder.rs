//! A data folder for private servers that a test kills and starts again.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use uuid::Uuid;

/// A folder for private servers. When it is dropped, its servers are killed and its files removed.
#[derive(Debug)]
pub struct DataFolder(PathBuf);

/// For each server, the lock that it holds while it lives and the file with its process id.
const SERVERS: [(&str, &str); 2] =
    [("redis.alive", "redis/redis.pid"), ("postgres.alive", "postgres/data/postmaster.pid")];

impl DataFolder {
    /// A new name in the system's temporary folder. The servers make the folder.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "each one is another folder")]
    pub fn new() -> Self {
        let name = format!("test-servers-{}", Uuid::new_v4().simple());
        Self(std::env::temp_dir().join(name))
    }

    /// This folder. The servers make it.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path, as an argument of a command.
    ///
    /// # Panics
    ///
    /// If the path is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.to_str().expect("made of plain characters")
    }

    /// A new folder with this mode.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    #[must_use]
    pub fn made(mode: u32) -> Self {
        let folder = Self::new();
        let made = DirBuilder::new().mode(mode).create(folder.path());
        made.expect("the name is new");
        folder
    }

    /// The number of files and folders in it.
    ///
    /// # Panics
    ///
    /// If there is no such folder.
    #[must_use]
    pub fn entries(&self) -> usize {
        fs::read_dir(&self.0).expect("the folder is there").count()
    }

    /// Process ids of Redis and Postgres, from their pid files.
    ///
    /// # Panics
    ///
    /// If one of them has written none.
    #[must_use]
    pub fn server_pids(&self) -> [i32; 2] {
        let pids = SERVERS.map(|(_, pid_file)| self.pid(pid_file));
        pids.map(|pid| pid.expect("a running server has a pid file"))
    }

    fn pid(&self, pid_file: &str) -> Option<i32> {
        let text = fs::read_to_string(self.0.join(pid_file)).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Whether any server of the folder lives.
    #[must_use]
    pub fn has_servers(&self) -> bool {
        SERVERS.iter().any(|(alive, _)| self.is_held(alive))
    }

    /// Whether a server, or a child of it, lives.
    fn is_held(&self, alive: &str) -> bool {
        let lock = File::open(self.0.join(alive));
        lock.is_ok_and(|lock| lock.try_lock_shared().is_err())
    }

    /// Kills every server that lives (SIGKILL).
    ///
    /// # Panics
    ///
    /// If a server belongs to another user.
    pub fn kill_servers(&self) {
        for (alive, pid_file) in SERVERS {
            if let Some(pid) = self.pid(pid_file).filter(|_| self.is_held(alive)) {
                kill(Pid::from_raw(pid), Signal::SIGKILL).expect("the server lives");
            }
        }
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        self.kill_servers();
        // As root, the home of Postgres may lie elsewhere, behind a link.
        let home = self.0.join("postgres");
        if home.is_symlink()
            && let Ok(target) = home.canonicalize()
        {
            let _ = fs::remove_dir_all(target);
        }
        let _ = fs::remove_dir_all(&self.0);
    }
}
