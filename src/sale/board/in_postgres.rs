//! Facts that Postgres has: coupons, comparisons, and all that waits for an operator.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use sqlx::PgPool;
use tokio::time::Instant;

use super::sources::Sources;
use crate::base::limits;
use crate::kit::postgres;
use crate::sale::Failure;
use crate::sale::coupon::model::Coupon;
use crate::sale::coupon::stock::{self, HeldSale};
use crate::sale::ids::CouponId;
use crate::sale::order::dead_letter::{self, Letter, LetterFilter};
use crate::sale::payment::owed::{self, Owed, OwedFilter, OwedPayment};
use crate::sale::postponed::{PostponedItem, PostponedPart};
use crate::sale::reconcile::runs::{self, Run};
use crate::sale::recovery::records::{self, Recovery, RecoveryPart};

/// Facts of one look.
#[derive(Clone, Debug)]
pub struct InPostgres {
    /// Time that Postgres needs to tell the time.
    pub ping: Duration,
    /// The newest sales that aren't over, and behind them the newest others.
    pub sales: Vec<Coupon>,
    /// Those of them that Redis has to hold.
    pub loaded: Vec<HeldSale>,
    /// Open dead letters of the sales that have any.
    pub in_review: HashMap<CouponId, usize>,
    /// Number of open dead letters.
    pub letters_open: i64,
    /// The newest of them.
    pub letters: Vec<Letter>,
    /// Comparisons, newest first.
    pub runs: Vec<Run>,
    /// Recoveries, newest first: the newest, and those that wait to be settled.
    pub recoveries: Vec<Recovery>,
    /// Number of recoveries that wait to be settled: with claims that could not be kept.
    pub recoveries_unsettled: i64,
    /// Payments that wait, by status.
    pub owed: [Owed; 2],
    /// The newest of them.
    pub owed_payments: Vec<OwedPayment>,
    /// Number of postponed items.
    pub postponed_waiting: i64,
    /// The newest of them.
    pub postponed: Vec<PostponedItem>,
}

impl InPostgres {
    /// Looks now.
    pub async fn look(sources: &Sources) -> Result<Self, Failure> {
        let pool = &sources.stores.pool;
        let began = Instant::now();
        let now = postgres::time(pool).await?;
        let ping = began.elapsed();
        let letters_open = dead_letter::count_open(pool).await?;
        let letters = match letters_open {
            0 => Vec::new(),
            _ => {
                sources
                    .dead_letters
                    .list(&LetterFilter::default(), None, limits::BOARD_ITEMS_MAX)
                    .await?
            }
        };
        let owed = owed::count(pool).await?;
        let owed_payments = match owed.iter().map(|it| it.payments).sum::<i64>() {
            0 => Vec::new(),
            _ => owed::waiting(pool, &OwedFilter::default(), None, limits::BOARD_ITEMS_MAX).await?,
        };
        let waiting = sources.postponed.waiting().await?;
        let sales = sources.coupons.newest_sales(now, limits::BOARD_SALES_MAX).await?;
        let ids: Vec<CouponId> = sales.iter().map(|coupon| coupon.id).collect();
        let loaded = stock::loaded_of(pool, &ids).await?;
        let mut in_review = HashMap::new();
        if letters_open > 0 {
            for HeldSale { coupon, .. } in &loaded {
                let open = dead_letter::open_of_coupon(pool, *coupon).await?.len();
                in_review.insert(*coupon, open);
            }
        }
        let recoveries_unsettled = records::count_unsettled(pool).await?;
        let recoveries = recoveries(pool, recoveries_unsettled > 0).await?;
        Ok(Self {
            ping,
            sales,
            loaded,
            in_review,
            letters_open,
            letters,
            runs: runs::list(pool, None, limits::BOARD_RUNS_MAX).await?,
            recoveries,
            recoveries_unsettled,
            owed,
            owed_payments,
            postponed_waiting: waiting.values().map(|waiting| waiting.items).sum(),
            postponed: sources
                .postponed
                .list(PostponedPart::Waiting, None, None, limits::BOARD_ITEMS_MAX)
                .await?,
        })
    }

    /// The sales on the board that Redis has to hold, with their units sold.
    pub fn sales_in_redis(&self) -> Vec<(CouponId, i64)> {
        self.loaded.iter().map(|sale| (sale.coupon, sale.sold)).collect()
    }
}

/// The newest recoveries, and the newest of those that wait to be settled.
async fn recoveries(pool: &PgPool, any_waits: bool) -> sqlx::Result<Vec<Recovery>> {
    let (all, unsettled) = (RecoveryPart::All, RecoveryPart::Unsettled);
    let mut found = records::list(pool, all, None, limits::BOARD_RECOVERIES_MAX).await?;
    if any_waits {
        found.extend(records::list(pool, unsettled, None, limits::BOARD_ITEMS_MAX).await?);
        found.sort_by_key(|recovery| Reverse(recovery.id));
        found.dedup_by_key(|recovery| recovery.id);
    }
    Ok(found)
}
