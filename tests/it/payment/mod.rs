//! Payments and gateways.

// The place where an order is paid.
mod checkout;

// A gateway that takes requests.
pub mod gateway;

// A gateway and a service that are killed.
mod crashes;

// Prices of orders.
mod prices;

// Signed confirmations of a gateway.
mod callbacks;

// Money that no order can take, and money that is taken back.
mod owed;
