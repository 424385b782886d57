//! `flash-sale-bench budget`: draws the budget of a win from the figures of a run, or of two.

use std::path::Path;

use serde_json::Value;

use crate::arguments::BudgetArguments;
use crate::report;
use crate::results::budget::Budget;
use flash_sale::base::config::InvalidConfig;

/// Reads, draws, and writes.
pub fn run(arguments: &BudgetArguments) -> anyhow::Result<()> {
    let before = arguments.before.as_deref().map(read).transpose()?;
    let after = read(&arguments.figures)?;
    let budgets: Vec<&Budget> = before.iter().chain([&after]).collect();
    report::budget::write(&budgets, &arguments.svg)
}

/// The budget in the figures of a run.
fn read(file: &Path) -> anyhow::Result<Budget> {
    let unusable = |why: &str| {
        let message = format!(
            "{} {why}: give the figures of a run, as `flash-sale-bench --report` or `--json` writes them",
            file.display()
        );
        anyhow::Error::from(InvalidConfig::new(message))
    };
    let text = std::fs::read_to_string(file).map_err(|_| unusable("can't be read"))?;
    let figures: Value = serde_json::from_str(&text).map_err(|_| unusable("is no JSON"))?;
    let budget = figures.get("budget").filter(|budget| !budget.is_null());
    let budget = budget.ok_or_else(|| unusable("holds no budget of a win"))?;
    serde_json::from_value(budget.clone())
        .map_err(|_| unusable("holds a budget that can't be understood"))
}
