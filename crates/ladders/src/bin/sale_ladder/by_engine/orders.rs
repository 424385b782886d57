//! Orders in the engine: one message each, which is acknowledged once the order is a row.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::Config;
use async_nats::jetstream::{self, AckKind, Context};
use futures_util::StreamExt;

use crate::queue::{LOOK, Progress};
use crate::scene::Scene;

const ORDERS: &str = "orders";
/// Time after which the engine sends a message again that nobody has acknowledged.
const ACK_WAIT: Duration = Duration::from_secs(1);

/// The stream of orders, and its only group of consumers.
#[derive(Clone)]
pub struct Orders {
    pub engine: Context,
    consumer: PullConsumer,
}

impl Orders {
    pub async fn open(scene: &Scene) -> anyhow::Result<Self> {
        let url = scene.task.engine_url.as_deref().context("the stage has an engine")?;
        let engine = jetstream::new(async_nats::connect(url).await?);
        let (name, subjects) = (ORDERS.to_owned(), vec![ORDERS.to_owned()]);
        let stream = Config { name, subjects, ..Config::default() };
        let stream = engine.get_or_create_stream(stream).await?;
        let (durable_name, ack_wait) = (Some("writers".to_owned()), ACK_WAIT);
        let config = pull::Config { durable_name, ack_wait, ..pull::Config::default() };
        Ok(Self { engine, consumer: stream.get_or_create_consumer("writers", config).await? })
    }

    /// Sends the order of a user, and waits until the engine has it. The engine drops a repeat of two minutes.
    pub async fn send(&self, user: i64) -> anyhow::Result<()> {
        let (mut headers, text) = (HeaderMap::new(), user.to_string());
        headers.insert("Nats-Msg-Id", text.as_str());
        self.engine.publish_with_headers(ORDERS, headers, text.into()).await?.await?;
        Ok(())
    }

    /// Writes orders, one after the other, for ever.
    pub async fn write(mut self, scene: Arc<Scene>, progress: Progress) -> anyhow::Result<()> {
        loop {
            let next = self.consumer.batch().max_messages(1).expires(LOOK);
            let Some(message) = next.messages().await?.next().await else {
                let info = self.consumer.info().await?;
                // One that another process had in its hands comes again.
                if info.num_pending + info.num_ack_pending as u64 == 0 {
                    progress.found_nothing();
                }
                continue;
            };
            let message = message.map_err(|error| anyhow!(error))?;
            progress.took();
            scene.write_order(std::str::from_utf8(&message.payload)?.parse()?).await?;
            message.ack_with(AckKind::Ack).await.map_err(|error| anyhow!(error))?;
        }
    }
}
