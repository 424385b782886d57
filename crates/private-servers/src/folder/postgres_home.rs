//! The home of Postgres, and its user.
//!
//! Postgres and initdb refuse to run as root. For root they run as the owner of the existing data, else as
//! `postgres`, else as `nobody`; and that user has to reach the folder. Where it cannot (anything below `/root`), the
//! home is made in `/var/lib/<name>/`, and `<dir>/postgres` becomes a symbolic link to it.
//!
//! The link decides, not the name of what it leads to: a folder that was removed and made anew starts with a new
//! home, as a folder elsewhere would start with empty data. The target of the old link is left alone.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::unistd::{User, geteuid};
use tokio::process::Command;

use super::lock::Folder;
use super::paths::private_folder;
use super::sockets::short_hash;
use crate::environment;
use crate::error::{PrivateServersError, io_error};

/// The user of a server, where that is not the user of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The folder that holds Postgres' data and, if its path is short enough, the socket.
#[derive(Debug)]
pub(crate) struct PostgresHome {
    /// Canonical, as it stands in the server's command line.
    pub(crate) path: PathBuf,
    /// None: the server runs as the user of this process.
    pub(crate) user: Option<ServerUser>,
}

impl PostgresHome {
    /// Finds or makes the home of a folder. Root makes homes for another user in `homes`.
    pub(crate) async fn open(folder: &Folder, homes: &Path) -> Result<Self, PrivateServersError> {
        let place = folder.dir().join("postgres");
        if !geteuid().is_root() {
            private_folder(&place)?;
            return Ok(Self { path: canonical(&place)?, user: None });
        }
        let user = user_for_root(&place)?;
        if place.exists() || !place.is_symlink() {
            make(&place, user)?;
            // Behind a link, the way to the target counts and not the way to the link.
            let path = canonical(&place)?;
            if is_reachable(&path, user).await? {
                return Ok(Self { path, user: Some(user) });
            }
            give_up(&place)?;
        }
        let path = move_elsewhere(folder.dir(), &place, homes, user)?;
        Ok(Self { path, user: Some(user) })
    }

    /// The user id that the server runs with.
    pub(crate) fn uid(&self) -> u32 {
        self.user.map_or_else(|| geteuid().as_raw(), |user| user.uid)
    }
}

fn user_for_root(place: &Path) -> Result<ServerUser, PrivateServersError> {
    if let Ok(data) = fs::metadata(place.join("data"))
        && data.uid() != 0
    {
        return Ok(ServerUser { uid: data.uid(), gid: data.gid() });
    }
    for name in ["postgres", "nobody"] {
        if let Ok(Some(user)) = User::from_name(name) {
            return Ok(ServerUser { uid: user.uid.as_raw(), gid: user.gid.as_raw() });
        }
    }
    Err(PrivateServersError::Refused {
        path: place.to_owned(),
        why: "Postgres does not run as root, and this machine has neither a user postgres nor a user nobody; \
              create one, or run this program as another user"
            .to_owned(),
    })
}

fn make(home: &Path, user: ServerUser) -> Result<(), PrivateServersError> {
    private_folder(home)?;
    let found = fs::symlink_metadata(home).map_err(io_error("look at", home))?;
    if found.is_dir() && found.uid() != user.uid {
        lchown(home, Some(user.uid), Some(user.gid)).map_err(io_error("give away", home))?;
    }
    Ok(())
}

/// Makes room for a link where the user of Postgres cannot go. Only an empty folder is removed: data is never moved.
fn give_up(place: &Path) -> Result<(), PrivateServersError> {
    fs::remove_dir(place).map_err(|_| PrivateServersError::Refused {
        path: place.to_owned(),
        why: "it is not empty, and the user of Postgres cannot reach it; make every folder on the \
              way to it searchable for that user (chmod o+x), or choose another folder"
            .to_owned(),
    })
}

/// Asks the kernel, as that user: mode bits alone do not decide (access control lists, mounts).
async fn is_reachable(home: &Path, user: ServerUser) -> Result<bool, PrivateServersError> {
    let status = Command::new("test")
        .arg("-w")
        .arg(home)
        .env_clear()
        .envs(environment::inherited(&[]))
        .uid(user.uid)
        .gid(user.gid)
        .current_dir("/")
        .stdin(Stdio::null())
        .status()
        .await
        .map_err(io_error("run `test -w` on", home))?;
    Ok(status.success())
}

/// Makes a home in `homes` and the link to it. The link comes first: after a kill in between, it names the home to make.
fn move_elsewhere(
    dir: &Path,
    place: &Path,
    homes: &Path,
    user: ServerUser,
) -> Result<PathBuf, PrivateServersError> {
    fs::create_dir_all(homes).map_err(io_error("create", homes))?;
    fs::set_permissions(homes, fs::Permissions::from_mode(0o711))
        .map_err(io_error("change the mode of", homes))?;
    if !place.is_symlink() {
        let hash = short_hash(dir);
        let names = (1_u32..)
            .map(|n| homes.join(if n == 1 { hash.clone() } else { format!("{hash}-{n}") }));
        let target =
            names.into_iter().find(|name| !name.exists()).unwrap_or_else(|| homes.join(&hash));
        symlink(&target, place).map_err(io_error("link", place))?;
    }
    let target = fs::read_link(place).map_err(io_error("follow", place))?;
    make(&target, user)?;
    tracing::info!(
        home = %target.display(),
        "the user of Postgres cannot reach the data folder: its data is kept elsewhere, behind a link"
    );
    canonical(&target)
}

fn canonical(path: &Path) -> Result<PathBuf, PrivateServersError> {
    path.canonicalize().map_err(io_error("find", path))
}
