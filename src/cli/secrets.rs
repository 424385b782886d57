//! Secrets in files are read again while the service runs, so a new one takes effect without a restart.

use std::future::ready;
use std::sync::{Arc, Mutex};

use secrecy::ExposeSecret;

use crate::app::{self, App};
use crate::base::config::{Config, StoreConfig};
use crate::base::limits;
use crate::http::state::HttpState;
use crate::store::Stores;
use crate::store::postgres;

/// Reads the files of secrets again in each [`limits::SECRETS_PERIOD`]. Open connections to the stores stay open.
pub fn follow(config: &Config, app: &Arc<App>, http: &HttpState) {
    let (http, seen) = (http.clone(), Mutex::new((config.clone(), None)));
    app::repeat(app, limits::SECRETS_PERIOD, move |app| {
        let (config, fault) = &mut *seen.lock().expect("no holder of this lock panics");
        match config.with_secrets_of_now() {
            Ok(None) => *fault = None,
            Ok(Some(now)) => {
                http.change_secrets(&now.stores, &now);
                change_urls(&now.stores, &app.stores);
                tracing::info!(
                    "secrets have changed in their files; the new ones count from now on"
                );
                (*config, *fault) = (now, None);
            }
            Err(why) => {
                if fault.as_ref() != Some(&why) {
                    tracing::warn!(
                        fault = why,
                        "the secrets in files can't be read again; the last ones stay"
                    );
                }
                *fault = Some(why);
            }
        }
        ready(())
    });
}

fn change_urls(config: &StoreConfig, stores: &Stores) {
    let redis = config
        .redis_url
        .as_ref()
        .map(|urls| stores.fleet.change_urls(urls.expose_secret()).is_ok());
    let database = config.database_url.as_ref();
    let database =
        database.map(|url| postgres::change_url(&stores.pool, url.expose_secret()).is_ok());
    if [redis, database].contains(&Some(false)) {
        // The error would quote the URL, which may have a password.
        tracing::warn!(
            "the URL of a store can't be understood, as its file has it now; the last one stays"
        );
    }
}
