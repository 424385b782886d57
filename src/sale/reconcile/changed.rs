//! The sales that have changed since their orders were last read.

use super::one_sale::Known;
use super::{Check, Report, readings};
use crate::base::limits;
use crate::sale::Failure;
use crate::sale::coupon::stock;
use crate::sale::ids::Lane;
use crate::sale::order::counts;

impl Check<'_> {
    /// Compares all sales, and reads the orders of those that have changed: the longest unread ones first. Those of the
    /// sales in `unchecked` lanes are read in any case.
    pub(super) async fn changed_sales(
        &self,
        unchecked: &[Lane],
        report: &mut Report,
    ) -> Result<(), Failure> {
        let last = readings::last(self.pool).await?;
        let live = counts::live(self.pool, &stock::loaded(self.pool).await?).await?;
        let mut sales: Vec<_> =
            live.iter().map(|(coupon, live)| (last.get(coupon), coupon, live)).collect();
        sales.sort_by_key(|(last, coupon, _)| (last.map(|(read_at, _)| *read_at), **coupon));
        let mut room = limits::CHANGED_BUYERS_MAX;
        for (last, coupon, live) in sales {
            let reading = last.map(|(_, reading)| reading);
            let is_checked = !unchecked.contains(&coupon.lane());
            let known = is_checked.then_some(Known { reading, live, room: &mut room });
            self.sale_or_why_not(*coupon, known, report).await?;
        }
        report.sales.sort_by_key(|sale| sale.coupon);
        Ok(())
    }
}
