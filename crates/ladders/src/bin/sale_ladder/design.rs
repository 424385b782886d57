//! A design, as the crowd sees it.

use std::sync::Arc;

use crate::scene::Scene;

/// A way to sell the units.
pub trait Design: Sized + Send + Sync + 'static {
    /// Makes ready, and starts the tasks that carry orders to Postgres.
    fn open(scene: Arc<Scene>) -> impl Future<Output = anyhow::Result<Self>>;

    /// A user asks for a unit. True is a promise.
    fn buy(&self, user: i64) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Returns once a promised order is in the hands of the program; at once where no order is ever in between.
    fn in_hand(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Returns once no order waits that this program will ever write.
    fn rest(&self) -> impl Future<Output = anyhow::Result<()>> + Send {
        std::future::ready(Ok(()))
    }
}
