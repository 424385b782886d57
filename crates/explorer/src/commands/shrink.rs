//! The smallest plan that still fails.

use super::arguments::{Arguments, less};
use super::laboratory::Laboratory;
use crate::plan::Plan;

/// Times that a smaller plan is tried before it counts as sound: the machine decides interleavings.
const TRIES: usize = 2;
/// Fewest clients that are tried.
const CLIENTS_MIN: usize = 1;

/// Leaves out one fault after the other, and then clients, while the plan goes on failing. Prints the smallest plan.
pub async fn shrink(
    laboratory: &mut Laboratory,
    arguments: &Arguments,
    plan: Plan,
) -> anyhow::Result<()> {
    println!("    shrinking");
    let mut left_out = arguments.without.clone();
    let whole = arguments.plan_of(plan.seed).acts.len() + left_out.len();
    let of = |left_out: &[usize], clients: usize| {
        let mut changed = arguments.clone();
        changed.without = left_out.to_vec();
        changed.clients = Some(clients);
        changed.plan_of(plan.seed)
    };
    let mut clients = plan.clients;
    for index in 0..whole {
        if left_out.contains(&index) {
            continue;
        }
        let fewer: Vec<usize> = left_out.iter().copied().chain([index]).collect();
        if fails(laboratory, &of(&fewer, clients)).await? {
            left_out = fewer;
        }
    }
    while clients > CLIENTS_MIN && fails(laboratory, &of(&left_out, clients / 2)).await? {
        clients /= 2;
    }
    println!("    the smallest plan that fails:\n{}", of(&left_out, clients));
    let words = arguments.words() + &less(&left_out, Some(clients));
    println!("    make explore ARGS=\"--seed {}{words}\"", plan.seed);
    Ok(())
}

async fn fails(laboratory: &mut Laboratory, plan: &Plan) -> anyhow::Result<bool> {
    for _ in 0..TRIES {
        if !laboratory.try_out(plan).await?.holds() {
            return Ok(true);
        }
    }
    Ok(false)
}
