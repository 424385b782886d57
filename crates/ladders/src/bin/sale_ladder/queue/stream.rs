//! A consumer of the stream, as the rungs need it.

use redis::aio::MultiplexedConnection;

use super::LOOK;
use crate::scene::Scene;

const GROUP: &str = "g1";
/// Entries that were never delivered.
pub const NEW: &str = ">";
/// Entries that were delivered to this consumer, and not acknowledged.
pub const PENDING: &str = "0";

/// One consumer of the group, with a connection of its own.
pub struct Consumer {
    redis: MultiplexedConnection,
    name: String,
}

/// An entry: its id, and the user. An entry that is pending and was deleted has no user.
pub type Entry = (String, Option<i64>);

/// Reply of XREADGROUP: streams, each with its entries, each with its fields.
type Reply = Option<Vec<(String, Vec<(String, Option<Vec<String>>)>)>>;

impl Consumer {
    /// Makes the group if need be.
    pub async fn open(scene: &Scene, name: &str) -> anyhow::Result<Self> {
        let mut redis = scene.connection().await?;
        let made = redis::cmd("XGROUP")
            .arg(&["CREATE", "log", GROUP, "0", "MKSTREAM"])
            .query_async::<String>(&mut redis)
            .await;
        match made {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(error.into()),
            _ => Ok(Self { redis, name: name.to_owned() }),
        }
    }

    /// One entry, new or pending; waits a moment for a new one.
    pub async fn read(&mut self, from: &str) -> anyhow::Result<Option<Entry>> {
        let look_ms = LOOK.as_millis().to_string();
        let words =
            ["GROUP", GROUP, &self.name, "COUNT", "1", "BLOCK", &look_ms, "STREAMS", "log", from];
        let reply: Reply =
            redis::cmd("XREADGROUP").arg(&words).query_async(&mut self.redis).await?;
        let entry = reply.into_iter().flatten().flat_map(|(_, entries)| entries).next();
        let Some((id, fields)) = entry else { return Ok(None) };
        let user = fields.and_then(|fields| fields.get(1)?.parse().ok());
        Ok(Some((id, user)))
    }

    /// One entry: own pending ones first.
    pub async fn read_pending_first(&mut self) -> anyhow::Result<Option<Entry>> {
        match self.read(PENDING).await? {
            Some(entry) => Ok(Some(entry)),
            None => self.read(NEW).await,
        }
    }

    pub async fn acknowledge(&mut self, id: &str) -> anyhow::Result<()> {
        let words = ["log", GROUP, id];
        let _: i64 = redis::cmd("XACK").arg(&words).query_async(&mut self.redis).await?;
        Ok(())
    }
}
