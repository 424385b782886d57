//! The message engines.

mod kafka;
mod nats;

use crate::event::CloudEvent;
use crate::settings::Settings;
use kafka::Kafka;
use nats::Nats;

/// A connection to an engine, made anew after each failure: what a broken one still holds back is never waited for.
pub struct Engine<'a> {
    settings: &'a Settings,
    connection: Option<Connection>,
}

enum Connection {
    Nats(Nats),
    Kafka(Kafka),
}

impl<'a> Engine<'a> {
    pub fn new(settings: &'a Settings) -> Self {
        Self { settings, connection: None }
    }

    /// Publishes all of them, each behind the earlier ones of its key, and waits until the engine has acknowledged
    /// them. After a failure, any of them may have been published.
    pub async fn publish(&mut self, messages: &[CloudEvent]) -> anyhow::Result<()> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(self.settings).await?,
        };
        match &connection {
            Connection::Nats(nats) => nats.publish(messages).await?,
            Connection::Kafka(kafka) => kafka.publish(messages).await?,
        }
        self.connection = Some(connection);
        Ok(())
    }
}

async fn connect(settings: &Settings) -> anyhow::Result<Connection> {
    Ok(match (&settings.nats, &settings.stream, &settings.kafka, &settings.topic) {
        (Some(nats), Some(stream), ..) => {
            Connection::Nats(Nats::connect(&nats.text()?, stream).await?)
        }
        (.., Some(kafka), Some(topic)) => Connection::Kafka(Kafka::connect(kafka, topic).await?),
        _ => unreachable!("the command line asks for one of them"),
    })
}
