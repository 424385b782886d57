//! One sale at one moment: its sum in Redis, and its terms in both stores.
//!
//! A change (an edit, a pause, more stock) reaches Postgres first and Redis a moment later, each with the same
//! revision. So Postgres is read first: a newer revision in Redis means that the change came in between, and both are
//! read again; an older one means that the change is still on its way.

// Its buyers and orders.
mod promises;

// Its side in Postgres.
mod rows;

// Digests of buyers and orders.
mod digest;

use promises::Promises;
pub(super) use rows::terms;

use super::{Check, Disagreement, Report, SaleCount};
use crate::base::limits;
use crate::sale::Failure;
use crate::sale::buyers::census::{Census, census};
use crate::sale::ids::CouponId;

/// Times that a sale is read again because it was changed meanwhile.
const READS_MAX: usize = 5;

impl Check<'_> {
    /// Compares one sale.
    pub(super) async fn sale(&self, coupon: CouponId, report: &mut Report) -> Result<(), Failure> {
        let Some((terms, census)) = self.read_sale(coupon).await? else {
            return Ok(());
        };
        let (Some(total), Some(stock)) = (census.total, census.stock) else {
            report.disagreements.push(Disagreement::SaleMissing { coupon });
            return Ok(());
        };
        report.disagreements.extend(sums(coupon, total, stock, &census));
        report.disagreements.extend(compare(coupon, &terms, &census));
        let Promises { live_orders, in_review, identical } =
            self.promises(coupon, &mut report.disagreements).await?;
        let buyers = census.buyers;
        report.sales.push(SaleCount {
            coupon,
            total,
            stock,
            buyers,
            live_orders,
            in_review,
            identical,
        });
        Ok(())
    }

    /// The facts of both stores. `None` if the sale has been archived.
    async fn read_sale(&self, coupon: CouponId) -> Result<Option<(rows::Terms, Census)>, Failure> {
        for read in 1.. {
            let Some(terms) = rows::terms(self.pool, coupon).await? else {
                break;
            };
            let census = census(self.redis, self.keys, coupon).await?;
            let missing = census.total.is_none();
            let changed = census.revision.is_some_and(|revision| revision > terms.revision);
            // Missing: archived since Postgres was read, or lost.
            if !missing && !changed || read >= READS_MAX {
                return Ok(Some((terms, census)));
            }
        }
        Ok(None)
    }
}

/// The numbers of the sale in Redis among themselves.
fn sums(coupon: CouponId, total: i64, stock: i64, census: &Census) -> Vec<Disagreement> {
    let Census { buyers, shards_missing: shards, .. } = *census;
    let mut found = Vec::new();
    if shards > 0 {
        found.push(Disagreement::ShardsMissing { coupon, shards });
    }
    if total != stock + buyers {
        found.push(Disagreement::NotConserved { coupon, total, stock, buyers });
    }
    if stock < 0 {
        found.push(Disagreement::NegativeStock { coupon, stock });
    }
    found
}

/// The terms in Redis against those in Postgres.
fn compare(coupon: CouponId, terms: &rows::Terms, census: &Census) -> Vec<Disagreement> {
    let Census { total, state, revision, epoch, opens_ms, closes_ms, .. } = census;
    let mut found = Vec::new();
    if let (Some(redis), Some(postgres)) = (*epoch, terms.epoch)
        && redis != postgres
    {
        found.push(Disagreement::EpochDiffers { coupon, redis, postgres });
    }
    if let Some(redis) = revision.filter(|redis| *redis != terms.revision) {
        let postgres = terms.revision;
        if redis > postgres
            || u128::try_from(terms.changed_ms_ago).unwrap_or(0)
                > limits::CHANGE_APPLIED_MAX.as_millis()
        {
            found.push(Disagreement::RevisionDiffers { coupon, redis, postgres });
        }
        return found;
    }
    if let Some(redis) = total.filter(|redis| *redis != terms.total) {
        found.push(Disagreement::TotalDiffers { coupon, redis, postgres: terms.total });
    }
    let mut differ = |what, redis: &str, postgres: &str| {
        if redis != postgres {
            let redis = redis.to_owned();
            let postgres = postgres.to_owned();
            found.push(Disagreement::TermsDiffer { coupon, what, redis, postgres });
        }
    };
    // Its first claim will open it.
    let state = state.as_deref().filter(|state| *state != "loading");
    differ("state", state.unwrap_or(terms.state.as_str()), terms.state.as_str());
    for (what, redis, postgres) in
        [("start", opens_ms, terms.opens_at), ("end", closes_ms, terms.closes_at)]
    {
        let ms = |ms: i64| format!("{ms} ms since 1970");
        let redis = redis.map_or_else(|| "missing".to_owned(), ms);
        differ(what, &redis, &ms(postgres.timestamp_millis()));
    }
    found
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::sale::coupon::model::CouponState;

    fn coupon() -> CouponId {
        CouponId::compose(1, 1)
    }

    /// A sale of five units in Redis, two of which are sold.
    fn in_redis() -> Census {
        Census {
            buyers: 2,
            generation: 0,
            shards_missing: 0,
            total: Some(5),
            stock: Some(3),
            state: Some("active".into()),
            revision: Some(4),
            epoch: Some(6),
            opens_ms: Some(1_000),
            closes_ms: Some(2_000),
            returns: None,
        }
    }

    /// The same in Postgres.
    fn in_postgres() -> rows::Terms {
        let at = |ms| DateTime::from_timestamp_millis(ms).expect("a time");
        rows::Terms {
            total: 5,
            state: CouponState::Active,
            revision: 4,
            opens_at: at(1_000),
            closes_at: at(2_000),
            epoch: Some(6),
            changed_ms_ago: 0,
        }
    }

    fn codes(found: &[Disagreement]) -> Vec<&'static str> {
        found.iter().map(Disagreement::code).collect()
    }

    #[test]
    fn sums_are_conserved_and_not_negative_and_no_shard_is_missing() {
        for (total, stock, buyers, shards_missing, expected) in [
            (5, 3, 2, 0, &[][..]),
            (5, 0, 5, 0, &[]),
            (5, 3, 3, 0, &["not_conserved"]),
            (5, 2, 2, 0, &["not_conserved"]),
            (6, 3, 2, 0, &["not_conserved"]),
            (5, -1, 6, 0, &["negative_stock"]),
            (5, 3, 2, 1, &["shards_missing"]),
            (5, -1, 5, 2, &["shards_missing", "not_conserved", "negative_stock"]),
        ] {
            let census = Census { buyers, shards_missing, ..in_redis() };
            let found = sums(coupon(), total, stock, &census);
            assert_eq!(codes(&found), expected, "{total} {stock} {buyers} {shards_missing}");
        }
    }

    #[test]
    fn compare_finds_each_term_that_differs_under_one_revision() {
        let words = |census: &Census, terms: &rows::Terms| -> Vec<String> {
            let found = compare(coupon(), terms, census);
            found
                .iter()
                .map(|one| one.to_string().split_once(": ").expect("words").1.to_owned())
                .collect()
        };
        let same = in_postgres();
        for (census, expected) in [
            (in_redis(), vec![]),
            (
                Census { epoch: Some(7), ..in_redis() },
                vec!["its epoch is 7 in Redis and 6 in Postgres"],
            ),
            (Census { epoch: None, ..in_redis() }, vec![]),
            (Census { revision: None, ..in_redis() }, vec![]),
            (
                Census { total: Some(6), ..in_redis() },
                vec!["Redis offers 6 units in all, Postgres 5"],
            ),
            (
                Census { state: Some("paused".into()), ..in_redis() },
                vec!["its state is paused in Redis and active"],
            ),
            // Its first claim will open it.
            (Census { state: Some("loading".into()), ..in_redis() }, vec![]),
            (Census { state: None, ..in_redis() }, vec![]),
            (
                Census { opens_ms: Some(1_001), ..in_redis() },
                vec!["its start is 1001 ms since 1970 in Redis and 1000 ms"],
            ),
            (
                Census { closes_ms: None, ..in_redis() },
                vec!["its end is missing in Redis and 2000 ms"],
            ),
            (
                Census { epoch: Some(7), total: Some(6), opens_ms: None, ..in_redis() },
                vec!["its epoch is 7", "Redis offers 6", "its start is missing"],
            ),
        ] {
            let found = words(&census, &same);
            let fits = found.iter().zip(&expected).all(|(words, begins)| words.starts_with(begins));
            assert!(fits && found.len() == expected.len(), "{census:?}: {found:#?}");
        }
        let taken_over = rows::Terms { epoch: None, ..in_postgres() };
        assert_eq!(words(&in_redis(), &taken_over), [""; 0], "by a recovery");
    }

    #[test]
    fn compare_waits_for_a_change_and_compares_no_terms_of_two_revisions() {
        let limit = i64::try_from(limits::CHANGE_APPLIED_MAX.as_millis()).expect("it is short");
        for (redis, changed_ms_ago, expected) in [
            (3, 0, &[][..]),
            (3, -5, &[]),
            (3, limit, &[]),
            (3, limit + 1, &["revision_differs"]),
            (5, 0, &["revision_differs"]),
            (4, limit + 1, &["total_differs", "terms_differ"]),
        ] {
            let other = Census {
                revision: Some(redis),
                total: Some(9),
                state: Some("ended".into()),
                ..in_redis()
            };
            let terms = rows::Terms { changed_ms_ago, ..in_postgres() };
            assert_eq!(
                codes(&compare(coupon(), &terms, &other)),
                expected,
                "{redis} {changed_ms_ago}"
            );
        }
        let differs = Census { revision: Some(5), epoch: Some(7), ..in_redis() };
        assert_eq!(
            codes(&compare(coupon(), &in_postgres(), &differs)),
            ["epoch_differs", "revision_differs"]
        );
    }
}
