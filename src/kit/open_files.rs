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
