//! RocketMQ, by the protocol of its name servers and brokers: no proxy is needed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use flash_sale_relay::{CloudEvent, Engine};
use futures_util::future::try_join_all;
use rocketmq_client_rust::{
    ClientError, ClientRuntime, ClientRuntimeConfig, DefaultMQProducer, MessageQueueSelector,
    SelectMessageQueueByHash, SendStatus,
};
use rocketmq_model::common::message::message_queue::MessageQueue;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_observability::TelemetryHandle;
use rocketmq_runtime::RuntimeOwner;

/// Messages of one request, some 500 bytes each: a broker takes 4 MB by default.
const REQUEST_MESSAGES_MAX: usize = 1_000;
/// Time for the acknowledgement of a request, which takes long if the broker waits for its disk or a replica.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Args)]
pub struct Address {
    /// RocketMQ name servers: host:9876;host:9876
    #[arg(long, env = "FLASH_SALE_RELAY_NAME_SERVERS")]
    name_servers: String,
    /// RocketMQ topic, which has to be there: mqadmin updateTopic makes it
    #[arg(long, env = "FLASH_SALE_RELAY_TOPIC")]
    topic: String,
}

pub struct Connection {
    producer: DefaultMQProducer,
    queues: Vec<MessageQueue>,
    /// Runs the client's tasks, and ends them when it is dropped.
    _owner: RuntimeOwner,
}

impl Engine for Address {
    type Connection = Connection;

    async fn connect(&self) -> anyhow::Result<Connection> {
        let owner = RuntimeOwner::new()?;
        let context = owner.root_context().component("relay");
        let config = ClientRuntimeConfig::default();
        let runtime = ClientRuntime::try_new(context, config, TelemetryHandle::noop())?;
        let mut producer = DefaultMQProducer::builder(runtime)
            .producer_group("flash-sale-relay")
            .name_server_addr(self.name_servers.as_str())
            .send_msg_timeout(SEND_TIMEOUT.as_millis().try_into()?)
            .build();
        producer.start().await?;
        let queues = producer.fetch_publish_message_queues(&self.topic).await;
        let queues =
            queues.with_context(|| format!("{} is missing, or its broker is away", self.topic))?;
        Ok(Connection { producer, queues, _owner: owner })
    }

    /// One request has all messages of a queue, which a broker stores in their order. Killed in the middle, it may have
    /// stored the first of them; then all come again.
    async fn publish(
        &self,
        connection: &Connection,
        messages: &[CloudEvent],
    ) -> anyhow::Result<()> {
        let mut by_queue: BTreeMap<MessageQueue, Vec<Message>> = BTreeMap::new();
        for event in messages {
            let message = message(event, &self.topic)?;
            let queue = connection.queue(event, &message)?;
            by_queue.entry(queue).or_default().push(message);
        }
        let requests = by_queue.into_iter().map(async |(queue, messages)| {
            for messages in messages.chunks(REQUEST_MESSAGES_MAX) {
                connection.send(messages.to_vec(), queue.clone()).await?;
            }
            anyhow::Ok(())
        });
        try_join_all(requests).await.map(drop)
    }
}

impl Connection {
    /// The queue that RocketMQ's own clients choose for a key by `SelectMessageQueueByHash`.
    fn queue(&self, event: &CloudEvent, message: &Message) -> anyhow::Result<MessageQueue> {
        let key = event.key().unwrap_or_default();
        let queue = SelectMessageQueueByHash.select(&self.queues, message, &key);
        queue.ok_or_else(|| anyhow!("the topic has no queue that can be written"))
    }

    async fn send(&self, messages: Vec<Message>, queue: MessageQueue) -> anyhow::Result<()> {
        let sent = self.producer.send_batch_to_queue(messages, queue).await.map_err(named)?;
        // The others say that a replica or the disk doesn't have it.
        ensure!(sent.send_status == SendStatus::SendOk, "the broker says {}", sent.send_status);
        Ok(())
    }
}

/// The client's own text doesn't say what a broker answered.
fn named(error: ClientError) -> anyhow::Error {
    match error.broker_response_code() {
        Some(code) => anyhow!("the broker answered with the ResponseCode {code}"),
        None => error.into(),
    }
}

/// The event as JSON. Its type is the tag, by which consumers choose; its id is what `mqadmin queryMsgByKey` finds.
fn message(event: &CloudEvent, topic: &str) -> anyhow::Result<Message> {
    let mut message = Message::builder()
        .topic(topic)
        .tags(event.kind.as_str())
        .key(event.id.as_str())
        .body(serde_json::to_vec(event)?);
    if let Some(key) = event.key() {
        // The message group of RocketMQ 5's own clients.
        message = message.sharding_key(key);
    }
    Ok(message.build()?)
}
