//! NATS JetStream.

use std::collections::HashSet;
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::context::{Context, ContextBuilder};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Config;
use flash_sale_relay::CloudEvent;
use futures_util::future::try_join_all;

/// Time in which a new stream recognises repeats. NATS keeps the ids of that time in memory.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(600);

/// Time for the acknowledgements of a round, which take long if the server waits for its disk for each message.
const ACK_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Nats {
    context: Context,
    stream: String,
}

impl Nats {
    pub async fn connect(url: &str, stream: &str) -> anyhow::Result<Self> {
        let client = ConnectOptions::new().name("flash-sale-relay").connect(url).await?;
        let context = ContextBuilder::new().timeout(ACK_TIMEOUT).build(client);
        let config = Config {
            name: stream.to_owned(),
            subjects: vec!["flash-sale.>".to_owned()],
            duplicate_window: DUPLICATE_WINDOW,
            ..Config::default()
        };
        context.get_or_create_stream(config).await?;
        Ok(Self { context, stream: stream.to_owned() })
    }

    pub async fn publish(&self, messages: &[CloudEvent]) -> anyhow::Result<()> {
        for round in rounds(messages) {
            let mut acknowledged = Vec::with_capacity(round.len());
            for message in round {
                let publish = PublishMessage::build()
                    .message_id(&message.id)
                    .expected_stream(&self.stream)
                    .header("Content-Type", "application/cloudevents+json")
                    .payload(serde_json::to_vec(message)?.into());
                acknowledged.push(self.context.send_publish(subject(message), publish).await?);
            }
            try_join_all(acknowledged.into_iter().map(IntoFuture::into_future)).await?;
        }
        Ok(())
    }
}

/// `flash-sale.order.paid.1024`: a consumer may choose by type and coupon.
fn subject(message: &CloudEvent) -> String {
    match message.coupon() {
        Some(coupon) => format!("flash-sale.{}.{coupon}", message.kind),
        None => format!("flash-sale.{}", message.kind),
    }
}

/// The messages, divided before each one whose key has been before. Messages of one round may be lost or repeated
/// one by one; so the next message of a key is sent only when the one before it is in the stream.
fn rounds(messages: &[CloudEvent]) -> Vec<&[CloudEvent]> {
    let mut rounds = Vec::new();
    let (mut start, mut keys) = (0, HashSet::new());
    for (place, message) in messages.iter().enumerate() {
        if !keys.insert(message.key()) {
            rounds.push(&messages[start..place]);
            start = place;
            keys = HashSet::from([message.key()]);
        }
    }
    rounds.push(&messages[start..]);
    rounds
}
