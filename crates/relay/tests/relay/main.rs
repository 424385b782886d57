//! The relay between a real service and real engines.
//!
//! The service is `target/debug/flash-sale` of the workspace, or the binary that `FLASH_SALE_BINARY` names. `make
//! events` and `make relay-engines` build and install what is needed; a test whose engine can't be had says so, and passes.

mod deliveries;
mod ends;
mod engine;
mod figures;
mod kills;
mod rocketmq;
mod service;
