//! Ways to write the claims of a batch. Each fails as a whole on an order that is there already.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{AssertSqlSafe, PgConnection};

use super::claims::Claims;
use crate::arguments::rows::Way;

/// Start of Postgres's times, in microseconds since that of Unix.
const EPOCH_2000_US: i64 = 946_684_800_000_000;

impl Way {
    /// Name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnnestSorted => "INSERT from UNNEST, ORDER BY id",
            Self::Unnest => "INSERT from UNNEST, sorted by the client",
            Self::UnnestInList => "INSERT from arrays in the SELECT list, sorted by the client",
            Self::ByUser => "INSERT from arrays in the SELECT list, sorted by user",
            Self::CopyText => "COPY into orders, text",
            Self::CopyBinary => "COPY into orders, binary",
            Self::Staged => "binary COPY into a temporary table, INSERT from it",
        }
    }

    /// Prepares a connection.
    pub async fn prepare(self, connection: &mut PgConnection) -> sqlx::Result<()> {
        if self == Self::Staged {
            let table = "CREATE TEMPORARY TABLE IF NOT EXISTS staged
                         (id bigint, coupon_id bigint, user_id bigint, claimed_at timestamptz, pay_cents bigint,
                          currency text, pay_by timestamptz)
                         ON COMMIT DELETE ROWS";
            sqlx::raw_sql(table).execute(connection).await?;
        }
        Ok(())
    }

    /// Writes the rows, within a transaction of the caller.
    pub async fn write(self, connection: &mut PgConnection, claims: &Claims) -> sqlx::Result<u64> {
        const ORDERS: &str =
            "orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)";
        match self {
            Self::UnnestSorted => insert(connection, claims, UNNEST_SORTED).await,
            Self::Unnest => insert(connection, claims, UNNEST).await,
            Self::UnnestInList => insert(connection, claims, IN_LIST).await,
            Self::ByUser => insert(connection, &claims.by_user(), IN_LIST).await,
            Self::CopyText => copy(connection, ORDERS, "", &text(claims)).await,
            Self::CopyBinary => {
                copy(connection, ORDERS, "(FORMAT binary)", &binary(claims, true)).await
            }
            Self::Staged => {
                copy(connection, "staged", "(FORMAT binary)", &binary(claims, false)).await?;
                Ok(sqlx::query(STAGED).execute(connection).await?.rows_affected())
            }
        }
    }
}

const UNNEST_SORTED: &str = "
    INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
    SELECT id, coupon_id, 'flash', user_id, claimed_at, 1, 'CNY', claimed_at + interval '15 min'
    FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::timestamptz[])
         AS claim (id, coupon_id, user_id, claimed_at)
    ORDER BY id";
const UNNEST: &str = "
    INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
    SELECT id, coupon_id, 'flash', user_id, claimed_at, 1, 'CNY', claimed_at + interval '15 min'
    FROM UNNEST($1::bigint[], $2::bigint[], $3::bigint[], $4::timestamptz[])
         AS claim (id, coupon_id, user_id, claimed_at)";
const IN_LIST: &str = "
    INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
    SELECT unnest($1::bigint[]), unnest($2::bigint[]), 'flash', unnest($3::bigint[]), unnest($4::timestamptz[]),
           1, 'CNY', unnest($4) + interval '15 min'";
const STAGED: &str = "
    INSERT INTO orders (id, coupon_id, kind, user_id, claimed_at, pay_cents, currency, pay_by)
    SELECT id, coupon_id, 'flash', user_id, claimed_at, pay_cents, currency, pay_by FROM staged";

async fn insert(
    connection: &mut PgConnection,
    claims: &Claims,
    sql: &'static str,
) -> sqlx::Result<u64> {
    let query = sqlx::query(sql).bind(&claims.ids).bind(&claims.coupons);
    let done = query.bind(&claims.users).bind(&claims.times).execute(connection).await?;
    Ok(done.rows_affected())
}

async fn copy(
    connection: &mut PgConnection,
    into: &str,
    how: &str,
    rows: &[u8],
) -> sqlx::Result<u64> {
    let mut copy = connection.copy_in_raw(&format!("COPY {into} FROM STDIN {how}")).await?;
    copy.send(rows).await?;
    copy.finish().await
}

fn text(claims: &Claims) -> Vec<u8> {
    let row = |at: usize| {
        let (id, coupon, user) = (claims.ids[at], claims.coupons[at], claims.users[at]);
        let (claimed_at, pay_by) =
            (claims.times[at].to_rfc3339(), pay_by(claims.times[at]).to_rfc3339());
        format!("{id}\t{coupon}\tflash\t{user}\t{claimed_at}\t{PAY_CENTS}\t{CURRENCY}\t{pay_by}\n")
    };
    (0..claims.len()).flat_map(|at| row(at).into_bytes()).collect()
}

/// Rows in the format of COPY: a head, for each row the number of fields and each field behind its length, and an end.
fn binary(claims: &Claims, with_kind: bool) -> Vec<u8> {
    let mut bytes = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
    let field = |bytes: &mut Vec<u8>, field: &[u8]| {
        bytes.extend((field.len() as i32).to_be_bytes());
        bytes.extend(field);
    };
    for at in 0..claims.len() {
        bytes.extend(if with_kind { 8_i16 } else { 7 }.to_be_bytes());
        field(&mut bytes, &claims.ids[at].to_be_bytes());
        field(&mut bytes, &claims.coupons[at].to_be_bytes());
        if with_kind {
            field(&mut bytes, b"flash");
        }
        field(&mut bytes, &claims.users[at].to_be_bytes());
        field(&mut bytes, &microseconds(claims.times[at]).to_be_bytes());
        field(&mut bytes, &PAY_CENTS.to_be_bytes());
        field(&mut bytes, CURRENCY.as_bytes());
        field(&mut bytes, &microseconds(pay_by(claims.times[at])).to_be_bytes());
    }
    bytes.extend((-1_i16).to_be_bytes());
    bytes
}

/// Terms of each order.
const PAY_CENTS: i64 = 1;
const CURRENCY: &str = "CNY";

fn pay_by(claimed_at: DateTime<Utc>) -> DateTime<Utc> {
    claimed_at + TimeDelta::minutes(15)
}

fn microseconds(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros() - EPOCH_2000_US
}

/// Runs statements of the bench's own.
pub async fn run(connection: &mut PgConnection, statements: &str) -> sqlx::Result<()> {
    let statements = AssertSqlSafe(statements.to_owned());
    sqlx::raw_sql(statements).execute(connection).await.map(|_| ())
}
