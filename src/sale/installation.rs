//! The facts that all processes share, and the marks by which Redis and Postgres know each other; owner of the table
//! `settings`.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use sqlx::{PgConnection, PgPool};

use crate::kit::redis::Owner;
use crate::sale::ids::Lane;
use crate::sale::ids::public::{PublicIds, check_value};
use crate::sale::keys::Keys;

/// Facts about the whole installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Lanes that new coupons are spread over. Only grows.
    pub lanes: i32,
}

/// Reads the settings.
///
/// # Errors
///
/// When Postgres doesn't answer, or isn't migrated.
pub async fn read(pool: &PgPool) -> sqlx::Result<Settings> {
    sqlx::query_as!(Settings, "SELECT lanes FROM settings").fetch_one(pool).await
}

/// What the lanes in Redis note of the Postgres that they belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The installation's id, made at the first migration. A copy of the database has it, too.
    pub installation: String,
    /// The life of Postgres: another one after a restore into another cluster or database, and after a fail-over. `None`
    /// where Postgres doesn't let us look.
    pub life: Option<String>,
}

/// The identity of this Postgres.
pub async fn identity(pool: &PgPool) -> sqlx::Result<Identity> {
    sqlx::query_as!(
        Identity,
        r#"SELECT installation::text AS "installation!", life_of_postgres() AS life FROM settings"#
    )
    .fetch_one(pool)
    .await
}

/// What Redis has and Postgres lacks, while an operator's decision about that is open.
pub async fn apart(pool: &PgPool) -> sqlx::Result<Option<String>> {
    sqlx::query_scalar!("SELECT apart FROM settings").fetch_one(pool).await
}

/// Notes that Postgres is behind Redis. False if that was noted before.
pub async fn note_apart(tx: &mut PgConnection, why: &str) -> sqlx::Result<bool> {
    let done =
        sqlx::query!("UPDATE settings SET apart = $1, updated_at = now() WHERE apart IS NULL", why);
    Ok(done.execute(tx).await?.rows_affected() == 1)
}

/// Notes that an operator has decided.
pub async fn note_together(pool: &PgPool) -> sqlx::Result<()> {
    sqlx::query!("UPDATE settings SET apart = NULL, updated_at = now() WHERE apart IS NOT NULL")
        .execute(pool)
        .await?;
    Ok(())
}

/// The mark that this installation's Redis has, or has not yet. One lane tells for all: the scripts that begin and close a
/// lane compare each.
pub async fn owner(pool: &PgPool, keys: &Keys) -> sqlx::Result<Owner> {
    let value = identity(pool).await?.installation;
    Ok(Owner { key: keys.lane(Lane::numbered(0)), field: "installation", value })
}

/// Raises the number of lanes. A smaller number than the stored one changes nothing: coupons live in
/// the lanes that would be given up. Returns the number that holds now.
pub async fn raise_lanes(pool: &PgPool, lanes: i32) -> sqlx::Result<i32> {
    sqlx::query!("UPDATE settings SET lanes = $1, updated_at = now() WHERE lanes < $1", lanes)
        .execute(pool)
        .await?;
    Ok(read(pool).await?.lanes)
}

/// Notes, in the transaction that deletes them, that settled payments of orders before this time are deleted.
pub async fn payments_kept_from(tx: &mut PgConnection, time: DateTime<Utc>) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE settings SET payments_kept_from = $1, updated_at = now() WHERE payments_kept_from < $1",
        time,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Raises the retention mark to this order, in the transaction that moves it into the history.
pub async fn orders_moved_to(tx: &mut PgConnection, order: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE settings SET orders_moved_to = $1, updated_at = now() WHERE orders_moved_to < $1",
        order,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The retention mark: the newest order that has moved into the history. It isn't raised until the end of this
/// transaction.
pub async fn hold_orders_moved_to(tx: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!("SELECT orders_moved_to FROM settings FOR SHARE").fetch_one(tx).await
}

/// Time before which settled payments of orders have been deleted.
pub async fn payments_known_from(pool: &PgPool) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar!("SELECT payments_kept_from FROM settings").fetch_one(pool).await
}

/// Reason why an installation can't be used with the key of order ids that is given, or without one.
#[derive(Debug, thiserror::Error)]
pub enum UnfitKey {
    /// Postgres doesn't answer.
    #[error(transparent)]
    Postgres(#[from] sqlx::Error),
    /// The installation has a key, and none is given.
    #[error(
        "--order-id-key (FLASH_SALE_ORDER_ID_KEY) is missing: users of this installation know their orders by ids that only its key can read; give the key with which it was first started, or put the file `order-id-key` back into the data folder of a demo"
    )]
    Missing,
    /// The installation has another key.
    #[error(
        "--order-id-key is not the key of this installation: users know their orders by ids that only the first key can read; give the key with which it was first started"
    )]
    Wrong,
    /// The installation has no key.
    #[error(
        "--order-id-key is given, but users of this installation know their orders by plain ids, which was decided at its first start: leave the key away; only a new installation can have one"
    )]
    Plain,
}

impl UnfitKey {
    /// True if another setting is the remedy.
    pub fn is_of_setting(&self) -> bool {
        !matches!(self, Self::Postgres(_))
    }
}

/// Decides on the form of order ids outside if that has not been decided; then as [`public_ids`].
pub async fn decide_public_ids(
    pool: &PgPool,
    key: Option<&SecretString>,
) -> Result<PublicIds, UnfitKey> {
    let check = key.map(check_value);
    sqlx::query!(
        "UPDATE settings SET order_ids = CASE WHEN $1::bytea IS NULL THEN 'plain' ELSE 'keyed' END,
             order_id_check = $1, updated_at = now()
         WHERE order_ids IS NULL",
        check.as_ref().map(<[u8; 32]>::as_slice),
    )
    .execute(pool)
    .await?;
    public_ids(pool, key).await
}

/// The form of order ids outside, by this key.
///
/// # Errors
///
/// When the key doesn't fit the installation.
pub async fn public_ids(pool: &PgPool, key: Option<&SecretString>) -> Result<PublicIds, UnfitKey> {
    form(pool).await?.with(key)
}

/// Form of order ids outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// No service has started yet, so there is no order.
    Undecided,
    /// The same as inside.
    Plain,
    /// By the key with this check value.
    Keyed(Vec<u8>),
}

/// Reads the form of the installation.
///
/// # Errors
///
/// When Postgres doesn't answer, or isn't migrated.
pub async fn form(pool: &PgPool) -> sqlx::Result<Form> {
    let decided =
        sqlx::query!("SELECT order_ids, order_id_check FROM settings").fetch_one(pool).await?;
    Ok(match (decided.order_ids, decided.order_id_check) {
        (_, Some(check)) => Form::Keyed(check),
        (None, None) => Form::Undecided,
        (Some(_), None) => Form::Plain,
    })
}

impl Form {
    /// The way between ids outside and inside.
    ///
    /// # Errors
    ///
    /// When the key doesn't fit.
    pub fn with(&self, key: Option<&SecretString>) -> Result<PublicIds, UnfitKey> {
        match (self, key) {
            (Self::Undecided | Self::Plain, None) => Ok(PublicIds::plain()),
            (Self::Undecided, Some(key)) => Ok(PublicIds::keyed(key)),
            (Self::Plain, Some(_)) => Err(UnfitKey::Plain),
            (Self::Keyed(_), None) => Err(UnfitKey::Missing),
            (Self::Keyed(check), Some(key)) if *check == check_value(key) => {
                Ok(PublicIds::keyed(key))
            }
            (Self::Keyed(_), Some(_)) => Err(UnfitKey::Wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_to_fit_the_form_of_the_installation() {
        let [first, other] = ["the first key", "another key"].map(SecretString::from);
        let keyed = Form::Keyed(check_value(&first).to_vec());
        for (form, key, is_keyed) in [
            (&Form::Undecided, None, Ok(false)),
            (&Form::Undecided, Some(&first), Ok(true)),
            (&Form::Plain, None, Ok(false)),
            (&Form::Plain, Some(&first), Err("--order-id-key is given, but")),
            (&keyed, None, Err("--order-id-key (FLASH_SALE_ORDER_ID_KEY) is missing")),
            (&keyed, Some(&first), Ok(true)),
            (&keyed, Some(&other), Err("--order-id-key is not the key of this installation")),
        ] {
            match (form.with(key), is_keyed) {
                (Ok(ids), Ok(expected)) => assert_eq!(ids.are_keyed(), expected, "{form:?}"),
                (Err(unfit), Err(expected)) => {
                    assert!(unfit.to_string().starts_with(expected), "{unfit}");
                    assert!(unfit.is_of_setting());
                }
                (found, _) => panic!("{form:?}: {:?}", found.map(|ids| ids.are_keyed())),
            }
        }
        assert!(!UnfitKey::Postgres(sqlx::Error::PoolTimedOut).is_of_setting());
    }
}
