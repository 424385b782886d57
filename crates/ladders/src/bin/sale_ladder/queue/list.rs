//! Rung 12: a script decides and pushes onto a list; a consumer pops and writes.

use std::sync::Arc;

use super::{LOOK, Progress, Queue};
use crate::scene::Scene;

pub struct List;

impl Queue for List {
    const SCRIPT: &str = include_str!("../../../../lua/push.lua");

    async fn write(scene: Arc<Scene>, _: usize, progress: Progress) -> anyhow::Result<()> {
        let mut list = scene.connection().await?;
        loop {
            let mut pop = redis::cmd("BRPOP");
            let pop = pop.arg("log").arg(LOOK.as_secs_f64());
            let popped: Option<(String, i64)> = pop.query_async(&mut list).await?;
            let Some((_, user)) = popped else {
                progress.found_nothing();
                continue;
            };
            progress.took();
            scene.write_order(user).await?;
        }
    }
}
