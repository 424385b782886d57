//! Rung 21: a transaction message, as RocketMQ has it. NATS has none, so both its halves are written out here.
//!
//! A half message is in the engine before the decision, and no consumer sees it. After the decision the program sends the
//! order and the end of the half message. Whoever finds a half message without an end asks Redis how it was decided.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::Config;
use futures_util::StreamExt;
use redis::Script;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::Producer;
use super::orders::Orders;
use crate::queue::{LOOK, Progress, consume};
use crate::scene::Scene;

const HALVES: &str = "halves";
const BEGUN: &str = "halves.begun";
const ENDED: &str = "halves.ended";
/// Age at which a half message without an end is checked. RocketMQ waits for 6 s.
const CHECK_AFTER: Duration = Duration::from_millis(500);

pub struct Transaction {
    scene: Arc<Scene>,
    orders: Orders,
    script: Script,
    checks: Progress,
}

impl Producer for Transaction {
    async fn open(
        scene: Arc<Scene>,
        orders: Orders,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let (name, subjects) = (HALVES.to_owned(), vec![format!("{HALVES}.>")]);
        let stream = Config { name, subjects, ..Config::default() };
        orders.engine.get_or_create_stream(stream).await?;
        let checks = Progress::default();
        consume(tasks, check_back(scene.clone(), orders.clone(), checks.clone()));
        let script = Script::new(include_str!("../../../../lua/decide.lua"));
        Ok(Self { scene, orders, script, checks })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        let half = Half { id: Uuid::new_v4(), user };
        self.orders.engine.publish(BEGUN, half.text().into()).await?.await?;
        let has_won = self.scene.decide(&self.script, user).await?;
        if has_won {
            self.scene.gap().await;
            self.orders.send(user).await?;
        }
        // Nobody waits for it: a half message whose end is lost is checked.
        self.orders.engine.publish(ENDED, half.text().into()).await?;
        Ok(has_won)
    }

    async fn rest(&self) {
        self.checks.rest().await;
    }
}

#[derive(Clone, Copy)]
struct Half {
    id: Uuid,
    user: i64,
}

impl Half {
    fn text(self) -> String {
        format!("{} {}", self.id, self.user)
    }

    fn parse(text: &[u8]) -> anyhow::Result<Self> {
        let (id, user) = std::str::from_utf8(text)?.split_once(' ').ok_or(anyhow!("no half"))?;
        Ok(Self { id: id.parse()?, user: user.parse()? })
    }
}

/// Ends half messages that nobody has ended, for ever.
async fn check_back(scene: Arc<Scene>, orders: Orders, checks: Progress) -> anyhow::Result<()> {
    let stream = orders.engine.get_stream(HALVES).await?;
    let from_the_first =
        OrderedConfig { deliver_policy: DeliverPolicy::All, ..OrderedConfig::default() };
    let mut messages = stream.create_consumer(from_the_first).await?.messages().await?;
    let mut open: HashMap<Uuid, (Half, Instant)> = HashMap::new();
    loop {
        if let Ok(Some(message)) = timeout(LOOK, messages.next()).await {
            let message = message?;
            let half = Half::parse(&message.payload)?;
            match message.subject.as_str() {
                BEGUN => drop(open.insert(half.id, (half, Instant::now()))),
                _ => drop(open.remove(&half.id)),
            }
            continue;
        }
        if open.is_empty() {
            checks.found_nothing();
        }
        let old: Vec<Half> = open
            .values()
            .filter(|(_, seen_at)| seen_at.elapsed() > CHECK_AFTER)
            .map(|(half, _)| *half)
            .collect();
        for half in old {
            if scene.ask(&["SISMEMBER", "buyers", &half.user.to_string()]).await? {
                orders.send(half.user).await?;
            }
            orders.engine.publish(ENDED, half.text().into()).await?.await?;
        }
    }
}
