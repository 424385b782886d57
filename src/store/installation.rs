//! Settings that all processes share, and the marks by which Redis and Postgres recognise each other. Owner of the
//! table `settings`.

use sqlx::{PgConnection, PgPool};

use crate::store::Stores;
use crate::store::ids::Lane;
use crate::store::keys::Keys;
use crate::store::redis::Owner;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of lanes that new coupons are spread over. It never shrinks.
    pub lanes: i32,
}

/// Reads the settings.
///
/// # Errors
///
/// When Postgres doesn't answer, or hasn't been migrated.
pub async fn read(pool: &PgPool) -> sqlx::Result<Settings> {
    sqlx::query_as!(Settings, "SELECT lanes FROM settings").fetch_one(pool).await
}

/// What the lanes in Redis note about the Postgres that they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The installation's id, made by the first migration. A copy of the database has the same id.
    pub installation: String,
    /// Identifies the history of this Postgres: it changes after a restore into another cluster or database, and after
    /// a fail-over. `None` if Postgres doesn't allow reading it.
    pub postgres_run: Option<String>,
}

pub async fn identity(pool: &PgPool) -> sqlx::Result<Identity> {
    sqlx::query_as!(
        Identity,
        r#"SELECT installation::text AS "installation!", postgres_run() AS postgres_run FROM settings"#
    )
    .fetch_one(pool)
    .await
}

/// What Redis has and Postgres lacks, until an operator decides about it.
pub async fn apart(pool: &PgPool) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar!("SELECT apart FROM settings").fetch_one(pool).await
}

/// Notes that Postgres is behind Redis. False if that was noted before, or if an operator has decided and lanes still
/// wait for that recovery.
pub async fn note_apart(tx: &mut PgConnection, why: &str) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "UPDATE settings SET apart = $1, updated_at = now()
         WHERE apart IS NULL AND NOT EXISTS (SELECT FROM lanes WHERE trusts IS NOT NULL)",
        why,
    );
    Ok(done.execute(tx).await?.rows_affected() == 1)
}

pub async fn note_together(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!("UPDATE settings SET apart = NULL, updated_at = now() WHERE apart IS NOT NULL")
        .execute(pool)
        .await?;
    Ok(())
}

/// The mark that the server of this lane has or will get. The first lane of a server stands for all its lanes: the
/// scripts that begin and close a lane compare the mark of each.
pub fn owner(identity: &Identity, keys: &Keys, lane: Lane) -> Owner {
    Owner { key: keys.lane(lane), field: "installation", value: identity.installation.clone() }
}

/// The same stores, with one Redis connection for each lane where Redis is a cluster.
///
/// # Errors
///
/// When Postgres doesn't answer.
pub async fn spread(stores: Stores) -> sqlx::Result<Stores> {
    if !stores.fleet.first().is_in_cluster() {
        return Ok(stores);
    }
    let (identity, lanes) = (identity(&stores.pool).await?, read(&stores.pool).await?.lanes);
    let fleet = stores.fleet.spread(lanes, |lane| owner(&identity, &stores.keys, lane));
    Ok(Stores { fleet, ..stores })
}

/// Raises the number of lanes, and returns the number in force. A smaller number than the stored one changes nothing,
/// because coupons live in the lanes that would go.
pub async fn raise_lanes(pool: &PgPool, lanes: i32) -> sqlx::Result<i32> {
    sqlx::query!("UPDATE settings SET lanes = $1, updated_at = now() WHERE lanes < $1", lanes)
        .execute(pool)
        .await?;
    Ok(read(pool).await?.lanes)
}
