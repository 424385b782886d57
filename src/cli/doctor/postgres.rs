//! Findings about Postgres.

use sqlx::PgPool;

use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::cli::finding::Finding::{self, Failure, Good, Warning};
use crate::cli::remedies::with_remedy;
use crate::cli::stores;
use crate::store::installation;
use crate::store::postgres::{self, ServerFacts};

/// Asks the server about itself, on a connection like those of the service, and judges the answers.
pub async fn examine(pool: &PgPool, config: &StoreConfig) -> Vec<Finding> {
    let place = postgres::address(pool);
    let asked = async {
        postgres::check_connection(pool).await?;
        postgres::facts(pool).await
    };
    match asked.await {
        Ok(facts) => {
            let mut found =
                vec![Good(format!("Postgres at {place}: PostgreSQL {}", facts.version))];
            found.extend(judge(&facts, i64::from(config.database_connections)));
            found.push(schema(pool).await);
            found
        }
        Err(error) => vec![Failure(format!(
            "Postgres at {place} can't be used ({}): no order can be written, and claims pile up in Redis. Start it, or correct --database-url",
            with_remedy(&error.to_string())
        ))],
    }
}

async fn schema(pool: &PgPool) -> Finding {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure(format!(
            "Postgres doesn't let us read our tables ({error}). Give the user of --database-url its rights on them"
        ))
    };
    match (stores::unfit(pool).await, installation::read(pool).await) {
        (Err(error), _) => unreadable(&error),
        (Ok(Some(why)), _) => Failure(format!("Postgres: {why}. `serve` refuses to start")),
        (Ok(None), Err(error)) => unreadable(&error),
        (Ok(None), Ok(settings)) => Good(format!(
            "Postgres schema: up to date; lanes: {}; each table, sequence and function is allowed",
            settings.lanes
        )),
    }
}

fn judge(facts: &ServerFacts, connections: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(version(facts));
    found.extend(durability(facts));
    found.push(room(facts, connections));
    found
}

fn version(facts: &ServerFacts) -> Option<Finding> {
    let major = facts.version_number / 10_000;
    let min = limits::POSTGRES_VERSION_MIN;
    let tested = limits::POSTGRES_VERSION_TESTED;
    if major < min {
        return Some(Failure(format!(
            "Postgres version: {} is too old: the service needs {min} or newer. Upgrade it",
            facts.version
        )));
    }
    (major < tested).then(|| {
        Warning(format!(
            "Postgres version: {} is older than {tested}, the oldest that was tested; the service needs {min}. What goes wrong there is unknown: upgrade it",
            facts.version
        ))
    })
}

/// Durability of commits. Once an order is committed, its entry is acknowledged and may be trimmed, so a commit that is
/// lost is an order that is lost.
fn durability(facts: &ServerFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    if !facts.fsync {
        found.push(Failure(
            "Postgres fsync is off: a power cut or a crash of the machine can damage the database beyond repair, and orders that the order log no longer has are lost. Set it to on".into(),
        ));
    }
    match (facts.synchronous_commit.as_str(), facts.synchronous_standbys.as_str()) {
        ("off", _) => found.push(Failure(
            "Postgres synchronous_commit is off for us: a crash of Postgres loses commits of the last moments, orders that the order log no longer has. Set it to on for this role and database".into(),
        )),
        ("local", standbys) if !standbys.is_empty() => found.push(Warning(format!(
            "Postgres synchronous_commit is local for us: our commits don't wait for the standbys ({standbys}), and a fail-over to one can lose orders. Set it to on for this role and database"
        ))),
        _ => {}
    }
    if !facts.full_page_writes {
        found.push(Warning(
            "Postgres full_page_writes is off: a power cut can leave half-written pages, unless the file system never does (ZFS). Set it to on".into(),
        ));
    }
    if found.is_empty() {
        let setting = &facts.synchronous_commit;
        found.push(Good(format!(
            "Postgres durability: a commit is on disk (fsync on, synchronous_commit {setting})"
        )));
    }
    found
}

fn room(facts: &ServerFacts, connections: i64) -> Finding {
    let ServerFacts { connections_max: max, connections_others: others, .. } = facts;
    let used = format!("{max} at most, {others} in use by others");
    if others + connections <= *max {
        return Good(format!(
            "Postgres connections: {used}; each process of ours opens up to {connections}"
        ));
    }
    Warning(format!(
        "Postgres connections: {used}, and each process of ours opens up to {connections}: under load some are refused, and orders are written late. Raise max_connections, or lower --database-connections"
    ))
}
