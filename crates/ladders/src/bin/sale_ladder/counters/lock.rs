//! A lock in Redis, as the tutorials have it: SET NX PX, and a script that deletes the own value only.

use std::time::Duration;

use redis::Script;
use uuid::Uuid;

use crate::scene::Scene;

/// The lock, held.
pub struct Held {
    name: String,
    owner: String,
}

/// Takes the lock for a lease, or says that it is busy.
pub async fn try_lock(
    scene: &Scene,
    name: String,
    lease: Duration,
) -> anyhow::Result<Option<Held>> {
    let owner = Uuid::new_v4().to_string();
    let lease_ms = lease.as_millis().to_string();
    let set = ["SET", &name, &owner, "NX", "PX", &lease_ms];
    let taken: Option<String> = scene.ask(&set).await?;
    Ok(taken.map(|_| Held { name, owner }))
}

impl Held {
    /// Releases it, if it is still ours.
    pub async fn release(self, scene: &Scene) -> anyhow::Result<()> {
        let script = Script::new(include_str!("../../../../lua/release.lua"));
        let mut call = script.key(&self.name);
        let _: i64 = call.arg(&self.owner).invoke_async(&mut scene.redis.clone()).await?;
        Ok(())
    }
}
