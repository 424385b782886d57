//! Locks around a transaction, and the locks of the database itself. One unit is for sale.

#![expect(
    clippy::disallowed_methods,
    reason = "these callers are not dropped while they begin a transaction"
)]

use std::time::Duration;

use anyhow::{Context, ensure};
use sqlx::{PgConnection, PgPool};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::Shown;
use crate::scene::{LONG, Scene};

/// Sells a unit, if there seems to be one left.
async fn sell(connection: &mut PgConnection, buyer: &str) -> anyhow::Result<bool> {
    let left: i64 = sqlx::query_scalar("SELECT units - (SELECT count(*) FROM sold) FROM shop")
        .fetch_one(&mut *connection)
        .await?;
    if left > 0 {
        sqlx::query("INSERT INTO sold VALUES ($1)").bind(buyer).execute(connection).await?;
    }
    Ok(left > 0)
}

async fn sold(pool: &PgPool) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM sold").fetch_one(pool).await?)
}

async fn start_over(pool: &PgPool) -> anyhow::Result<()> {
    sqlx::query("TRUNCATE sold").execute(pool).await?;
    Ok(())
}

pub async fn released_before_the_commit(scene: &Scene) -> anyhow::Result<Shown> {
    let lock = Mutex::new(());
    let mut ann = scene.pool.begin().await?;
    let inside = lock.lock().await;
    ensure!(sell(&mut ann, "Ann").await?, "there is a unit");
    drop(inside);
    // What Ann has sold isn't there for anybody else yet.
    let mut ben = scene.pool.begin().await?;
    let inside = lock.lock().await;
    ensure!(sell(&mut ben, "Ben").await?, "there seems to be a unit");
    drop(inside);
    ann.commit().await?;
    ben.commit().await?;
    let sold = sold(&scene.pool).await?;
    ensure!(sold == 2, "sold {sold}");
    start_over(&scene.pool).await?;
    Shown::new(
        "one unit, sold to two: the second one looked before the first had committed",
        "a lock has to be held until what it protects can be seen",
    )
}

pub async fn row_lock(scene: &Scene) -> anyhow::Result<Shown> {
    let mut ann = scene.pool.begin().await?;
    sqlx::query("SELECT FROM shop FOR UPDATE").execute(&mut *ann).await?;
    ensure!(sell(&mut ann, "Ann").await?, "there is a unit");
    let ben = async {
        let mut ben = scene.pool.begin().await?;
        sqlx::query("SELECT FROM shop FOR UPDATE").execute(&mut *ben).await?;
        let bought = sell(&mut ben, "Ben").await?;
        ben.commit().await?;
        anyhow::Ok(bought)
    };
    let others = async {
        // The pool has two connections: Ann has one, and Ben waits on the other.
        while scene.pool.num_idle() > 0 || scene.pool.size() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let third = timeout(Duration::from_millis(200), scene.pool.acquire()).await;
        ann.commit().await?;
        anyhow::Ok(third.is_err())
    };
    let (bought, turned_away) = tokio::join!(ben, others);
    ensure!(!bought?, "the second one sees what the first has sold");
    ensure!(turned_away?, "there was a connection left");
    ensure!(sold(&scene.pool).await? == 1, "one unit");
    start_over(&scene.pool).await?;
    Shown::new(
        "one unit, sold once; but a request that waits holds a connection, and a third request got none of two",
        "right, and dear: a crowd that waits must not wait in the database",
    )
}

pub async fn advisory_lock(scene: &Scene) -> anyhow::Result<Shown> {
    const TRY: &str = "SELECT pg_try_advisory_xact_lock(7)";
    let mut ann = scene.pool.begin().await?;
    let taken: bool = sqlx::query_scalar(TRY).fetch_one(&mut *ann).await?;
    ensure!(taken && sell(&mut ann, "Ann").await?, "there is a unit");
    let mut ben = scene.pool.begin().await?;
    let taken: bool = sqlx::query_scalar(TRY).fetch_one(&mut *ben).await?;
    ensure!(!taken, "Ann has it until she has committed");
    ben.rollback().await?;
    ann.commit().await?;
    start_over(&scene.pool).await?;
    // The lock of a session outlives its transaction, and a pool hands the session on.
    let mut session = scene.pool.acquire().await?;
    sqlx::query("SELECT pg_advisory_lock(8)").execute(&mut *session).await?;
    drop(session);
    let mut both = vec![scene.pool.acquire().await?];
    both.push(timeout(LONG, scene.pool.acquire()).await.context("there are two")??);
    let mut got = 0;
    for session in &mut both {
        let taken: bool =
            sqlx::query_scalar("SELECT pg_try_advisory_lock(8)").fetch_one(&mut **session).await?;
        got += i32::from(taken);
    }
    ensure!(got == 1, "{got} of 2 sessions got it");
    for session in &mut both {
        sqlx::query("SELECT pg_advisory_unlock_all()").execute(&mut **session).await?;
    }
    Shown::new(
        "the second one was told no at once; but a session's lock stayed with its connection in the pool, and the next borrower of that connection got in",
        "good for the rare job in one database; for a crowd, a lock outside of it",
    )
}
