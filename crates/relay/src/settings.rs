//! The part of the command line that all relays have.

use anyhow::Context;
use clap::Args;
use reqwest::Url;

/// What the help of each relay says below its options.
pub const AFTER_HELP: &str = "A secret may stand in a file: give @/path in place of it.\n\n\
    Exit codes: 0 stopped by SIGTERM or Ctrl-C; 1 failed; 2 the command line is wrong.";

/// The options of each relay, whatever its engine.
#[derive(Args)]
pub struct Settings {
    /// URL of the service, which runs with --events
    #[arg(long, env = "FLASH_SALE_RELAY_URL", value_parser = http_url)]
    pub url: Url,
    /// Token with the scope integrator. A file is read for each request, so the token in it can be renewed
    #[arg(long, env = "FLASH_SALE_RELAY_TOKEN", hide_env_values = true)]
    pub token: Secret,
    /// Postgres that keeps the cursor, in the table `relays`; that of the service will do
    #[arg(long, env = "FLASH_SALE_RELAY_DATABASE_URL", hide_env_values = true)]
    pub database_url: Secret,
    /// Name of this relay: of several with one name, one publishes and the others wait
    #[arg(long, env = "FLASH_SALE_RELAY_NAME", default_value = "relay")]
    pub name: String,
    /// Seconds without a sign of life after which another relay of this name takes over
    #[arg(long, env = "FLASH_SALE_RELAY_LEASE_S", default_value_t = 30, value_parser = clap::value_parser!(u16).range(3..))]
    pub lease_s: u16,
    /// Forget the cursor and begin with the oldest event that is kept. For one start: events come again
    #[arg(long)]
    pub from_oldest: bool,
}

/// A text that is shown to nobody, or `@/path` of the file that has it.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// The text.
    ///
    /// # Errors
    ///
    /// When the file can't be read.
    pub fn text(&self) -> anyhow::Result<String> {
        let Some(path) = self.0.strip_prefix('@').filter(|path| path.starts_with('/')) else {
            return Ok(self.0.clone());
        };
        let text =
            std::fs::read_to_string(path).with_context(|| format!("{path} can't be read"))?;
        Ok(text.trim_end().to_owned())
    }
}

// Always possible, because clap prints what can't be parsed.
impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

fn http_url(text: &str) -> Result<Url, String> {
    Url::parse(text)
        .ok()
        .filter(|url| ["http", "https"].contains(&url.scheme()))
        .ok_or_else(|| "give the address of the service, as in http://127.0.0.1:8080".to_owned())
}
