//! The message engines of this program, and the part of its command line that names one.

mod kafka;
mod nats;

use clap::Args;
use flash_sale_relay::{CloudEvent, Engine, Secret};

use kafka::Kafka;
use nats::Nats;

#[derive(Args)]
pub struct Address {
    /// NATS server to publish to: nats://host:4222 or tls://user:password@host
    #[arg(long, env = "FLASH_SALE_RELAY_NATS", hide_env_values = true, requires = "stream")]
    nats: Option<Secret>,
    /// JetStream stream for `flash-sale.>`; made if it is missing
    #[arg(long, env = "FLASH_SALE_RELAY_STREAM", requires = "nats")]
    stream: Option<String>,
    /// Kafka brokers to publish to: host:9092,host:9092
    #[arg(long, env = "FLASH_SALE_RELAY_KAFKA", requires = "topic")]
    kafka: Option<String>,
    /// Kafka topic; made with the broker's defaults if it is missing
    #[arg(long, env = "FLASH_SALE_RELAY_TOPIC", requires = "kafka")]
    topic: Option<String>,
}

pub enum Connection {
    Nats(Nats),
    Kafka(Kafka),
}

impl Engine for Address {
    type Connection = Connection;

    async fn connect(&self) -> anyhow::Result<Connection> {
        Ok(match (&self.nats, &self.stream, &self.kafka, &self.topic) {
            (Some(nats), Some(stream), ..) => {
                Connection::Nats(Nats::connect(&nats.text()?, stream).await?)
            }
            (.., Some(kafka), Some(topic)) => {
                Connection::Kafka(Kafka::connect(kafka, topic).await?)
            }
            _ => unreachable!("the command line asks for one of them"),
        })
    }

    async fn publish(
        &self,
        connection: &Connection,
        messages: &[CloudEvent],
    ) -> anyhow::Result<()> {
        match connection {
            Connection::Nats(nats) => nats.publish(messages).await,
            Connection::Kafka(kafka) => kafka.publish(messages).await,
        }
    }
}
