//! The place of a server's socket.
//!
//! The socket is beside the server's data, if the kernel takes a path of that length and if the path is plain enough for a configuration
//! and a URL without quoting. Else in `/tmp/<name>-<uid>-<hash of the folder>/`, which must be a real folder of that user
//! with mode 0700: everyone may write to `/tmp`, so a folder of another user is refused.

use std::fs;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use super::paths::private_folder;
use crate::error::{PrivateServersError, io_error};

/// The bytes that `sockaddr_un` holds without its closing NUL (unix(7); 104 in all on macOS and the BSDs).
const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A folder for the socket `file` of a server that runs as user `uid` and has the private folder `home`. The name of a
/// folder in `/tmp` begins with `prefix`.
pub(crate) fn folder_for(
    home: &Path,
    file: &str,
    uid: u32,
    dir: &Path,
    prefix: &str,
) -> Result<PathBuf, PrivateServersError> {
    if fits(home, file) {
        return Ok(home.to_owned());
    }
    let short = PathBuf::from(format!("/tmp/{prefix}-{uid}-{}", short_hash(dir)));
    let is_new = !short.exists();
    private_folder(&short)?;
    if is_new && nix::unistd::geteuid().as_raw() != uid {
        lchown(&short, Some(uid), None).map_err(io_error("give away", &short))?;
    }
    check(&short, uid)?;
    Ok(short)
}

/// Sixteen hexadecimal digits that stand for a path: FNV-1a (RFC 9923), because it has to be the same in every build.
pub(crate) fn short_hash(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn fits(home: &Path, file: &str) -> bool {
    let path = home.join(file);
    let bytes = path.as_os_str().as_encoded_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    bytes.len() <= SOCKET_PATH_BYTES_MAX && bytes.iter().all(is_plain)
}

fn check(short: &Path, uid: u32) -> Result<(), PrivateServersError> {
    let found = fs::symlink_metadata(short).map_err(io_error("look at", short))?;
    if found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(PrivateServersError::Refused {
        path: short.to_owned(),
        why: format!(
            "it should be a folder of user {uid} with mode 0700 and is not; remove it and start again"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_stays_beside_its_data_up_to_the_kernels_limit() {
        let home = |bytes: usize| PathBuf::from(format!("/{}", "a".repeat(bytes - 1)));
        let name = "redis.sock";
        let longest = SOCKET_PATH_BYTES_MAX - name.len() - 1;
        assert!(fits(&home(longest), name));
        assert!(!fits(&home(longest + 1), name));
    }

    #[test]
    fn a_path_that_would_need_quoting_does_not_hold_a_socket() {
        for home in ["/a b", "/a,b", "/a'b", "/ä", "/a%20b"] {
            assert!(!fits(Path::new(home), "redis.sock"), "{home}");
        }
        assert!(fits(Path::new("/srv/.private-servers/redis_1"), "redis.sock"));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(short_hash(Path::new("a")), "af63dc4c8601ec8c");
        assert_eq!(short_hash(Path::new("foobar")), "85944171f73967e8");
    }
}
