//! Every setting of the service: one field is the flag, the environment variable and its documentation.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueEnum};
use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};

use super::durability::Level;
use super::host_port::HostPort;
use super::limits;
use super::secret::Secret;
use super::telemetry::LogFormat;

/// Settings of the stores: every sub-command has them.
#[derive(Args, Clone, Debug)]
pub struct StoreConfig {
    /// Redis to use: redis://, rediss:// or redis+unix://; several, divided by commas, share the lanes, in the same order for all processes; or redis+cluster://host:port,host:port [default: a private one in the data folder]
    #[arg(long, env = "FLASH_SALE_REDIS_URL", hide_env_values = true, value_parser = Secret::of)]
    pub redis_url: Option<Secret>,

    /// Sentinels, as host:port,host:port; --redis-url then has the master's name in place of the host: redis://:password@mymaster/0
    #[arg(
        long,
        env = "FLASH_SALE_REDIS_SENTINELS",
        value_delimiter = ',',
        value_name = "HOST:PORT,..."
    )]
    pub redis_sentinels: Vec<HostPort>,

    /// Postgres to use: postgres://, with sslmode if needed [default: a private one in the data folder]
    #[arg(long, env = "FLASH_SALE_DATABASE_URL", hide_env_values = true, value_parser = Secret::of)]
    pub database_url: Option<Secret>,

    /// Folder for the private servers and what they keep
    #[arg(long, env = "FLASH_SALE_DATA_DIR", default_value = ".flash-sale")]
    pub data_dir: PathBuf,

    /// First part of every key in Redis
    #[arg(long, env = "FLASH_SALE_KEY_PREFIX", default_value = "fs", value_parser = key_prefix)]
    pub key_prefix: String,

    /// Secret that signs access tokens, 32 bytes or more [default: made and kept in the data folder, with private servers only]
    #[arg(long, env = "FLASH_SALE_TOKEN_SECRET", hide_env_values = true, value_parser = Secret::of)]
    pub token_secret: Option<Secret>,

    /// Secrets whose tokens are accepted too: for a change of --token-secret
    #[arg(
        long,
        env = "FLASH_SALE_FURTHER_TOKEN_SECRETS",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "SECRET,...",
        value_parser = Secret::of
    )]
    pub further_token_secrets: Vec<Secret>,

    /// Issuer that each token has to name as its iss [default: none is asked for]
    #[arg(long, env = "FLASH_SALE_TOKEN_ISSUER")]
    pub token_issuer: Option<String>,

    /// Audience that each token has to name in its aud [default: none is asked for, and a token that names one is refused]
    #[arg(long, env = "FLASH_SALE_TOKEN_AUDIENCE")]
    pub token_audience: Option<String>,

    /// Connections to Postgres, at most
    #[arg(long, env = "FLASH_SALE_DATABASE_CONNECTIONS", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(2..=1_000))]
    pub database_connections: u32,

    /// Time in which Redis has to answer, or a connection to be made; after that an outcome is unknown
    #[arg(long, env = "FLASH_SALE_REDIS_TIMEOUT_MS", default_value_t = 500,
        value_parser = clap::value_parser!(u64).range(50..=10_000))]
    pub redis_timeout_ms: u64,

    /// Time that Postgres may work on a statement, and that a transaction may wait for its next one
    #[arg(long, env = "FLASH_SALE_DATABASE_TIMEOUT_MS", default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(50..=10_000))]
    pub database_timeout_ms: u64,

    /// Write events for other systems, which GET /v1/events tells (docs/events.md). The same in all processes
    #[arg(long, env = "FLASH_SALE_EVENTS")]
    pub events: bool,

    /// Filter of log lines, e.g. info or flash_sale=debug,warn
    #[arg(long = "log", env = "FLASH_SALE_LOG", default_value = "info,sqlx=warn")]
    pub log_filter: String,

    /// Form of log lines
    #[arg(long, env = "FLASH_SALE_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// The settings of `serve` and `demo`.
#[derive(Args, Clone, Debug)]
pub struct Config {
    #[command(flatten)]
    pub stores: StoreConfig,

    /// File with public keys whose tokens are accepted too (JSON Web Key Set; RS256, ES256, EdDSA); read again when it changes
    #[arg(long, env = "FLASH_SALE_TOKEN_KEYS", value_name = "FILE")]
    pub token_keys: Option<PathBuf>,

    /// URL of an issuer's public keys, whose tokens are accepted too; fetched again every five minutes, and the last good ones stay
    #[arg(long, env = "FLASH_SALE_TOKEN_JWKS_URL", value_name = "URL", value_parser = KEY_SET_URL)]
    pub token_jwks_url: Option<Uri>,

    /// Address of the API; port 0 for one that is free
    #[arg(long, env = "FLASH_SALE_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,

    /// Address of administrators, /metrics, /livez and /readyz; then none of them is found on --listen [default: the API's own listener]
    #[arg(long, env = "FLASH_SALE_ADMIN_LISTEN", value_parser = address)]
    pub admin_listen: Option<SocketAddr>,

    /// Origins whose pages may use the API from a browser, each with its scheme and without a path; * for all [default: none]
    #[arg(long, env = "FLASH_SALE_CORS_ORIGINS", value_delimiter = ',', value_name = "ORIGIN,...", value_parser = origin)]
    pub cors_origins: Vec<String>,

    /// Roles of this process; any number of processes may have each
    #[arg(
        long,
        env = "FLASH_SALE_ROLES",
        value_enum,
        value_delimiter = ',',
        default_value = "api,worker"
    )]
    pub roles: Vec<Role>,

    /// Lanes that new coupons are spread over, 1 to 63 [default: as many as there are; they only ever get more]
    #[arg(long, env = "FLASH_SALE_LANES",
        value_parser = clap::value_parser!(i32).range(1..=i64::from(limits::LANES_MAX)))]
    pub lanes: Option<i32>,

    /// Durability of a confirmed claim: memory, fsync, fsync:declared, replica, replica:N or postgres [default: fsync where Redis has appendfsync always, else memory]
    #[arg(long, env = "FLASH_SALE_DURABILITY")]
    pub durability: Option<Level>,

    /// Connections to a listener at one time, at most, and twice the watchers of sales and the board; then idle ones are closed for new ones, and if none is idle, new clients wait
    #[arg(long, env = "FLASH_SALE_CONNECTIONS_MAX", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections_max: u32,

    /// Pages to serve beside the API: shop, for shoppers, at / and /sale/{coupon}; board, for administrators, at /board [default: none; the demo serves both]
    #[arg(long, env = "FLASH_SALE_PAGES", value_enum, value_delimiter = ',')]
    pub pages: Vec<Page>,

    /// Proxies that are believed about the addresses of their clients, as addresses and networks: 10.0.0.0/8,2001:db8::7
    #[arg(long, env = "FLASH_SALE_TRUSTED_PROXIES", value_delimiter = ',', value_name = "NETWORK,...", value_parser = network)]
    pub trusted_proxies: Vec<IpNet>,

    /// Time to go on serving after a stop signal while /readyz says no, so that a balancer looks elsewhere first
    #[arg(long, env = "FLASH_SALE_STOP_DELAY_MS", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=600_000))]
    pub stop_delay_ms: u64,

    /// Requests of which one is written to the log, with its route, status, time and user; 1 for each, 0 for none
    #[arg(long, env = "FLASH_SALE_ACCESS_LOG_ONE_IN", default_value_t = 0)]
    pub access_log_one_in: u32,

    /// Claims that one user may make in a second before being told 429; 0 for no bound
    #[arg(long, env = "FLASH_SALE_USER_CLAIMS_PER_SECOND", default_value_t = 100)]
    pub user_claims_per_second: u32,

    /// Other requests that one user may make in a second before being told 429; 0 for no bound
    #[arg(long, env = "FLASH_SALE_USER_REQUESTS_PER_SECOND", default_value_t = 200)]
    pub user_requests_per_second: u32,

    /// Requests without a user, or with a token that is refused, that one address may make in a second before being told 429; 0 for no bound
    #[arg(long, env = "FLASH_SALE_ANONYMOUS_REQUESTS_PER_SECOND", default_value_t = 1_000)]
    pub anonymous_requests_per_second: u32,

    /// Accepted claims that may wait to be written; beyond it new ones are answered 503 overloaded, and /readyz says no
    #[arg(long, env = "FLASH_SALE_BACKLOG_ORDERS_MAX", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub backlog_orders_max: u64,

    /// Time that a claim may wait for its turn before it is answered 503 overloaded; less than --redis-timeout-ms
    #[arg(long, env = "FLASH_SALE_CLAIM_WAIT_MS", default_value_t = 400,
        value_parser = clap::value_parser!(u64).range(20..))]
    pub claim_wait_ms: u64,

    /// Time for which "sold out" and a buyer's order are believed before Redis is asked again. Tests have others.
    #[arg(skip = limits::SOLD_OUT_MEMORY)]
    pub sold_out_memory: Duration,

    /// Time that a sale stays in Redis after it has ended or its window has closed; then Postgres answers for it
    #[arg(long, env = "FLASH_SALE_ARCHIVE_AFTER_MS", default_value_t = 86_400_000,
        value_parser = clap::value_parser!(u64).range(..=YEAR_MS))]
    pub archive_after_ms: u64,

    /// Unpaid orders of flash coupons that one user may hold in a lane, up to 1,000; 0 for no bound. The same in all processes
    #[arg(long, env = "FLASH_SALE_UNPAID_ORDERS_MAX", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=1_000))]
    pub unpaid_orders_max: u32,

    /// Closed orders that one user may leave of one coupon within an hour, up to 1,000; 0 for no bound. The same in all processes
    #[arg(long, env = "FLASH_SALE_CLOSED_ORDERS_MAX", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(..=1_000))]
    pub closed_orders_max: u32,

    /// Time that an order may stay unpaid before it expires, in seconds from its claim
    #[arg(long, env = "FLASH_SALE_PAYMENT_WINDOW_S", default_value_t = 900,
        value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub payment_window_s: u64,

    /// Secret with which a gateway signs POST /v1/payments/callback, 32 bytes or more [default: none, and no callbacks]
    #[arg(long, env = "FLASH_SALE_PAYMENT_CALLBACK_SECRET", hide_env_values = true, value_parser = Secret::of)]
    pub payment_callback_secret: Option<Secret>,

    /// The secret before, while it is being changed: callbacks signed by it are believed, too
    #[arg(long, env = "FLASH_SALE_PAYMENT_CALLBACK_SECRET_BEFORE", hide_env_values = true, value_parser = Secret::of)]
    pub payment_callback_secret_before: Option<Secret>,

    /// URL of a gateway that takes requests: payments are opened and refunded there (docs/gateway.md) [default: none; the gateway only calls back]
    #[arg(long, env = "FLASH_SALE_GATEWAY_URL", value_parser = GATEWAY_URL)]
    pub gateway_url: Option<Uri>,

    /// Time in which that gateway has to answer; after that an outcome is unknown
    #[arg(long, env = "FLASH_SALE_GATEWAY_TIMEOUT_MS", default_value_t = 3_000,
        value_parser = clap::value_parser!(u64).range(50..=30_000))]
    pub gateway_timeout_ms: u64,

    /// Let an order keep its unit when the gateway takes its payment back, until an administrator closes the payment
    #[arg(long, env = "FLASH_SALE_CHARGEBACK_KEEPS_UNIT")]
    pub chargeback_keeps_unit: bool,

    /// Believe every user who says that an order is paid, for trying only: POST /v1/orders/{id}/pay moves no money
    #[arg(long, env = "FLASH_SALE_IN_PROCESS_GATEWAY")]
    pub in_process_gateway: bool,

    /// Orders written in one transaction, at most
    #[arg(long, env = "FLASH_SALE_BATCH_ORDERS_MAX", default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::BATCH_ORDERS_LIMIT)))]
    pub batch_orders_max: u32,

    /// Days from the end of an order to its deletion, with its payments, once its sale is archived; 0 keeps all orders
    #[arg(long, env = "FLASH_SALE_ORDERS_DAYS", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=36_500))]
    pub orders_days: u32,

    /// Days for which records are kept: the book of changes, comparisons, recoveries, done returns of units, keys of restocks
    #[arg(long, env = "FLASH_SALE_RECORDS_DAYS", default_value_t = 365,
        value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub records_days: u32,

    /// Days for which events are kept for their readers
    #[arg(long, env = "FLASH_SALE_EVENTS_DAYS", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=365))]
    pub events_days: u32,

    /// Hosts that webhooks may go to although their addresses are private or without TLS, as in their URLs, with commas
    #[arg(long, env = "FLASH_SALE_WEBHOOKS_ALLOW", value_delimiter = ',')]
    pub webhooks_allow: Vec<String>,

    /// Period in which the workers compare Redis with Postgres; longer where that takes long, 0 for none but after a recovery
    #[arg(long, env = "FLASH_SALE_RECONCILE_PERIOD_MS", default_value_t = 600_000,
        value_parser = clap::value_parser!(u64).range(..=86_400_000))]
    pub reconcile_period_ms: u64,

    /// Answer POST /v1/no-op, which does nothing behind the same middleware as a claim: the ceiling for measurements
    #[arg(long, env = "FLASH_SALE_NO_OP_ROUTE")]
    pub no_op_route: bool,

    /// Routes and pages of `flash-sale demo`: no setting, because only `demo` may have them.
    #[arg(skip)]
    pub demo: Option<Demo>,
}

/// Parts of a service that only `demo` has, on loopback: it hands a token to each browser that asks.
#[derive(Clone, Debug, Default)]
pub struct Demo {
    /// Codes in the links that are printed: each lets one browser tab in as the administrator, once.
    pub codes: Vec<SecretString>,
}

/// Longest time of a setting that counts in days.
const YEAR_MS: u64 = 365 * 86_400_000;

/// A part of the service that a process can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Answers HTTP requests.
    Api,
    /// Writes the order log to Postgres.
    Worker,
}

/// Pages of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// A sale, for shoppers.
    Shop,
    /// The board, for administrators; where they are answered.
    Board,
}

/// A combination of settings that can't be right. The message names the settings, the reason, and a right value.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct InvalidConfig(String);

impl StoreConfig {
    /// Whether this process brings its own Redis and Postgres.
    ///
    /// # Errors
    ///
    /// When only one of the two URLs is given: the data would stand in two places that don't belong together. Also when
    /// sentinels are given without a URL.
    pub fn private_servers(&self) -> Result<bool, InvalidConfig> {
        match (&self.redis_url, &self.database_url) {
            (None, _) if !self.redis_sentinels.is_empty() => invalid(
                "--redis-sentinels is given without --redis-url: give user, password and database, with the master's name in place of the host, as in redis://mymaster/0",
            ),
            (None, None) => Ok(true),
            (Some(_), Some(_)) => Ok(false),
            (Some(_), None) => invalid(
                "--redis-url is given without --database-url: give both, or neither for private servers",
            ),
            (None, Some(_)) => invalid(
                "--database-url is given without --redis-url: give both, or neither for private servers",
            ),
        }
    }

    /// Refuses further secrets that are too short.
    ///
    /// # Errors
    ///
    /// When one of them is.
    pub fn validate_tokens(&self) -> Result<(), InvalidConfig> {
        for secret in &self.further_token_secrets {
            long_enough("--further-token-secrets", secret)?;
        }
        Ok(())
    }

    fn secrets(&mut self) -> impl Iterator<Item = &mut Secret> {
        let single = [&mut self.redis_url, &mut self.database_url, &mut self.token_secret];
        single.into_iter().flatten().chain(&mut self.further_token_secrets)
    }

    /// Time in which Redis has to answer.
    pub fn redis_timeout(&self) -> Duration {
        Duration::from_millis(self.redis_timeout_ms)
    }

    /// Time that Postgres may work on a statement.
    pub fn database_timeout(&self) -> Duration {
        Duration::from_millis(self.database_timeout_ms)
    }
}

impl Config {
    /// Refuses combinations that can't be right.
    ///
    /// # Errors
    ///
    /// The first relation that doesn't hold.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.stores.private_servers()?;
        if let Some(secret) = &self.stores.token_secret {
            validate_secret(secret)?;
        }
        self.stores.validate_tokens()?;
        self.validate_gateway()?;
        let redis_timeout = self.stores.redis_timeout();
        if self.claim_wait() >= redis_timeout {
            return invalid(format!(
                "--claim-wait-ms {} is too long: a claim that has its turn at last needs time to be answered; give less than --redis-timeout-ms {}",
                self.claim_wait_ms,
                redis_timeout.as_millis(),
            ));
        }
        Ok(())
    }

    /// The same with the secrets that files have now; `None` if they have not changed.
    ///
    /// # Errors
    ///
    /// When one can't be read, or is none that the service can use.
    pub fn with_secrets_of_now(&self) -> Result<Option<Self>, String> {
        let mut now = self.clone();
        let single = [&mut now.payment_callback_secret, &mut now.payment_callback_secret_before];
        let mut has_changed = false;
        for secret in now.stores.secrets().chain(single.into_iter().flatten()) {
            has_changed |= secret.read_again()?;
        }
        if !has_changed {
            return Ok(None);
        }
        now.validate().map_err(|error| error.to_string())?;
        Ok(Some(now))
    }

    fn validate_gateway(&self) -> Result<(), InvalidConfig> {
        if let Some(secret) = &self.payment_callback_secret {
            long_enough("--payment-callback-secret", secret)?;
        }
        if let Some(secret) = &self.payment_callback_secret_before {
            long_enough("--payment-callback-secret-before", secret)?;
        }
        if self.payment_callback_secret.is_none() {
            if self.payment_callback_secret_before.is_some() {
                return invalid(
                    "--payment-callback-secret-before is given without --payment-callback-secret: give the new secret there",
                );
            }
            if self.gateway_url.is_some() {
                return invalid(
                    "--gateway-url is given without --payment-callback-secret: give the secret that the gateway knows; requests and callbacks are signed by it",
                );
            }
        }
        Ok(())
    }

    /// Whether this process has the role.
    pub fn has_role(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether the page is served.
    pub fn has_page(&self, page: Page) -> bool {
        self.pages.contains(&page)
    }

    /// Connections that may watch a sale at one time: half of them stay for claims.
    pub fn watchers_max(&self) -> u32 {
        self.connections_max / 2
    }

    /// Waiting time after which a claim without a call is refused.
    pub fn claim_wait(&self) -> Duration {
        Duration::from_millis(self.claim_wait_ms)
    }

    /// Time between a stop signal and the stop.
    pub fn stop_delay(&self) -> Duration {
        Duration::from_millis(self.stop_delay_ms)
    }

    /// Time between the end of a sale and its archiving.
    pub fn archive_after(&self) -> Duration {
        Duration::from_millis(self.archive_after_ms)
    }

    /// Time for which an order may stay unpaid.
    pub fn payment_window(&self) -> Duration {
        Duration::from_secs(self.payment_window_s)
    }

    /// Time in which the gateway has to answer.
    pub fn gateway_timeout(&self) -> Duration {
        Duration::from_millis(self.gateway_timeout_ms)
    }

    /// Time between two comparisons of the stores.
    pub fn reconcile_period(&self) -> Duration {
        Duration::from_millis(self.reconcile_period_ms)
    }
}

/// Refuses a secret that is too short for HS256.
///
/// # Errors
///
/// When the secret is too short; the message never contains the secret.
pub fn validate_secret(secret: &impl ExposeSecret<str>) -> Result<(), InvalidConfig> {
    long_enough("--token-secret", secret)
}

fn long_enough(flag: &str, secret: &impl ExposeSecret<str>) -> Result<(), InvalidConfig> {
    let bytes = secret.expose_secret().len();
    if bytes < limits::SECRET_BYTES_MIN {
        return invalid(format!(
            "{flag} has {bytes} bytes, but HMAC-SHA256 needs {} or more; `openssl rand -hex 32` makes a good one",
            limits::SECRET_BYTES_MIN,
        ));
    }
    Ok(())
}

impl InvalidConfig {
    /// An error that names the settings, the reason, and a right value.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, InvalidConfig> {
    Err(InvalidConfig::new(message))
}

/// Reads a URL that can be called, without a password in it. A refusal doesn't repeat the value: it may have one.
#[derive(Clone)]
struct HttpUrl {
    may_have_query: bool,
    remedy: &'static str,
}

const GATEWAY_URL: HttpUrl = HttpUrl {
    may_have_query: false,
    remedy: "give http:// or https://, a host, and a path if need be, as in https://pay.example.com/v1",
};
const KEY_SET_URL: HttpUrl = HttpUrl {
    may_have_query: true,
    remedy: "give https://, a host and a path, as in https://issuer.example/.well-known/jwks.json; http:// on this machine alone",
};

impl TypedValueParser for HttpUrl {
    type Value = Uri;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> clap::error::Result<Uri> {
        let url = value.to_str().and_then(http_url);
        url.filter(|url| self.may_have_query || url.query().is_none()).ok_or_else(|| {
            let setting = arg.map_or_else(String::new, ToString::to_string);
            let refusal = format!("the value for '{setting}' is invalid: {}\n", self.remedy);
            clap::Error::raw(ErrorKind::ValueValidation, refusal).with_cmd(command)
        })
    }
}

fn http_url(value: &str) -> Option<Uri> {
    let url: Uri = value.parse().ok()?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    let has_host = url.host().is_some_and(|host| !host.is_empty());
    (is_http && has_host && !value.contains(['@', '#'])).then_some(url)
}

/// Parses an address. A name is refused: it would have to be looked up, and may mean several addresses.
fn address(value: &str) -> Result<SocketAddr, String> {
    value.parse().map_err(|_| {
        "give an IP address and a port: 127.0.0.1:8080 for this machine alone, 0.0.0.0:8080 for all of its networks, 127.0.0.1:0 for any port that is free"
            .to_owned()
    })
}

/// Parses an origin as browsers write it, or `*`.
fn origin(value: &str) -> Result<String, String> {
    let fit = |origin: &str| {
        let (scheme, host) = origin.split_once("://")?;
        let host = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ', '*']);
        let lower = !origin.contains(|c: char| c.is_ascii_uppercase());
        let plain = origin.bytes().all(|byte| byte.is_ascii_graphic());
        (["http", "https"].contains(&scheme) && host && lower && plain).then_some(())
    };
    let value = Some(value).filter(|value| *value == "*" || fit(value).is_some());
    value.map(str::to_owned).ok_or_else(|| {
        "give origins in lower case and without a path: https://shop.example, http://localhost:3000; or * for all"
            .to_owned()
    })
}

/// Parses a network, or an address as the network that has no other.
fn network(value: &str) -> Result<IpNet, String> {
    let network = value.parse().or_else(|_| value.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| {
        "give IP addresses and networks: 10.0.0.7, 10.0.0.0/8, 2001:db8::/32".to_owned()
    })
}

/// Parses a prefix. Braces are refused: they would become the hash tag in place of the lane's.
fn key_prefix(value: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if value.is_empty() || value.len() > 64 || !value.chars().all(allowed) {
        return Err("give 1 to 64 of the characters a-z, A-Z, 0-9, '-', '_', '.' and ':'".into());
    }
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        config: Config,
    }

    fn config(arguments: &[&str]) -> Config {
        let arguments = ["flash-sale"].iter().chain(arguments);
        Command::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}")).config
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(config(&[]).validate(), Ok(()));
    }

    #[test]
    fn the_defaults_of_time_outs_are_the_limits() {
        let config = config(&[]);
        assert_eq!(config.stores.redis_timeout(), limits::REDIS_TIMEOUT);
        assert_eq!(config.stores.database_timeout(), limits::POSTGRES_TIMEOUT);
        assert_eq!(config.claim_wait(), limits::CLAIM_WAIT);
    }

    #[test]
    fn the_defaults_bound_each_client() {
        let config = config(&[]);
        for bound in [
            config.user_claims_per_second,
            config.user_requests_per_second,
            config.anonymous_requests_per_second,
        ] {
            assert!(bound > 0, "0 is no bound");
        }
    }

    #[test]
    fn relations_that_cannot_hold_are_refused() {
        for arguments in [
            ["--claim-wait-ms", "500"],
            ["--redis-url", "redis://localhost"],
            ["--token-secret", "too short"],
            ["--payment-callback-secret", "too short"],
            ["--payment-callback-secret-before", "too short"],
            ["--gateway-url", "http://127.0.0.1:1"],
            ["--further-token-secrets", "too short"],
        ] {
            let error = config(&arguments).validate().expect_err(arguments[0]).to_string();
            assert!(error.contains(arguments[0]), "{error}");
            assert!(!error.contains("too short: \"too short\""), "the secret is in: {error}");
        }
    }

    #[test]
    fn a_url_of_a_gateway_is_one_that_can_be_called() {
        for good in ["http://127.0.0.1:8090", "https://pay.example.com/v1/", "http://[::1]:80"] {
            assert!(
                Command::try_parse_from(["flash-sale", "--gateway-url", good]).is_ok(),
                "{good}"
            );
        }
        for bad in
            ["", "pay", "pay:80", "ftp://pay", "http://", "/v1", "http://pay?x=1", "http://u:p@pay"]
        {
            assert!(
                Command::try_parse_from(["flash-sale", "--gateway-url", bad]).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_url_of_keys_is_one_that_can_be_called() {
        for good in ["https://issuer.example/keys?policy=1", "http://127.0.0.1:1", "http://[::1]/"]
        {
            assert!(
                Command::try_parse_from(["flash-sale", "--token-jwks-url", good]).is_ok(),
                "{good}"
            );
        }
        for bad in ["", "keys.json", "/keys", "file:///keys", "https://", "https://u:p@x/keys"] {
            let refused = Command::try_parse_from(["flash-sale", "--token-jwks-url", bad]).err();
            let refused = refused.unwrap_or_else(|| panic!("{bad:?} was taken")).to_string();
            assert!(refused.contains("jwks.json"), "{refused}");
        }
    }

    #[test]
    fn networks_are_addresses_or_ranges_and_no_names() {
        let config = config(&["--trusted-proxies", "10.0.0.7,10.0.0.0/8,2001:db8::/32,::1"]);
        let networks: Vec<_> = config.trusted_proxies.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.0.0.7/32", "10.0.0.0/8", "2001:db8::/32", "::1/128"]);
        for wrong in ["", "proxy.example", "10.0.0.0/33", "10.0.0", "10.0.0.7:80", "10.0.0.7,"] {
            let refused = Command::try_parse_from(["flash-sale", "--trusted-proxies", wrong]).err();
            let refused = refused.unwrap_or_else(|| panic!("{wrong:?} was taken")).to_string();
            assert!(refused.contains("10.0.0.0/8"), "{refused}");
        }
    }

    #[test]
    fn origins_are_written_as_browsers_write_them() {
        let config = config(&["--cors-origins", "https://shop.example,http://localhost:3000"]);
        assert_eq!(config.cors_origins, ["https://shop.example", "http://localhost:3000"]);
        for wrong in [
            "",
            "shop.example",
            "https://",
            "https://shop.example/",
            "https://Shop.example",
            "https://*.example",
            "ftp://shop.example",
            "null",
        ] {
            let refused = Command::try_parse_from(["flash-sale", "--cors-origins", wrong]).err();
            let refused = refused.unwrap_or_else(|| panic!("{wrong:?} was taken")).to_string();
            assert!(refused.contains("without a path"), "{refused}");
        }
    }

    #[test]
    fn a_prefix_with_a_hash_tag_is_refused() {
        assert!(Command::try_parse_from(["flash-sale", "--key-prefix", "{fs}"]).is_err());
    }
}
