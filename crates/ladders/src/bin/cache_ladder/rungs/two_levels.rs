//! Rung 10: two processes keep copies of the copy in their own memory.

use crate::rungs::aside;
use crate::shelf::Shelf;
use std::collections::HashMap;

/// Memory of a process.
#[derive(Default)]
struct Process(HashMap<i64, String>);

impl Process {
    async fn read(&mut self, shelf: &Shelf, id: i64) -> anyhow::Result<Option<String>> {
        if let Some(title) = self.0.get(&id) {
            return Ok(Some(title.clone()));
        }
        let title = aside::read(shelf, id).await?;
        self.0.extend(title.clone().map(|title| (id, title)));
        Ok(title)
    }
}

/// One process changes a title that both have in memory; the other is told of it, or not.
pub async fn play(shelf: &Shelf, id: i64, is_told: bool) -> anyhow::Result<()> {
    let (mut writer, mut other) = (Process::default(), Process::default());
    for process in [&mut writer, &mut other] {
        shelf.shown(Some("old"), process.read(shelf, id)).await?;
    }
    shelf.write(id, "new").await?;
    shelf.delete(id).await?;
    writer.0.remove(&id);
    if is_told {
        other.0.remove(&id);
    }
    for process in [&mut writer, &mut other] {
        shelf.shown(Some("new"), process.read(shelf, id)).await?;
    }
    Ok(())
}
