//! Designs with a message engine between the decision and Postgres. The engine is NATS JetStream.

// The rungs.
pub mod message_first;
pub mod message_last;
pub mod relay;
pub mod transaction;

// What each of them sends to the engine.
pub mod orders;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::task::JoinSet;

use self::orders::Orders;
use crate::design::Design;
use crate::queue::{Progress, consume};
use crate::scene::Scene;

/// Consumers that write orders, as many as on rung 18.
const CONSUMERS: usize = 8;

/// The way of an order from the user to the engine.
pub trait Producer: Sized + Send + Sync + 'static {
    /// Makes ready, and starts what works beside the requests.
    fn open(
        scene: Arc<Scene>,
        orders: Orders,
        tasks: &mut JoinSet<()>,
    ) -> impl Future<Output = anyhow::Result<Self>>;

    /// A user asks for a unit.
    fn buy(&self, user: i64) -> impl Future<Output = anyhow::Result<bool>> + Send;

    /// Returns once each order that this program will ever send to the engine is there.
    fn rest(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// The design that sells by such a producer.
pub struct ByEngine<P> {
    producer: P,
    progress: Vec<Progress>,
    _tasks: JoinSet<()>,
}

impl<P: Producer> Design for ByEngine<P> {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let (orders, mut tasks) = (Orders::open(&scene).await?, JoinSet::new());
        let progress: Vec<Progress> = (0..CONSUMERS).map(|_| Progress::default()).collect();
        for progress in &progress {
            consume(&mut tasks, orders.clone().write(scene.clone(), progress.clone()));
        }
        let producer = P::open(scene, orders, &mut tasks).await?;
        Ok(Self { producer, progress, _tasks: tasks })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        self.producer.buy(user).await
    }

    async fn in_hand(&self) {
        for progress in &self.progress {
            progress.in_hand().await;
        }
    }

    async fn rest(&self) -> anyhow::Result<()> {
        self.producer.rest().await;
        join_all(self.progress.iter().map(Progress::rest)).await;
        Ok(())
    }
}
