//! Types of events.

/// All types of the feed (docs/events.md).
const TYPES: [&str; 16] = [
    "order.claimed",
    "order.paid",
    "order.cancelled",
    "order.expired",
    "order.redeemed",
    "order.refunding",
    "order.refunded",
    "coupon.created",
    "coupon.paused",
    "coupon.resumed",
    "coupon.ended",
    "coupon.sold_out",
    "coupon.restocked",
    "dead_letter.created",
    "comparison.disagreed",
    "lane.recovered",
];

/// Whether there are events of this type.
pub fn is_type(text: &str) -> bool {
    TYPES.contains(&text)
}
