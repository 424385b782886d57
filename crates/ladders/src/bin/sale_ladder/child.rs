//! A process that plays a design: it does what it is told on its standard input, a word a line, and answers each.

use std::sync::Arc;

use anyhow::bail;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::crowd;
use crate::design::Design;
use crate::scene::{Scene, Task};

/// Words that the process understands.
pub const GO: &str = "go";
pub const IN_HAND: &str = "in hand";
pub const REST: &str = "rest";
/// Its first word.
pub const READY: &str = "ready";

/// Plays the design until the input ends.
pub async fn play<D: Design>(task: Task) -> anyhow::Result<()> {
    let scene = Arc::new(Scene::open(task.clone()).await?);
    let design = Arc::new(D::open(scene).await?);
    println!("{READY}");
    let mut words = BufReader::new(tokio::io::stdin()).lines();
    while let Some(word) = words.next_line().await? {
        match word.as_str() {
            GO => println!("{}", serde_json::to_string(&crowd::send(&design, &task).await?)?),
            IN_HAND => {
                design.in_hand().await;
                println!("{IN_HAND}");
            }
            REST => {
                design.rest().await?;
                println!("{REST}");
            }
            _ => bail!("there is no word {word}"),
        }
    }
    // Consumers still wait for more.
    std::process::exit(0)
}
