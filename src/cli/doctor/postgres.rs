//! Findings about Postgres.

use sqlx::PgPool;

use super::Finding::{self, Failure, Good, Warning};
use crate::base::config::StoreConfig;
use crate::base::limits;
use crate::cli::remedies::with_remedy;
use crate::cli::stores::BEFORE_1_0;
use crate::kit::postgres::{self, ServerFacts};
use crate::sale::installation;
use crate::sale::schema::{self, Fitness};

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
            found.push(migrated(pool).await);
            found.push(rights(pool).await);
            found
        }
        Err(error) => vec![Failure(format!(
            "Postgres at {place} can't be used ({}): no order can be written, and claims pile up in Redis. Start it, or correct --database-url",
            with_remedy(&error.to_string())
        ))],
    }
}

async fn rights(pool: &PgPool) -> Finding {
    match schema::missing_rights(pool).await {
        Ok(missing) if missing.is_empty() => {
            Good("Postgres rights: each table, sequence and function is allowed".into())
        }
        Ok(missing) => Failure(format!(
            "Postgres rights: the role lacks {}, and `serve` refuses to start. deploy/postgres/roles.sql gives them",
            missing.join(", ")
        )),
        Err(error) => Failure(format!("Postgres rights can't be read ({error})")),
    }
}

async fn migrated(pool: &PgPool) -> Finding {
    match schema::fitness(pool).await {
        Ok(Fitness::UpToDate) => {}
        Ok(Fitness::Older(missing)) => {
            return Failure(format!(
                "Postgres lacks migrations ({}): no order can be written. Run `flash-sale migrate`",
                missing.join(", ")
            ));
        }
        Ok(Fitness::Before1_0) => return Failure(format!("Postgres: {BEFORE_1_0}")),
        Ok(Fitness::Newer(unknown)) => {
            return Failure(format!(
                "Postgres has had migrations that this flash-sale doesn't know ({}): no process of it starts. Run the newer one that has upgraded the database",
                unknown.join(", ")
            ));
        }
        Err(error) => {
            return Failure(format!(
                "Postgres doesn't tell which migrations it has had ({error}). Let the user of --database-url read the table _sqlx_migrations"
            ));
        }
    }
    match installation::read(pool).await {
        Ok(settings) => Good(format!("Postgres schema: up to date; lanes: {}", settings.lanes)),
        Err(error) => Failure(format!(
            "Postgres doesn't let us read our tables ({error}). Give the user of --database-url its rights on them"
        )),
    }
}

fn judge(facts: &ServerFacts, connections: i64) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(version(facts));
    if facts.is_standby {
        found.push(Failure(
            "Postgres is a standby: it takes no writes, so no order can be written, and claims pile up in Redis. Let --database-url name its primary".into(),
        ));
    } else if facts.is_read_only {
        found.push(Failure(
            "Postgres default_transaction_read_only is on for us: no order can be written, and claims pile up in Redis. Set it to off for this role and database".into(),
        ));
    }
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

/// Durability of commits. An entry is acknowledged, and may be trimmed, once its order is committed.
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

#[cfg(test)]
mod tests {
    use super::super::not_good;
    use super::*;

    fn facts() -> ServerFacts {
        ServerFacts {
            version: "15.14".into(),
            version_number: 150_014,
            is_standby: false,
            is_read_only: false,
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".into(),
            synchronous_standbys: String::new(),
            connections_max: 97,
            connections_others: 81,
        }
    }

    fn bad(facts: &ServerFacts) -> Option<Finding> {
        not_good(judge(facts, 16))
    }

    #[test]
    fn what_no_test_server_can_show_is_judged() {
        assert_eq!(bad(&facts()), None);
        let local = || ServerFacts { synchronous_commit: "local".into(), ..facts() };
        assert_eq!(bad(&local()), None);
        for (facts, names, fails) in [
            (ServerFacts { version_number: 90_624, ..facts() }, "too old", true),
            (ServerFacts { version_number: 140_020, ..facts() }, "older than 15", false),
            (ServerFacts { is_standby: true, is_read_only: true, ..facts() }, "standby", true),
            (
                ServerFacts { synchronous_standbys: "one".into(), ..local() },
                "wait for the standbys (one)",
                false,
            ),
            (ServerFacts { connections_others: 82, ..facts() }, "under load", false),
        ] {
            let found = bad(&facts);
            let text = match &found {
                Some(Failure(text)) if fails => text,
                Some(Warning(text)) if !fails => text,
                _ => panic!("{found:?}"),
            };
            assert!(text.contains(names), "{text}");
        }
    }
}
