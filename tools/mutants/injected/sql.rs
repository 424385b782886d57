//! Queries of the mutants: the end of the module with the switches, of the crate that has queries.

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo, Postgres};
use sqlx::{AssertSqlSafe, Describe, Either, Error, Execute, Executor, SqlSafeStr, SqlStr};

/// An executor that may send another text than it is given.
#[derive(Debug)]
pub struct Sql<X> {
    number: u32,
    inner: X,
}

impl<X> Sql<X> {
    /// Around the executor of the query with this number.
    pub fn new(number: u32, inner: X) -> Self {
        if let Mode::Record(file) = &*MODE {
            reach(number, file);
        }
        Self { number, inner }
    }
}

/// A query with another text.
struct Changed<E> {
    number: u32,
    inner: E,
}

impl<'q, E: Execute<'q, Postgres>> Execute<'q, Postgres> for Changed<E> {
    fn sql(self) -> SqlStr {
        match &*MODE {
            Mode::Text { number, text } if *number == self.number => {
                AssertSqlSafe((*text).to_owned()).into_sql_str()
            }
            _ => self.inner.sql(),
        }
    }

    fn statement(&self) -> Option<&PgStatement> {
        self.inner.statement()
    }

    fn take_arguments(
        &mut self,
    ) -> Result<Option<sqlx::postgres::PgArguments>, sqlx::error::BoxDynError> {
        self.inner.take_arguments()
    }

    fn persistent(&self) -> bool {
        self.inner.persistent()
    }
}

impl<'c, X: Executor<'c, Database = Postgres>> Executor<'c> for Sql<X> {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<PgQueryResult, PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.inner.fetch_many(Changed { number: self.number, inner: query })
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<PgRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        self.inner.fetch_optional(Changed { number: self.number, inner: query })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, Result<PgStatement, Error>>
    where
        'c: 'e,
    {
        self.inner.prepare_with(sql, parameters)
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<Postgres>, Error>>
    where
        'c: 'e,
    {
        self.inner.describe(sql)
    }
}
