//! From the relay to an engine.

use crate::event::CloudEvent;

/// A message engine.
pub trait Engine {
    type Connection;

    /// # Errors
    ///
    /// When the engine doesn't answer, or refuses.
    fn connect(&self) -> impl Future<Output = anyhow::Result<Self::Connection>>;

    /// Publishes all of them, each behind the earlier ones of its key, and waits until the engine has acknowledged
    /// them.
    ///
    /// # Errors
    ///
    /// When the engine hasn't acknowledged all of them. Any of them may have been published.
    fn publish(
        &self,
        connection: &Self::Connection,
        messages: &[CloudEvent],
    ) -> impl Future<Output = anyhow::Result<()>>;
}

/// A connection to an engine, made anew after each failure: what a broken one still holds back is never waited for.
pub struct Publisher<'a, E: Engine> {
    engine: &'a E,
    connection: Option<E::Connection>,
}

impl<'a, E: Engine> Publisher<'a, E> {
    pub fn new(engine: &'a E) -> Self {
        Self { engine, connection: None }
    }

    pub async fn publish(&mut self, messages: &[CloudEvent]) -> anyhow::Result<()> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.engine.connect().await?,
        };
        self.engine.publish(&connection, messages).await?;
        self.connection = Some(connection);
        Ok(())
    }
}
