//! Facts from Postgres: coupons, comparisons, and everything that waits for an operator.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::sources::Sources;
use crate::base::limits;
use crate::coupon::model::Coupon;
use crate::coupon::stock::{self, HeldSale};
use crate::operator::operations::{self, OpenCount, OpenItem, OpenKind};
use crate::order::dead_letter;
use crate::recovery::reconcile::runs::{self, Finding, Run};
use crate::recovery::records::{self, Recovery, RecoveryFilter};
use crate::store::Failure;
use crate::store::ids::CouponId;
use crate::store::postgres;

#[derive(Clone, Debug)]
pub struct InPostgres {
    /// How long Postgres takes to answer.
    pub ping: Duration,
    /// The newest sales that haven't ended, and after them the newest others.
    pub sales: Vec<Coupon>,
    /// Those of the sales that Redis should have.
    pub loaded: Vec<HeldSale>,
    /// Open dead letters of the sales that have any.
    pub in_review: HashMap<CouponId, usize>,
    /// What the board passes on unchanged.
    pub records: Records,
}

/// Records in Postgres, as the board shows them.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Records {
    /// Items that wait for an operator, counted by kind; null before the first read of Postgres.
    waits: Option<Vec<OpenCount>>,
    /// The newest items of each kind, at most 20.
    waiting: Vec<OpenItem>,
    /// Comparisons, newest first, at most 30; without their findings.
    runs: Vec<Run>,
    /// Findings of the last comparison that was completed, at most 20.
    findings: Vec<Finding>,
    /// Recoveries of lanes, newest first, at most 5.
    recoveries: Vec<Recovery>,
}

impl InPostgres {
    pub async fn check(sources: &Sources) -> Result<Self, Failure> {
        let pool = &sources.stores.pool;
        let began = Instant::now();
        postgres::time(pool).await?;
        let ping = began.elapsed();
        let waits = operations::count(pool).await?;
        let waiting = operations::newest(pool, &waits, limits::BOARD_ITEMS_MAX).await?;
        let sales =
            sources.coupons.newest_sales(sources.clock.now(), limits::BOARD_SALES_MAX).await?;
        let ids: Vec<CouponId> = sales.iter().map(|coupon| coupon.id).collect();
        let loaded = stock::loaded_of(pool, &ids).await?;
        let mut in_review = HashMap::new();
        if waits.iter().any(|count| count.kind == OpenKind::DeadLetter.as_str()) {
            for HeldSale { coupon, .. } in &loaded {
                let open = dead_letter::open_of_coupon(pool, *coupon).await?.len();
                in_review.insert(*coupon, open);
            }
        }
        let mut runs = runs::list(pool, None, limits::BOARD_RUNS_MAX).await?;
        let compared = runs.iter_mut().find(|run| run.disagreements.is_some());
        let mut findings = compared.map(|run| std::mem::take(&mut run.findings.0));
        findings.iter_mut().for_each(|all| all.truncate(limits::BOARD_ITEMS_MAX as usize));
        for run in &mut runs {
            run.findings.0.clear();
        }
        let filter = RecoveryFilter::default();
        let recoveries = records::list(pool, filter, None, limits::BOARD_RECOVERIES_MAX).await?;
        let (waits, findings) = (Some(waits), findings.unwrap_or_default());
        let records = Records { waits, waiting, runs, findings, recoveries };
        Ok(Self { ping, sales, loaded, in_review, records })
    }

    /// The sales on the board that Redis should have, each with its units sold.
    pub fn sales_in_redis(&self) -> Vec<(CouponId, i64)> {
        self.loaded.iter().map(|sale| (sale.coupon, sale.sold)).collect()
    }
}
