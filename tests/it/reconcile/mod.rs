//! Comparison of the two stores.

// Each way to break the law of conservation is found.
mod findings;

// Each number of an operator.
mod gauges;

// What a comparison puts right.
mod healing;

// The record of comparisons.
mod runs;

// One comparison at a time.
mod turn;

// Metrics, and the numbers of `coupon show`.
mod numbers;
