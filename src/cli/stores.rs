//! Opening the stores: servers that the user names, or private ones.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use nix::unistd::geteuid;
use private_servers::{PrivateServers, PrivateServersError, Sync, make_private};
use secrecy::{ExposeSecret, SecretString};
use sqlx::PgPool;
use uuid::Uuid;

use crate::base::config::{InvalidConfig, StoreConfig, validate_secret};
use crate::base::limits;
use crate::base::secret::Secret;
use crate::cli::remedies::IN_URLS;
use crate::cli::terminal::say;
use crate::kit::private_servers::settings;
use crate::store::fleet::{Fleet, each_url};
use crate::store::ids::Lane;
use crate::store::keys::Keys;
use crate::store::postgres;
use crate::store::redis::facts::ServerFacts;
use crate::store::redis::{Redis, is_foreign};
use crate::store::rights;
use crate::store::schema::{self, Fitness};
use crate::store::{REMEDY_OTHER_INSTALLATION, Stores, installation};

/// Message of a process with named servers and no token secret.
pub const NO_TOKEN_SECRET: &str = "--token-secret (FLASH_SALE_TOKEN_SECRET) is missing: it proves every user's identity, so there is no default; `openssl rand -hex 32` makes a good one";

const POSTGRES_UNUSABLE: &str = "Postgres (--database-url) can't be used";

/// Flags by which a user can do without the private servers.
pub const WAYS_OUT: &str = "--data-dir names another folder for private servers, --redis-url and --database-url name servers of your own";

/// Stores that have been checked, and the private servers behind them, if any.
pub struct OpenStores {
    pub stores: Stores,
    /// Facts about the servers of Redis that answer.
    pub redis_facts: Vec<ServerFacts>,
    servers: Option<PrivateServers>,
}

/// How a process uses the data folder of private servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// A service: the data folder is for this process alone.
    Service,
    /// A short command: uses the servers of a running service, if there are any.
    Guest,
}

impl OpenStores {
    /// Starts private servers if no others are named, and refuses stores that the service can't work with. A short
    /// command accepts a Redis that a service refuses.
    pub async fn open(config: &StoreConfig, r#as: As) -> anyhow::Result<Self> {
        let Some((redis_url, database_url)) = urls(config)? else {
            let servers = start_private(&config.data_dir, r#as).await?;
            let (fleet, pool) = connect(servers.redis_url(), servers.database_url(), config)?;
            let opened = async {
                migrate_older(&pool).await?;
                checked(fleet, pool, config, r#as).await
            };
            return match opened.await {
                Ok((stores, redis_facts)) => {
                    Ok(Self { stores, redis_facts, servers: Some(servers) })
                }
                Err(error) => {
                    servers.stop().await?;
                    Err(error)
                }
            };
        };
        let (fleet, pool) =
            connect(redis_url.expose_secret(), database_url.expose_secret(), config)?;
        postgres::check_connection(&pool).await.context(POSTGRES_UNUSABLE)?;
        if let Some(why) = unfit(&pool).await? {
            bail!(why);
        }
        let (stores, redis_facts) = checked(fleet, pool, config, r#as).await?;
        Ok(Self { stores, redis_facts, servers: None })
    }

    /// Whether the servers are private ones that this process has started, so that nobody else needs them.
    pub fn are_own(&self) -> bool {
        self.servers.as_ref().is_some_and(|servers| !servers.is_guest())
    }

    /// Closes the connections, and stops private servers that this process has started.
    pub async fn close(self) -> anyhow::Result<()> {
        postgres::close(&self.stores.pool).await;
        match self.servers {
            Some(servers) => Ok(servers.stop().await?),
            None => Ok(()),
        }
    }
}

/// Opens the stores for a short command, acts on them, and closes them. Uses the private servers of a running service,
/// if there is one.
pub async fn as_guest<T>(
    config: &StoreConfig,
    act: impl AsyncFnOnce(&Stores) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let opened = OpenStores::open(config, As::Guest).await?;
    let done = act(&opened.stores).await;
    let closed = opened.close().await;
    let done = done?;
    closed.map(|()| done)
}

/// Brings the database up to date; needs no Redis if Postgres is named.
pub async fn migrate(config: &StoreConfig) -> anyhow::Result<()> {
    match &config.database_url {
        Some(url) => {
            migrate_older(&pool(url.expose_secret(), config)?).await?;
        }
        // Private servers are migrated whenever they are opened.
        None => as_guest(config, async |_| Ok(())).await?,
    }
    say!("The database is up to date.");
    Ok(())
}

/// The secret that signs tokens. With private servers and no secret given, one is made and kept in the data folder.
pub fn token_secret(config: &StoreConfig) -> anyhow::Result<SecretString> {
    config.validate_tokens()?;
    if let Some(secret) = &config.token_secret {
        validate_secret(secret)?;
        return Ok(secret.expose_secret().into());
    }
    if !config.private_servers()? {
        return Err(InvalidConfig::new(NO_TOKEN_SECRET).into());
    }
    kept_secret(&config.data_dir, "token-secret", "delete it for a new one")
}

/// The secret that a data folder keeps in this file; made if the file is missing. `remedy` is for a damaged file.
fn kept_secret(dir: &Path, name: &str, remedy: &str) -> anyhow::Result<SecretString> {
    make_private(dir)?;
    let path = dir.join(name);
    if !path.exists() {
        make_secret(dir, &path).with_context(|| format!("{} can't be made", path.display()))?;
    }
    let about = std::fs::metadata(&path);
    let is_ours =
        |about: &std::fs::Metadata| about.uid() == geteuid().as_raw() && about.mode() & 0o077 == 0;
    if !about.as_ref().is_ok_and(is_ours) {
        bail!(
            "{} isn't this user's alone (mode 0600), so another one may have written it; {remedy}",
            path.display()
        );
    }
    let secret = std::fs::read_to_string(&path)
        .with_context(|| format!("{} can't be read", path.display()))?;
    let secret = SecretString::from(secret.trim());
    if secret.expose_secret().len() < limits::SECRET_BYTES_MIN {
        bail!("{} is damaged; {remedy}", path.display());
    }
    Ok(secret)
}

/// Writes the secret under another name first, so that no process reads half of it, and then links it. Of several
/// processes that do this at a time, the first one's secret stays.
fn make_secret(dir: &Path, path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let draft = path.with_extension(Uuid::new_v4().simple().to_string());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(random_secret().expose_secret().as_bytes())?;
    file.sync_all()?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Two random UUIDs: 244 random bits, as 64 hexadecimal digits.
pub fn random_secret() -> SecretString {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()).into()
}

/// URLs of the named servers; `None` for private ones.
pub fn urls(config: &StoreConfig) -> Result<Option<(&Secret, &Secret)>, InvalidConfig> {
    if config.private_servers()? {
        return Ok(None);
    }
    Ok(config.redis_url.as_ref().zip(config.database_url.as_ref()))
}

async fn start_private(dir: &Path, r#as: As) -> anyhow::Result<PrivateServers> {
    if r#as == As::Guest
        && let Some(servers) = PrivateServers::join(dir).await.map_err(with_ways_out)?
    {
        return Ok(servers);
    }
    PrivateServers::start(dir, &settings(Sync::Durable)).await.map_err(with_ways_out)
}

/// Adds [`WAYS_OUT`] to a failure of private servers.
pub fn with_ways_out(error: PrivateServersError) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("private servers can't be used ({WAYS_OUT})"))
}

/// Makes the clients of the servers. Connects to none yet.
pub fn connect(
    redis_url: &str,
    database_url: &str,
    config: &StoreConfig,
) -> anyhow::Result<(Fleet, PgPool)> {
    let servers = match redis_url.contains("+cluster://") {
        true => vec![cluster(redis_url, config)?],
        false => each_url(redis_url).map(|url| redis(url, config)).collect::<Result<_, _>>()?,
    };
    if servers.len() > 1 && !config.redis_sentinels.is_empty() {
        return Err(InvalidConfig::new(
            "--redis-url names several servers, and --redis-sentinels watch one master: give one of the two",
        )
        .into());
    }
    Ok((Fleet::new(servers), pool(database_url, config)?))
}

// The URL isn't quoted, because it may hold a password.
fn redis(url: &str, config: &StoreConfig) -> Result<Redis, InvalidConfig> {
    let timeout = config.redis_timeout();
    if config.redis_sentinels.is_empty() {
        return Redis::with_timeout(url, timeout).map_err(|_| {
            InvalidConfig::new(format!(
                "--redis-url can't be understood; give one like redis://user:password@host:6379, rediss:// with sslrootcert=/path of a file that can be read; {IN_URLS}"
            ))
        });
    }
    Redis::behind_sentinels(url, &config.redis_sentinels, timeout).map_err(|_| {
        InvalidConfig::new(
            "--redis-url doesn't fit --redis-sentinels, which name the host and the port: give the master's name in place of both, as in redis://user:password@mymaster/0 (rediss:// for TLS), and no Unix socket",
        )
    })
}

fn cluster(url: &str, config: &StoreConfig) -> Result<Redis, InvalidConfig> {
    if !config.redis_sentinels.is_empty() {
        return Err(InvalidConfig::new(
            "--redis-url names a cluster, which elects its masters itself: leave --redis-sentinels away",
        ));
    }
    Redis::in_cluster(url, &Lane::numbered(0).to_string(), config.redis_timeout()).map_err(|_| {
        InvalidConfig::new(format!(
            "--redis-url can't be understood; a cluster is named as redis+cluster://user:password@host:6379,host:6379 (rediss+cluster:// for TLS), with no database; {IN_URLS}"
        ))
    })
}

fn pool(database_url: &str, config: &StoreConfig) -> Result<PgPool, InvalidConfig> {
    let timeout = config.database_timeout();
    let (connections, events) = (config.database_connections, config.events);
    postgres::pool(database_url, connections, timeout, events).map_err(|_| {
        InvalidConfig::new(format!(
            "--database-url can't be understood; give one like postgres://user:password@host/database; {IN_URLS}"
        ))
    })
}

/// Why a service can't work with this database, and the remedy: migrations are missing or unknown, or rights are
/// missing. `None` if it can.
pub async fn unfit(pool: &PgPool) -> anyhow::Result<Option<String>> {
    let fitness = schema::fitness(pool).await.context(POSTGRES_UNUSABLE)?;
    if let Fitness::Older(missing) = &fitness {
        let missing = missing.join(", ");
        return Ok(Some(format!(
            "the database lacks these migrations: {missing}; run `flash-sale migrate`"
        )));
    }
    if let Some(why) = unknown(&fitness) {
        return Ok(Some(why));
    }
    let missing = schema::missing_rights(pool).await.context(POSTGRES_UNUSABLE)?;
    Ok((!missing.is_empty()).then(|| {
        let missing = missing.join(", ");
        format!("the role of --database-url lacks rights ({missing}); deploy/postgres/roles.sql gives them")
    }))
}

/// Brings a database up to date, unless a newer version has upgraded it, or a version before 1.0 has made it.
async fn migrate_older(pool: &PgPool) -> anyhow::Result<()> {
    postgres::check_connection(pool).await.context(POSTGRES_UNUSABLE)?;
    if let Some(why) = unknown(&schema::fitness(pool).await.context(POSTGRES_UNUSABLE)?) {
        bail!(why);
    }
    schema::migrate(pool).await.context("the database could not be migrated")
}

/// The message about a database that this version can't read.
fn unknown(fitness: &Fitness) -> Option<String> {
    match fitness {
        Fitness::Newer(unknown) => Some(format!(
            "the database has been upgraded by a newer flash-sale (migrations that this one doesn't know: {}); run the newer one",
            unknown.join(", "),
        )),
        Fitness::Before1_0 => Some(
            "the database was made by a version before 1.0 (up to the tag before-redesign); 1.0 begins anew: name an empty database, or run that version".into(),
        ),
        Fitness::Older(_) | Fitness::UpToDate => None,
    }
}

/// The stores, if Redis can be used and isn't another installation's. Of several servers, one that answers is enough:
/// the others may come back.
async fn checked(
    fleet: Fleet,
    pool: PgPool,
    config: &StoreConfig,
    r#as: As,
) -> anyhow::Result<(Stores, Vec<ServerFacts>)> {
    let keys = Keys::new(&config.key_prefix);
    let identity = installation::identity(&pool).await.context(POSTGRES_UNUSABLE)?;
    let of_owner = |(server, redis): (usize, &Redis)| {
        let lane = Lane::numbered(i32::try_from(server).unwrap_or_default());
        redis.of_owner(installation::owner(&identity, &keys, lane))
    };
    let fleet = fleet.map(of_owner);
    let stores = installation::spread(Stores { pool, fleet, keys }).await;
    let stores = stores.context(POSTGRES_UNUSABLE)?;
    let Stores { fleet, keys, .. } = &stores;
    let (mut facts, mut unreachable) = (Vec::new(), None);
    for redis in fleet.each() {
        match redis.facts().await {
            Ok(seen) => {
                check_redis(redis, &seen, keys, r#as).await?;
                facts.push(seen);
            }
            Err(error) => {
                if !fleet.is_one() {
                    tracing::warn!(%error, "Redis at {} can't be used; its lanes stay closed until it can", redis.address());
                }
                unreachable = Some(error);
            }
        }
    }
    if let Some(error) = unreachable.filter(|_| facts.is_empty()) {
        return Err(error)
            .with_context(|| format!("Redis ({}) can't be used", flag(fleet.first())));
    }
    Ok((stores, facts))
}

/// The setting that names a server.
fn flag(redis: &Redis) -> &'static str {
    if redis.has_sentinels() { "--redis-sentinels" } else { "--redis-url" }
}

/// Refuses a Redis that a service can't work with. A short command may be the cure, so it is only warned.
async fn check_redis(
    redis: &Redis,
    facts: &ServerFacts,
    keys: &Keys,
    r#as: As,
) -> anyhow::Result<()> {
    let flag = flag(redis);
    match (facts.unfit(), r#as) {
        (None, _) => {}
        (Some(_), As::Service) if facts.is_replica && redis.has_sentinels() => bail!(
            "Redis is a replica, which takes no writes; the sentinels are about to name another master: start again in some seconds"
        ),
        (Some(why), As::Service) => bail!("Redis ({flag}) can't be used: {why}"),
        (Some(why), As::Guest) => tracing::warn!("no claim is taken: {why}"),
    }
    if r#as == As::Service {
        let missing = rights::missing(redis, keys).await?;
        if !missing.is_empty() {
            bail!(
                "Redis refuses to its user what the service needs ({}); docs/guarantees.md has the rights",
                missing.join("; ")
            );
        }
    }
    if let Err(error) = redis.check().await
        && is_foreign(&error)
    {
        return Err(InvalidConfig::new(format!(
            "Redis at {} belongs to another installation than the database of --database-url: {REMEDY_OTHER_INSTALLATION}",
            redis.address(),
        ))
        .into());
    }
    Ok(())
}
