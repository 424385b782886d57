//! The limit on files and connections that this process may have open at one time.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Raises the limit as far as the system lets an ordinary user. Many systems begin with 1,024, for the sake of
/// programs that use `select`; a server with a connection for each client needs more. Returns the limit that holds
/// now.
///
/// # Errors
///
/// When the system refuses; the old limit holds then.
pub fn raise_limit() -> Result<rlim_t, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}
