//! The crowd: users who try twice each, a click and a second one, many at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::design::Design;
use crate::scene::Task;

/// Answers to a crowd.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Summary {
    pub requests: usize,
    /// Promises.
    pub won: i64,
    pub mean_ms: f64,
    pub p99_ms: f64,
    pub seconds: f64,
    /// Not all requests were sent: the time was up.
    pub cut: bool,
}

/// Sends the crowd of the task. Ends when each request has its answer.
pub async fn send<D: Design>(design: &Arc<D>, task: &Task) -> anyhow::Result<Summary> {
    let began = Instant::now();
    let answers =
        if task.in_step { in_step(design, task).await? } else { at_will(design, task).await? };
    let seconds = began.elapsed().as_secs_f64();
    let won = answers.iter().filter(|answer| answer.won).count();
    let mut times: Vec<f64> =
        answers.iter().map(|answer| answer.took.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    Ok(Summary {
        requests: times.len(),
        won: i64::try_from(won)?,
        mean_ms: times.iter().sum::<f64>() / times.len().max(1) as f64,
        p99_ms: times.get(times.len() * 99 / 100).copied().unwrap_or_default(),
        seconds,
        cut: i64::try_from(times.len())? < 2 * task.users,
    })
}

struct Answer {
    won: bool,
    took: Duration,
}

async fn ask<D: Design>(design: &D, user: i64) -> anyhow::Result<Answer> {
    let began = Instant::now();
    let won = design.buy(user).await?;
    Ok(Answer { won, took: began.elapsed() })
}

/// Both tries of a user are neighbours, so they come at the same moment.
fn user_of(task: &Task, request: i64) -> i64 {
    task.first_user + request / 2
}

/// Each client sends its next request as soon as it has an answer.
async fn at_will<D: Design>(design: &Arc<D>, task: &Task) -> anyhow::Result<Vec<Answer>> {
    let next = Arc::new(AtomicI64::new(0));
    let deadline = Instant::now() + Duration::from_millis(task.until_ms);
    let mut clients = JoinSet::new();
    for _ in 0..task.at_once {
        let (design, task, next) = (design.clone(), task.clone(), next.clone());
        clients.spawn(async move {
            let mut answers = Vec::new();
            loop {
                let request = next.fetch_add(1, Ordering::Relaxed);
                if request >= 2 * task.users || Instant::now() > deadline {
                    return anyhow::Ok(answers);
                }
                answers.push(ask(&*design, user_of(&task, request)).await?);
            }
        });
    }
    let mut answers = Vec::new();
    while let Some(client) = clients.join_next().await {
        answers.extend(client??);
    }
    Ok(answers)
}

/// A round begins when the one before has been answered.
async fn in_step<D: Design>(design: &Arc<D>, task: &Task) -> anyhow::Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for first in (0..2 * task.users).step_by(task.at_once) {
        let mut round = JoinSet::new();
        for request in first..first + i64::try_from(task.at_once)? {
            let (design, user) = (design.clone(), user_of(task, request));
            round.spawn(async move { ask(&*design, user).await });
        }
        while let Some(answer) = round.join_next().await {
            answers.push(answer??);
        }
    }
    Ok(answers)
}
