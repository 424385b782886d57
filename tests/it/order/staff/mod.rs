//! Orders that the staff moves.

// One order, moved for its buyer.
mod for_buyers;

// All unpaid orders of a coupon, cancelled.
mod unpaid;
