//! Lists of unpaid orders that a recovery builds: `list_unpaid` and `switch_unpaid`.

use flash_sale::kit::script::VariadicScript;

use super::stage::{Row, Stage};

/// A lane that recovers, and lists of two users.
const USUAL: [(&str, &str); 3] =
    [("lane", "epoch=8 state=recovering steps=2"), ("unpaid", "5=50"), ("built", "7=1_2 9=4")];

#[tokio::test]
async fn list_unpaid_adds_orders_to_the_lists_of_its_recovery() {
    let mut stage = Stage::new().await;
    let list = VariadicScript::new(include_str!("../../../lua/list_unpaid.lua"));
    stage.holds(&list, "lane built", &USUAL, &LISTED).await;
}

const LISTED: [Row; 10] = [
    (&[], "8 8 5", "LISTED", "built.8=5"),
    (&[], "8 7 3", "LISTED", "built.7=1 2 3"),
    (&[], "8 7 3 8 5 9 6", "LISTED", "built.7=1 2 3 built.8=5 built.9=4 6"),
    (&[], "8 8 5 8 6 8 7", "LISTED", "built.8=5 6 7"),
    (&[("built", "gone")], "8 7 1 8 2", "LISTED", "built.7=1 built.8=2"),
    (&[], "8", "LISTED", ""),
    (&[("lane", "epoch=9")], "8 7 3", "FENCED", ""),
    (&[("lane", "state=open")], "8 7 3", "FENCED", ""),
    (&[("lane", "-state")], "8 7 3", "FENCED", ""),
    (&[("lane", "gone")], "8 7 3", "FENCED", ""),
];

#[tokio::test]
async fn switch_unpaid_puts_the_lists_of_its_recovery_in_place() {
    let mut stage = Stage::new().await;
    let switch = VariadicScript::new(include_str!("../../../lua/switch_unpaid.lua"));
    stage.holds(&switch, "lane unpaid built", &USUAL, &SWITCHED).await;
}

const SWITCHED: [Row; 9] = [
    (&[], "8", "SWITCHED", "-built.7 -built.9 lane.steps=3 -unpaid.5 unpaid.7=1 2 unpaid.9=4"),
    (
        &[("unpaid", "gone"), ("lane", "-steps")],
        "8",
        "SWITCHED",
        "-built.7 -built.9 lane.steps=1 unpaid.7=1 2 unpaid.9=4",
    ),
    // Another program's key.
    (
        &[("unpaid", "string")],
        "8",
        "SWITCHED",
        "-built.7 -built.9 lane.steps=3 -unpaid unpaid.7=1 2 unpaid.9=4",
    ),
    // No order is unpaid.
    (&[("built", "gone")], "8", "SWITCHED", "lane.steps=3 -unpaid.5"),
    (&[("built", "gone"), ("unpaid", "gone")], "8", "SWITCHED", "lane.steps=3"),
    (&[("lane", "epoch=9")], "8", "FENCED", ""),
    (&[("lane", "state=open")], "8", "FENCED", ""),
    (&[("lane", "-state")], "8", "FENCED", ""),
    (&[("lane", "gone")], "8", "FENCED", ""),
];
