//! Kafka.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use flash_sale_relay::CloudEvent;
use futures_util::future::try_join_all;
use murmur2::{KAFKA_SEED, murmur2};
use rskafka::BackoffConfig;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

/// Records of one request, some 500 bytes each: a broker takes 1 MB by default.
const REQUEST_RECORDS_MAX: usize = 1_000;
/// Time for which the client tries again by itself. One that was made with a topic may never find the topic's leaders.
const RETRY_TIME: Duration = Duration::from_secs(5);

pub struct Kafka {
    partitions: Vec<PartitionClient>,
}

impl Kafka {
    pub async fn connect(brokers: &str, topic: &str) -> anyhow::Result<Self> {
        let brokers = brokers.split(',').map(|broker| broker.trim().to_owned()).collect();
        let backoff = BackoffConfig { deadline: Some(RETRY_TIME), ..BackoffConfig::default() };
        let client = ClientBuilder::new(brokers).client_id("flash-sale-relay");
        let client = client.backoff_config(backoff).build().await?;
        let partitions = partitions(&client, topic).await?.into_iter().map(|partition| {
            client.partition_client(topic, partition, UnknownTopicHandling::Error)
        });
        Ok(Self { partitions: try_join_all(partitions).await? })
    }

    /// One request has all messages of a partition, which Kafka takes as a whole: so they keep their order.
    pub async fn publish(&self, messages: &[CloudEvent]) -> anyhow::Result<()> {
        let mut records: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        for message in messages {
            let partition = partition(message.key(), self.partitions.len());
            records.entry(partition).or_default().push(record(message)?);
        }
        let requests = records.into_iter().map(async |(partition, records)| {
            for records in records.chunks(REQUEST_RECORDS_MAX) {
                let produced = self.partitions[partition]
                    .produce(records.to_vec(), Compression::NoCompression);
                produced.await?;
            }
            anyhow::Ok(())
        });
        try_join_all(requests).await.map(drop)
    }
}

/// The partitions of the topic, which is made if it is missing.
async fn partitions(client: &Client, topic: &str) -> anyhow::Result<Vec<i32>> {
    let topics = client.list_topics().await?;
    if let Some(found) = topics.into_iter().find(|found| found.name == topic) {
        return Ok(found.partitions.into_iter().collect());
    }
    // -1 is the broker's default.
    client.controller_client()?.create_topic(topic, -1, -1, 10_000).await?;
    bail!("the topic {topic} was missing, and has been made")
}

/// The partition that Kafka's own clients choose for a key.
fn partition(key: Option<&str>, partitions: usize) -> usize {
    let hash = key.map_or(0, |key| murmur2(key.as_bytes(), KAFKA_SEED));
    (hash & 0x7fff_ffff) as usize % partitions
}

/// The event in the binary mode of CloudEvents' binding for Kafka.
fn record(message: &CloudEvent) -> anyhow::Result<Record> {
    let time = message.time.to_rfc3339();
    let headers = [
        ("ce_specversion", Some(&message.specversion)),
        ("ce_id", Some(&message.id)),
        ("ce_type", Some(&message.kind)),
        ("ce_source", Some(&message.source)),
        ("ce_subject", message.subject.as_ref()),
        ("ce_time", Some(&time)),
        ("content-type", Some(&message.datacontenttype)),
    ];
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value?)));
    Ok(Record {
        key: message.key().map(Into::into),
        value: Some(serde_json::to_vec(&message.data)?),
        headers: headers.map(|(name, value)| (name.to_owned(), value.clone().into())).collect(),
        timestamp: message.time,
    })
}
