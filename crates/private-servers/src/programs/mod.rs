//! Finds the servers' programs, and names all missing ones at once.

mod install;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::environment;
use crate::error::{PrivateServersError, io_error};
use install::{Machine, Missing};

/// The oldest Redis that is accepted, and its text.
const REDIS_FLOOR: Version = Version { major: 7, minor: 0 };
const REDIS_FLOOR_TEXT: &str = "7.0";

/// Folders that may hold programs.
#[derive(Debug)]
struct Places {
    /// The folders of PATH. Their programs were put there on purpose, so they are preferred.
    path: Vec<PathBuf>,
    /// The folders in which distributions and Homebrew keep the servers; Debian leaves `initdb` out of PATH.
    known: Vec<PathBuf>,
}

impl Places {
    /// This process' PATH and this machine's folders.
    fn of_this_machine() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut known =
            vec!["/usr/bin".into(), "/usr/local/bin".into(), "/opt/homebrew/bin".into()];
        known.extend(matching("/usr/lib/postgresql", "", "bin"));
        known.extend(matching("/usr", "pgsql-", "bin"));
        for homebrew in ["/opt/homebrew/opt", "/usr/local/opt"] {
            known.extend(matching(homebrew, "postgresql", "bin"));
        }
        // Children run with "/" as their folder, so a relative entry of PATH would mean something else to them.
        let path = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
        Self { path, known }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.path.iter().chain(&self.known)
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.all().map(|folder| folder.join(name)).find(|file| is_program(file))
    }
}

/// The programs of both servers.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) redis: PathBuf,
    pub(crate) postgres: PathBuf,
    pub(crate) initdb: PathBuf,
}

/// Finds all programs for the data folder `dir`. Only the version of Postgres that made its data can open it.
pub(crate) async fn find(dir: &Path) -> Result<Programs, PrivateServersError> {
    find_in(&Places::of_this_machine(), &Machine::this(), cluster(dir)?.as_ref()).await
}

async fn find_in(
    places: &Places,
    machine: &Machine,
    cluster: Option<&Cluster>,
) -> Result<Programs, PrivateServersError> {
    let redis = places.program("redis-server").or_else(|| places.program("valkey-server"));
    let installed = installed_postgres(places).await?;
    let (Some(redis), false) = (&redis, installed.is_empty()) else {
        return Err(missing(machine, redis.is_none(), installed.is_empty()));
    };
    check_redis(redis).await?;
    let bin = choose_postgres(&installed, cluster)?;
    Ok(Programs {
        redis: redis.clone(),
        postgres: bin.join("postgres"),
        initdb: bin.join("initdb"),
    })
}

/// The programs of Redis and of Postgres that would be started in `dir`, each with its version and its path.
pub(crate) async fn installed(dir: &Path) -> Result<(String, String), PrivateServersError> {
    let programs = find(dir).await?;
    Ok((described(&programs.redis).await?, described(&programs.postgres).await?))
}

async fn described(program: &Path) -> Result<String, PrivateServersError> {
    let said = version_text(program).await?;
    // Redis adds facts about its build.
    let version = said.split(" sha=").next().unwrap_or_default();
    Ok(format!("{version} ({})", program.display()))
}

/// Existing data of Postgres.
#[derive(Debug)]
struct Cluster {
    data: PathBuf,
    /// The content of its file PG_VERSION, such as "15".
    version: String,
}

/// The existing data of Postgres, if any.
fn cluster(dir: &Path) -> Result<Option<Cluster>, PrivateServersError> {
    let data = dir.join("postgres/data");
    let file = data.join("PG_VERSION");
    match fs::read_to_string(&file) {
        Ok(version) => Ok(Some(Cluster { data, version: version.trim().to_owned() })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("read", &file)(error)),
    }
}

/// One installation of Postgres.
#[derive(Debug)]
struct Postgres {
    bin: PathBuf,
    version: Version,
    in_path: bool,
}

/// A version, ordered by its numbers: 9.6 < 10.0 < 15.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

impl Version {
    /// The first "number.number" or "number" of a text such as "postgres (PostgreSQL) 15.14 (Debian 15.14-0)" or
    /// "Redis server v=7.0.15 sha=…" or "postgres (PostgreSQL) 18beta1".
    fn find_in(text: &str) -> Option<Self> {
        let start = text.find(|c: char| c.is_ascii_digit())?;
        let mut numbers = text[start..].split('.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().ok()
        });
        let major = numbers.next().flatten()?;
        Some(Self { major, minor: numbers.next().flatten().unwrap_or(0) })
    }
}

fn missing(machine: &Machine, redis: bool, postgres: bool) -> PrivateServersError {
    let (program, missing): (_, &[Missing]) = match (redis, postgres) {
        (true, true) => {
            ("the programs redis-server, postgres and initdb", &[Missing::Redis, Missing::Postgres])
        }
        (true, false) => ("the program redis-server", &[Missing::Redis]),
        _ => ("the programs postgres and initdb", &[Missing::Postgres]),
    };
    PrivateServersError::MissingProgram {
        program: program.to_owned(),
        install: machine.install_clause(missing),
    }
}

async fn check_redis(program: &Path) -> Result<(), PrivateServersError> {
    let said = version_text(program).await?;
    match Version::find_in(&said) {
        Some(version) if version >= REDIS_FLOOR => Ok(()),
        version => Err(PrivateServersError::TooOld {
            program: program.to_owned(),
            found: version.map_or(said, |version| format!("{}.{}", version.major, version.minor)),
            floor: REDIS_FLOOR_TEXT,
        }),
    }
}

async fn installed_postgres(places: &Places) -> Result<Vec<Postgres>, PrivateServersError> {
    let mut installed: Vec<Postgres> = Vec::new();
    for bin in places.all() {
        let is_complete = is_program(&bin.join("postgres")) && is_program(&bin.join("initdb"));
        if !is_complete || installed.iter().any(|known| known.bin == *bin) {
            continue;
        }
        // An installation that cannot tell its version is no candidate; another may be.
        if let Some(version) = Version::find_in(&version_text(&bin.join("postgres")).await?) {
            installed.push(Postgres {
                bin: bin.clone(),
                version,
                in_path: places.path.contains(bin),
            });
        }
    }
    Ok(installed)
}

/// Chooses an installation. With data: that of its version. Without: one in PATH, else the newest.
fn choose_postgres<'a>(
    installed: &'a [Postgres],
    cluster: Option<&Cluster>,
) -> Result<&'a Path, PrivateServersError> {
    let wanted = cluster.and_then(|cluster| Version::find_in(&cluster.version));
    let fits =
        |found: &&Postgres| wanted.is_none_or(|wanted| is_same_series(found.version, wanted));
    let best = installed.iter().filter(fits).max_by_key(|found| (found.in_path, found.version));
    match (best, cluster) {
        (Some(best), _) => Ok(&best.bin),
        (None, cluster) => Err(PrivateServersError::ClusterVersion {
            data: cluster.map(|cluster| cluster.data.clone()).unwrap_or_default(),
            version: cluster.map(|cluster| cluster.version.clone()).unwrap_or_default(),
        }),
    }
}

/// Versions that can open each other's data: before PostgreSQL 10 the second number counted as well.
fn is_same_series(a: Version, b: Version) -> bool {
    a.major == b.major && (a.major >= 10 || a.minor == b.minor)
}

async fn version_text(program: &Path) -> Result<String, PrivateServersError> {
    let output = Command::new(program)
        .arg("--version")
        .env_clear()
        .envs(environment::inherited(&[]))
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(io_error("run", program))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The folders `parent/<prefix>*/<child>`; none if there is no such parent.
fn matching(parent: &str, prefix: &str, child: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let fits = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    fits.map(|entry| entry.path().join(child)).collect()
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    fn installation(bin: &str, version: &str, in_path: bool) -> Postgres {
        Postgres {
            bin: bin.into(),
            version: Version::find_in(version).expect("a version"),
            in_path,
        }
    }

    fn cluster(version: &str) -> Cluster {
        Cluster { data: "/data".into(), version: version.to_owned() }
    }

    #[test]
    fn versions_are_read_and_ordered_as_numbers() {
        let versions = ["PostgreSQL 9.6.24", "v=10", "18beta1", "Redis server v=100.20 sha=0"];
        let read: Vec<_> =
            versions.iter().map(|text| Version::find_in(text).expect("a version")).collect();
        assert_eq!(
            read.iter().map(|v| (v.major, v.minor)).collect::<Vec<_>>(),
            [(9, 6), (10, 0), (18, 0), (100, 20)]
        );
        assert!(read.is_sorted());
        assert_eq!(Version::find_in("no number"), None);
    }

    #[test]
    fn redis_6_is_below_the_floor_and_7_is_not() {
        let version = |text| Version::find_in(text).expect("a version");
        assert!(version("Redis server v=6.2.7 sha=0") < REDIS_FLOOR);
        assert!(version("Redis server v=7.0.0 sha=0") >= REDIS_FLOOR);
        assert_eq!(REDIS_FLOOR_TEXT, format!("{}.{}", REDIS_FLOOR.major, REDIS_FLOOR.minor));
    }

    #[test]
    fn data_decides_the_version_then_path_then_the_newest() {
        let known = [
            installation("/9", "9.6", false),
            installation("/17", "17.2", false),
            installation("/15", "15.1", false),
        ];
        assert_eq!(choose_postgres(&known, None).expect("newest"), Path::new("/17"));
        assert_eq!(
            choose_postgres(&known, Some(&cluster("15"))).expect("matching"),
            Path::new("/15")
        );
        assert!(matches!(
            choose_postgres(&known, Some(&cluster("14"))),
            Err(PrivateServersError::ClusterVersion { version, .. }) if version == "14"
        ));
        let with_path = [installation("/17", "17.2", false), installation("/16", "16.1", true)];
        assert_eq!(choose_postgres(&with_path, None).expect("in path"), Path::new("/16"));
    }

    #[tokio::test]
    async fn an_empty_machine_misses_both_programs_in_one_sentence() {
        bound_this_test();
        let nowhere = Places { path: Vec::new(), known: Vec::new() };
        let error = find_in(&nowhere, &Machine::this(), None).await.expect_err("nothing is there");
        let text = error.to_string();
        assert!(text.contains("redis-server, postgres and initdb"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
}
