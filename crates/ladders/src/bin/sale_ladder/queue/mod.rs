//! Designs that answer first and write later: a script decides, and a queue carries the order to Postgres.

pub mod acknowledged_first;
pub mod concurrent_consumers;
pub mod in_process;
pub mod list;
pub mod maxlen;
pub mod no_take_over;
pub mod publish;
pub mod spin_lock;
pub mod stream;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redis::Script;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::design::Design;
use crate::scene::Scene;

/// Time that a consumer waits for an order before it looks again.
pub const LOOK: Duration = Duration::from_millis(20);

/// Progress of one consumer.
#[derive(Clone, Default)]
pub struct Progress(Arc<Counts>);

#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    empty_looks: AtomicU64,
}

impl Progress {
    /// The consumer has taken an order.
    pub fn took(&self) {
        self.0.taken.fetch_add(1, Ordering::SeqCst);
    }

    /// The consumer has written all that it had, looked again, and found nothing.
    pub fn found_nothing(&self) {
        self.0.empty_looks.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns once the consumer has taken an order.
    pub async fn in_hand(&self) {
        while self.0.taken.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Returns once the consumer has begun a look, and found nothing, after this call.
    pub async fn rest(&self) {
        let seen = self.0.empty_looks.load(Ordering::SeqCst);
        while self.0.empty_looks.load(Ordering::SeqCst) < seen + 2 {
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Runs a consumer beside the crowd. A consumer that fails ends the process.
pub fn consume(
    tasks: &mut JoinSet<()>,
    consumer: impl Future<Output = anyhow::Result<()>> + Send + 'static,
) {
    tasks.spawn(async move {
        if let Err(error) = consumer.await {
            eprintln!("the consumer failed: {error:#}");
            std::process::exit(1);
        }
    });
}

/// A queue in Redis: a script decides and appends, consumers take and write.
pub trait Queue: Send + Sync + 'static {
    const SCRIPT: &'static str;
    const CONSUMERS: usize = 1;

    /// A user asks for a unit.
    fn buy(
        scene: &Scene,
        script: &Script,
        user: i64,
        _progress: &Progress,
    ) -> impl Future<Output = anyhow::Result<bool>> + Send {
        scene.decide(script, user)
    }

    /// The consumer with this number writes what it takes, for ever.
    fn write(
        scene: Arc<Scene>,
        number: usize,
        progress: Progress,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// The design that sells by such a queue.
pub struct Queued<Q> {
    scene: Arc<Scene>,
    script: Script,
    progress: Vec<Progress>,
    _tasks: JoinSet<()>,
    _queue: PhantomData<Q>,
}

impl<Q: Queue> Design for Queued<Q> {
    async fn open(scene: Arc<Scene>) -> anyhow::Result<Self> {
        let progress: Vec<Progress> = (0..Q::CONSUMERS).map(|_| Progress::default()).collect();
        let mut tasks = JoinSet::new();
        for (number, progress) in progress.iter().enumerate() {
            consume(&mut tasks, Q::write(scene.clone(), number, progress.clone()));
        }
        let script = Script::new(Q::SCRIPT);
        Ok(Self { scene, script, progress, _tasks: tasks, _queue: PhantomData })
    }

    async fn buy(&self, user: i64) -> anyhow::Result<bool> {
        Q::buy(&self.scene, &self.script, user, &self.progress[0]).await
    }

    async fn in_hand(&self) {
        for progress in &self.progress {
            progress.in_hand().await;
        }
    }

    async fn rest(&self) -> anyhow::Result<()> {
        join_all(self.progress.iter().map(Progress::rest)).await;
        Ok(())
    }
}
