//! The limit on open files and connections of this process.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Raises the limit as far as the system allows an ordinary user, and returns the limit in force. Many systems begin
/// with 1,024 for the sake of programs that use `select`. A server with a connection per client needs more.
///
/// # Errors
///
/// When the system refuses. The old limit then stays.
pub fn raise_limit() -> Result<rlim_t, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_hard_one() {
        let limits = || getrlimit(Resource::RLIMIT_NOFILE).expect("the system tells it");
        let (first, hard) = limits();
        for soft in [hard, hard - 1] {
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("a lower limit is allowed");
            assert_eq!((raise_limit(), limits()), (Ok(hard), (hard, hard)));
        }
        setrlimit(Resource::RLIMIT_NOFILE, first, hard).expect("it was allowed before");
    }
}
