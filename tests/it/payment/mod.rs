//! Payments and gateways.

// The place where an order is paid.
mod checkout;

// Signed confirmations of a gateway.
mod callbacks;
