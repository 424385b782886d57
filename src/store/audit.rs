//! The audit log: changes that the staff has made. Owner of the table `audit`.
//!
//! A change of rows in Postgres and its entry share a transaction. An action that takes several transactions, or that
//! also goes to Redis (a retry of a dead letter, the recovery of a lane), is logged before it begins or after it is
//! done, as its function says. A request that changes nothing (a repeat, or a refused request) leaves no entry.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use crate::kit::jwt::Scope;
use crate::store::ids::{AuditId, SubjectId, UserId};
use crate::store::postgres;

/// Scope in the entries of a command.
const COMMAND_LINE: &str = "command_line";

/// A member of the staff who makes a change.
#[derive(Clone, Debug)]
pub struct Actor {
    /// Subject of the token; `None` for a command.
    id: Option<UserId>,
    scope: &'static str,
}

impl Actor {
    pub fn staff(id: UserId, scope: Scope) -> Self {
        Self { id: Some(id), scope: scope.role() }
    }

    pub fn command_line() -> Self {
        Self { id: None, scope: COMMAND_LINE }
    }
}

/// Kind of change in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Action {
    /// A coupon is created.
    CreateCoupon,
    /// A coupon's words, prices, total or window are edited.
    EditCoupon,
    /// A coupon is paused.
    PauseCoupon,
    /// A paused coupon goes on.
    ResumeCoupon,
    /// A coupon is ended.
    EndCoupon,
    /// Units are added to a sale.
    RestockCoupon,
    /// A sale leaves Redis.
    ArchiveCoupon,
    /// An unpaid order is cancelled for its buyer.
    CancelOrder,
    /// A refund of a paid order is requested for its buyer.
    RefundOrder,
    /// All unpaid orders of a coupon are cancelled by the staff.
    CancelUnpaidOrders,
    /// An order is redeemed.
    RedeemOrder,
    /// A dead letter is discarded by the staff.
    DiscardDeadLetter,
    /// A dead letter is retried and becomes an order.
    RetryDeadLetter,
    /// A held payment is returned to its payer.
    HandPaymentBack,
    /// A payment is closed without its gateway.
    ClosePayment,
    /// A postponed item is made due at once.
    RetryPostponed,
    /// A lane is closed, so that it is recovered.
    RecoverLane,
    /// An endpoint is named, to which events are sent.
    CreateWebhook,
    /// An endpoint is changed.
    ChangeWebhook,
    /// An endpoint is deleted.
    DeleteWebhook,
    /// Claims that a recovery could not keep have been settled with their buyers.
    SettleRecovery,
}

#[derive(Clone, Debug)]
pub struct Event {
    action: Action,
    subject: Option<i64>,
    before: Option<Value>,
    after: Option<Value>,
}

impl Event {
    /// This action on the thing with this id.
    pub fn of(action: Action, subject: i64) -> Self {
        Self { action, subject: Some(subject), before: None, after: None }
    }

    pub fn without_subject(action: Action) -> Self {
        Self { action, subject: None, before: None, after: None }
    }

    pub fn before(self, before: impl Serialize) -> Self {
        Self { before: Some(json(before)), ..self }
    }

    pub fn after(self, after: impl Serialize) -> Self {
        Self { after: Some(json(after)), ..self }
    }
}

fn json(values: impl Serialize) -> Value {
    serde_json::to_value(values).expect("a few values can be written as JSON")
}

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AuditEntry {
    /// Id of the entry.
    pub id: AuditId,
    /// Time of the change.
    pub at: DateTime<Utc>,
    /// Subject of the token; null for a command.
    pub actor: Option<UserId>,
    /// Scope of the staff member: the `role` in the token, or `command_line`.
    pub scope: String,
    /// Name of the action.
    pub action: String,
    /// Id of the thing that was changed; null for a lane.
    pub subject: Option<SubjectId>,
    /// Values before the change; null if there were none.
    #[schema(value_type = Option<Object>)]
    pub before: Option<Value>,
    /// Values after the change; null if there are none.
    #[schema(value_type = Option<Object>)]
    pub after: Option<Value>,
}

/// Selects entries; each part that is set narrows them down.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    pub action: Option<Action>,
    /// About the thing with this id.
    pub subject: Option<SubjectId>,
}

/// The audit log. Clones share the pool.
#[derive(Clone)]
pub struct Audit {
    pool: PgPool,
}

impl Audit {
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// Lists entries, newest first, starting after the entry `behind`.
    pub async fn list(
        &self,
        filter: &Filter,
        behind: Option<AuditId>,
        limit: u32,
    ) -> sqlx::Result<Vec<AuditEntry>> {
        // Each combination of parts has its own index, which a generic plan can't choose.
        let mut tx = postgres::begin_planning(&self.pool).await?;
        let entries = sqlx::query_as!(
            AuditEntry,
            r#"SELECT id AS "id: AuditId", at, actor AS "actor: UserId", scope, action,
                      subject_id AS "subject: SubjectId", before, after
               FROM audit
               WHERE ($1::text IS NULL OR action = $1) AND ($2::bigint IS NULL OR subject_id = $2) AND id < $3
               ORDER BY id DESC LIMIT $4"#,
            filter.action as Option<Action>,
            filter.subject.map(SubjectId::get),
            behind.map_or(i64::MAX, AuditId::get),
            i64::from(limit),
        );
        entries.fetch_all(&mut *tx).await
    }
}

/// Deletes entries older than `before`, oldest first, `limit` at most. Returns their number.
pub async fn forget(pool: &PgPool, before: DateTime<Utc>, limit: u32) -> sqlx::Result<u64> {
    let mut tx = postgres::begin_planning(pool).await?;
    let gone = sqlx::query!(
        "DELETE FROM audit WHERE id = ANY(ARRAY(
             SELECT id FROM audit WHERE at < $1 ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED))",
        before,
        i64::from(limit),
    );
    let deleted = gone.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// Writes an entry, in the transaction of the change where there is one.
pub async fn note(connection: &mut PgConnection, by: &Actor, event: Event) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO audit (actor, scope, action, subject_id, before, after)
         VALUES ($1, $2, $3, $4, $5, $6)",
        by.id.map(UserId::get),
        by.scope,
        event.action as Action,
        event.subject,
        event.before,
        event.after,
    )
    .execute(connection)
    .await?;
    Ok(())
}
