//! The lock of the data folder, and the notice in its file that tells guests the addresses of the servers.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::paths::private_folder;
use crate::error::{PrivateServersError, io_error};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::{Pid, geteuid};

/// Time for which a lock without a living owner's notice is tried again: an owner writes its id at once, and a guest's
/// look at the lock (see [`has_owner`]) holds it for microseconds.
const LOCK_WITHIN: Duration = Duration::from_secs(3);
const LOCK_POLL: Duration = Duration::from_millis(20);

/// A folder that this process holds the lock of.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: PathBuf,
    lock: File,
}

/// Process ids of both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIds {
    /// The Redis (or Valkey) server.
    pub redis: u32,
    /// The first process of Postgres, which takes the signals.
    pub postgres: u32,
}

/// Facts about running servers, as they stand in the lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) process_ids: ProcessIds,
    pub(crate) redis_url: String,
    pub(crate) database_url: String,
}

impl Folder {
    /// Creates the folder if need be, checks its owner, and takes its lock.
    pub(crate) async fn open(dir: &Path) -> Result<Self, PrivateServersError> {
        fs::create_dir_all(dir.parent().unwrap_or(dir)).map_err(io_error("create", dir))?;
        private_folder(dir)?;
        let dir = dir.canonicalize().map_err(io_error("find", dir))?;
        check_owner(&dir)?;
        let lock = lock(&dir).await?;
        let ignore = dir.join(".gitignore");
        if !ignore.exists() {
            fs::write(&ignore, "*\n").map_err(io_error("write", &ignore))?;
        }
        Ok(Self { dir, lock })
    }

    /// The folder in canonical form, as it stands in the servers' command lines.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Tells guests the addresses of the servers.
    pub(crate) fn write_notice(&self, notice: &Notice) -> Result<(), PrivateServersError> {
        self.write(&notice.to_text()).map_err(io_error("write", &self.dir.join("lock")))
    }

    /// Leaves the lock file empty: the servers are gone.
    pub(crate) fn withdraw_notice(&self) -> Result<(), PrivateServersError> {
        self.lock.set_len(0).map_err(io_error("write", &self.dir.join("lock")))
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        let mut lock = &self.lock;
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(format!("owner {}\n{text}", std::process::id()).as_bytes())
    }
}

impl Notice {
    fn to_text(&self) -> String {
        let ProcessIds { redis, postgres } = self.process_ids;
        format!("redis {redis} {}\npostgres {postgres} {}\n", self.redis_url, self.database_url)
    }

    /// None while the text is not complete: it ends with a newline.
    fn of_text(text: &str) -> Option<Self> {
        let server = |name: &str| {
            let line = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let (pid, url) = line
                .filter_map(|line| line.trim_end().strip_prefix(name))
                .next()?
                .split_once(' ')?;
            Some((pid.parse().ok()?, url.to_owned()))
        };
        let (redis, redis_url) = server("redis ")?;
        let (postgres, database_url) = server("postgres ")?;
        Some(Self { process_ids: ProcessIds { redis, postgres }, redis_url, database_url })
    }
}

/// Whether a live process holds the folder's lock. Takes it for a moment if not.
pub(crate) fn has_owner(dir: &Path) -> Result<bool, PrivateServersError> {
    let path = dir.join("lock");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    // Shared, so that guests that look at the same moment do not take each other for an owner.
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(io_error("lock", &path)(error)),
    }
}

/// The notice of the folder's owner, if it is complete.
pub(crate) fn read_notice(dir: &Path) -> Result<Option<Notice>, PrivateServersError> {
    let path = dir.join("lock");
    let text = fs::read_to_string(&path).map_err(io_error("read", &path))?;
    Ok(Notice::of_text(&text))
}

fn check_owner(dir: &Path) -> Result<(), PrivateServersError> {
    if dir.to_str().is_none() {
        let why = "its path is not UTF-8; choose another folder".to_owned();
        return Err(PrivateServersError::Refused { path: dir.to_owned(), why });
    }
    make_private(dir)?;
    let found = fs::metadata(dir).map_err(io_error("look at", dir))?;
    // The user of Postgres has to pass through.
    if geteuid().is_root() && found.mode() & 0o001 == 0 {
        let passable = Permissions::from_mode(found.mode() & 0o7777 | 0o001);
        fs::set_permissions(dir, passable).map_err(io_error("change the mode of", dir))?;
    }
    Ok(())
}

/// Takes the right to read and to write in this folder from all users but its owner, if there is such a folder.
///
/// # Errors
///
/// When the folder belongs to another user, who could have planted what is believed here, also for root; or when it holds
/// files of other programs: their users may need that right.
pub fn make_private(dir: &Path) -> Result<(), PrivateServersError> {
    const OTHERS: u32 = 0o066;
    let found = match fs::metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.map_err(io_error("look at", dir))?,
    };
    let me = geteuid();
    if found.uid() != me.as_raw() {
        let why = format!(
            "it belongs to user {}, and this is user {me}; choose another folder",
            found.uid()
        );
        return Err(PrivateServersError::Refused { path: dir.to_owned(), why });
    }
    if found.mode() & OTHERS == 0 {
        return Ok(());
    }
    let empty = fs::read_dir(dir).map_err(io_error("read", dir))?.next().is_none();
    if !empty && !dir.join("lock").exists() {
        let why = "other users may read it or write to it, and it holds other files; choose a folder of its own, or `chmod 700` it";
        return Err(PrivateServersError::Refused { path: dir.to_owned(), why: why.to_owned() });
    }
    let private = Permissions::from_mode(found.mode() & 0o7777 & !OTHERS);
    fs::set_permissions(dir, private).map_err(io_error("change the mode of", dir))
}

/// True if a process has this id. A process that has ended counts until its parent has waited for it.
fn exists(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else {
        return false;
    };
    // EPERM: there is one, of another user.
    pid > 0 && kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH)
}

/// Takes the lock and writes the id of this process into it. Another owner that lives is believed at once. A lock whose
/// file names no live process is just being taken or looked at, and is tried again. So is one that this process has just
/// given up: a process that it starts at that moment has the file, too, until it runs its program.
async fn lock(dir: &Path) -> Result<File, PrivateServersError> {
    let path = dir.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = options.open(&path).map_err(io_error("open", &path))?;
    let deadline = Instant::now() + LOCK_WITHIN;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(io_error("lock", &path)(error)),
            Err(TryLockError::WouldBlock) => {}
        }
        let owner = owner(&mut file);
        let is_another = |owner: u32| owner != std::process::id() && exists(owner);
        if owner.is_some_and(is_another) || Instant::now() > deadline {
            return Err(PrivateServersError::InUse { dir: dir.to_owned(), pid: owner });
        }
        sleep(LOCK_POLL).await;
    }
    let folder = Folder { dir: dir.to_owned(), lock: file };
    folder.write("").map_err(io_error("write", &path))?;
    Ok(folder.lock)
}

fn owner(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.read_to_string(&mut text).ok()?;
    text.lines().next()?.strip_prefix("owner ")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_exists() {
        assert!(exists(std::process::id()));
        assert!(!exists(0) && !exists(u32::MAX));
    }

    #[test]
    fn a_notice_is_read_back_and_half_of_one_is_none() {
        let notice = Notice {
            process_ids: ProcessIds { redis: 7, postgres: 8 },
            redis_url: "redis+unix:///a/redis.sock".to_owned(),
            database_url: "postgres://x@localhost/x?host=%2Fa&sslmode=disable".to_owned(),
        };
        let text = format!("owner 1\n{}", notice.to_text());
        assert_eq!(Notice::of_text(&text), Some(notice));
        assert_eq!(Notice::of_text(text.trim_end()), None);
        assert_eq!(Notice::of_text("owner 1\n"), None);
    }
}
