//! Lua scripts with a fixed number of keys: the compiler reads the count.
//!
//! A script is sent by its hash. A server that doesn't know it (a new one, or after SCRIPT FLUSH) gets
//! its text once, and the call is repeated; it had not run.

use redis::{FromRedisValue, RedisResult, ToRedisArgs};

use super::redis::Link;

/// A script that takes `KEYS` keys, all in one slot.
pub struct Script<const KEYS: usize>(redis::Script);

impl<const KEYS: usize> Script<KEYS> {
    /// Takes the text of the script, as `include_str!` gives it.
    pub fn new(text: &'static str) -> Self {
        Self(redis::Script::new(text))
    }

    /// Runs the script.
    ///
    /// # Errors
    ///
    /// As [`super::redis::Redis::query`].
    pub async fn run<T: FromRedisValue>(
        &self,
        link: &Link,
        keys: [&str; KEYS],
        arguments: impl ToRedisArgs,
    ) -> RedisResult<T> {
        let mut invocation = self.0.prepare_invoke();
        for key in keys {
            invocation.key(key);
        }
        invocation.arg(arguments);
        link.invoke(&invocation).await
    }
}
