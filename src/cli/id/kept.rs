//! The key of order ids that a data folder keeps, as private as its token secret.
//!
//! `demo` makes one for a new installation, under the lock of the data folder and before the installation is decided on: a
//! process that dies in between leaves a key that the next start takes. Every command on the folder reads it there.

use secrecy::SecretString;
use sqlx::PgPool;

use crate::base::config::{Config, StoreConfig};
use crate::cli::stores::kept_secret;
use crate::sale::installation::{self, Form};

/// The file, in the data folder.
const NAME: &str = "order-id-key";

/// The key of order ids: the one given, or the one that the data folder keeps; none where ids are plain.
pub fn order_id_key(config: &StoreConfig) -> anyhow::Result<Option<SecretString>> {
    if let Some(key) = config.order_id_key()? {
        return Ok(Some(key.clone()));
    }
    let is_kept = config.private_servers()? && config.data_dir.join(NAME).exists();
    is_kept.then(|| kept(config)).transpose()
}

/// The settings of a service with the key of order ids. A new installation of a demo gets one, unless one is given.
pub async fn with_order_id_key(config: &Config, pool: &PgPool) -> anyhow::Result<Config> {
    let mut stores = config.stores.clone();
    stores.order_id_key = order_id_key(&stores)?;
    let is_without = stores.order_id_key.is_none() && stores.private_servers()?;
    if config.keeps_order_id_key && is_without {
        let form = installation::form(pool).await?;
        if form == Form::Undecided {
            stores.order_id_key = Some(kept(&stores)?);
        }
    }
    Ok(Config { stores, ..config.clone() })
}

fn kept(config: &StoreConfig) -> anyhow::Result<SecretString> {
    let remedy =
        "users know their orders by ids that only this key can read: put it back from a copy";
    kept_secret(&config.data_dir, NAME, remedy)
}
