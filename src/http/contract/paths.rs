//! Paths that the frame treats in their own way.

pub const LIVEZ: &str = "/livez";
pub const READYZ: &str = "/readyz";
pub const METRICS: &str = "/metrics";
/// Notices of the payment gateway, which are signed.
pub const CALLBACK: &str = "/v1/payments/callback";
/// The route that does nothing, which claims are measured against.
pub const NO_OP: &str = "/v1/no-op";
