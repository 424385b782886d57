//! Units that come and go without a claim: `admit`, `give_back`, `pass_on` and `free_place`.

use flash_sale::kit::script::VariadicScript;

use super::stage::{Row, Stage};

/// A sale with five units and two buyers.
const USUAL: [(&str, &str); 4] = [
    ("sale", "stock=5 state=active epoch=7 layout=2 shards=2 returns=3"),
    ("lane", "epoch=7 state=open"),
    ("a", "-= 1=101 3=103"),
    ("b", "-= 2=102"),
];

#[tokio::test]
async fn admit_gives_a_claim_its_unit_unless_it_has_one() {
    let mut stage = Stage::new().await;
    let admit = VariadicScript::new(include_str!("../../../lua/admit.lua"));
    stage.holds(&admit, "sale lane", &USUAL, &ADMITTED).await;
}

const ADMITTED: [Row; 28] = [
    (&[], "b: 7 2 4 104", "GRANTED", "b.4=104 sale.stock=4"),
    (&[("sale", "layout=3 state=paused")], "b: 7 2 4 104", "GRANTED", "b.4=104 sale.stock=4"),
    (&[("sale", "stock=1 state=ended")], "b: 7 2 4 104", "GRANTED", "b.4=104 sale.stock=0"),
    (&[("sale", "stock=0")], "b: 7 2 4 104", "NO_UNIT", ""),
    (&[("sale", "stock=-1")], "b: 7 2 4 104", "NO_UNIT", ""),
    (&[], "b: 7 2 2 102", "HELD", ""),
    (&[], "b: 7 2 2 104", "OTHER", ""),
    (&[("sale", "stock=0")], "b: 7 2 2 102", "HELD", ""),
    (&[("sale", "stock=0")], "b: 7 2 2 104", "OTHER", ""),
    (&[("lane", "state=recovering")], "b: 7 2 4 104", "RECOVERING", ""),
    (&[("lane", "gone")], "b: 7 2 4 104", "RECOVERING", ""),
    (&[("lane", "state=recovering"), ("sale", "gone")], "b: 7 2 4 104", "RECOVERING", ""),
    (&[("sale", "gone")], "b: 7 2 4 104", "NOT_LOADED", ""),
    (&[("sale", "-state")], "b: 7 2 4 104", "NOT_LOADED", ""),
    (&[("sale", "state=loading")], "b: 7 2 4 104", "NOT_LOADED", ""),
    (&[("lane", "epoch=8")], "b: 7 2 4 104", "STALE", ""),
    (&[("sale", "epoch=6")], "b: 7 2 4 104", "STALE", ""),
    (&[], "b: 8 2 4 104", "STALE", ""),
    (&[], "b: 7 3 4 104", "STALE", ""),
    (&[("sale", "layout=1")], "b: 7 2 4 104", "STALE", ""),
    (&[("sale", "layout=4")], "b: 7 2 4 104", "STALE", ""),
    (&[("sale", "-layout")], "b: 7 2 4 104", "STALE", ""),
    (&[("b", "gone")], "b: 7 2 4 104", "LOST", ""),
    (&[("b", "--")], "b: 7 2 2 102", "LOST", ""),
    (&[("sale", "-stock")], "b: 7 2 4 104", "LOST", ""),
    (&[("sale", "stock=x")], "b: 7 2 4 104", "LOST", ""),
    (&[("sale", "-stock")], "b: 7 2 2 102", "LOST", ""),
    (&[("sale", "layout=1"), ("b", "gone")], "b: 7 2 4 104", "STALE", ""),
];

#[tokio::test]
async fn give_back_returns_units_whose_buyers_hold_the_closed_order() {
    let mut stage = Stage::new().await;
    let give_back = VariadicScript::new(include_str!("../../../lua/give_back.lua"));
    stage.holds(&give_back, "sale lane", &USUAL, &GIVEN_BACK).await;
}

const GIVEN_BACK: [Row; 25] = [
    (&[], "b: 5 7 2 @units 2 102", "[GIVEN_BACK]", "-b.2 sale.returns=4 sale.stock=6 told=5"),
    (
        &[],
        "a b a: 5 7 2 @units 1 101 2 102 3 103",
        "[GIVEN_BACK GIVEN_BACK GIVEN_BACK]",
        "-a.1 -a.3 -b.2 sale.returns=4 sale.stock=8 told=5",
    ),
    (
        &[("sale", "layout=3 state=paused stock=0 -returns")],
        "b: 5 7 2 @units 2 102",
        "[GIVEN_BACK]",
        "-b.2 sale.returns=1 sale.stock=1 told=5",
    ),
    (
        &[("sale", "state=ended")],
        "a b: 5 7 2 @units 1 104 2 102",
        "[NOT_HELD GIVEN_BACK]",
        "-b.2 sale.returns=4 sale.stock=6 told=5",
    ),
    (
        &[],
        "b b: 5 7 2 @units 2 102 2 102",
        "[GIVEN_BACK NOT_HELD]",
        "-b.2 sale.returns=4 sale.stock=6 told=5",
    ),
    (
        &[],
        "b b: 5 7 2 @units 2 104 2 102",
        "[NOT_HELD GIVEN_BACK]",
        "-b.2 sale.returns=4 sale.stock=6 told=5",
    ),
    (
        &[],
        "b b a: 5 7 2 @units 2 102 2 102 1 101",
        "[GIVEN_BACK NOT_HELD GIVEN_BACK]",
        "-a.1 -b.2 sale.returns=4 sale.stock=7 told=5",
    ),
    (&[], "b: 5 7 2 @units 2 104", "[NOT_HELD]", ""),
    (&[], "b a: 5 7 2 @units 4 104 1 102", "[NOT_HELD NOT_HELD]", ""),
    (
        &[("b", "gone")],
        "b a: 5 7 2 @units 2 102 1 101",
        "[NOT_HELD GIVEN_BACK]",
        "-a.1 sale.returns=4 sale.stock=6 told=5",
    ),
    (&[("lane", "state=recovering")], "b a: 5 7 2 @units 2 102 1 101", "[RECOVERING]", ""),
    (&[("lane", "gone")], "b: 5 7 2 @units 2 102", "[RECOVERING]", ""),
    (
        &[("lane", "state=recovering"), ("sale", "gone")],
        "b: 5 7 2 @units 2 102",
        "[RECOVERING]",
        "",
    ),
    (&[("sale", "gone")], "b a: 5 7 2 @units 2 102 1 101", "[NOT_LOADED]", ""),
    (&[("sale", "-state")], "b: 5 7 2 @units 2 102", "[NOT_LOADED]", ""),
    (&[("sale", "state=loading")], "b: 5 7 2 @units 2 102", "[NOT_LOADED]", ""),
    (&[("lane", "epoch=8")], "b: 5 7 2 @units 2 102", "[STALE]", ""),
    (&[("sale", "epoch=6")], "b: 5 7 2 @units 2 102", "[STALE]", ""),
    (&[], "b: 5 8 2 @units 2 102", "[STALE]", ""),
    (&[], "b a: 5 7 3 @units 2 102 1 101", "[STALE]", ""),
    (&[("sale", "layout=1")], "b a: 5 7 2 @units 2 102 1 101", "[STALE]", ""),
    (&[("sale", "layout=4")], "b: 5 7 2 @units 2 102", "[STALE]", ""),
    (&[("sale", "-layout")], "b: 5 7 2 @units 2 102", "[STALE]", ""),
    // A number that can't be raised ends the call before a buyer goes.
    (&[("sale", "returns=x")], "b: 5 7 2 @units 2 102", "error ERR", ""),
    (&[("b", "string")], "a b: 5 7 2 @units 1 101 2 102", "error WRONGTYPE", ""),
];

#[tokio::test]
async fn pass_on_gives_a_place_to_its_heir_if_its_buyer_holds_the_given_up_order() {
    let mut stage = Stage::new().await;
    let pass_on = VariadicScript::new(include_str!("../../../lua/pass_on.lua"));
    stage.holds(&pass_on, "sale lane", &USUAL, &PASSED_ON).await;
}

const PASSED_ON: [Row; 37] = [
    (&[], "b a: 5 7 2 @units 2 102 4 104", "[PASSED_ON]", "a.4=104 -b.2 sale.returns=4 told=5"),
    (&[], "a b: 5 7 2 @units 1 101 4 104", "[PASSED_ON]", "-a.1 b.4=104 sale.returns=4 told=5"),
    (
        &[("sale", "layout=3 state=paused -returns")],
        "a a: 5 7 2 @units 1 101 4 104",
        "[PASSED_ON]",
        "-a.1 a.4=104 sale.returns=1 told=5",
    ),
    // Without an heir.
    (
        &[("sale", "state=ended")],
        "b b: 5 7 2 @units 2 102 '' ''",
        "[PASSED_ON]",
        "-b.2 sale.returns=4 told=5",
    ),
    (
        &[],
        "b b a a: 5 7 2 @units 2 102 '' '' 1 101 '' ''",
        "[PASSED_ON PASSED_ON]",
        "-a.1 -b.2 sale.returns=4 told=5",
    ),
    (
        &[],
        "b b a b: 5 7 2 @units 2 102 '' '' 1 101 4 104",
        "[PASSED_ON PASSED_ON]",
        "-a.1 -b.2 b.4=104 sale.returns=4 told=5",
    ),
    // The heir is the buyer, by another order.
    (&[], "b b: 5 7 2 @units 2 102 2 105", "[PASSED_ON]", "b.2=105 sale.returns=4 told=5"),
    (
        &[],
        "b b a b: 5 7 2 @units 2 102 2 105 1 101 2 106",
        "[PASSED_ON TAKEN]",
        "b.2=105 sale.returns=4 told=5",
    ),
    // Several at once.
    (
        &[],
        "b a a b a a: 5 7 2 @units 2 102 4 104 1 101 5 105 3 103 6 106",
        "[PASSED_ON PASSED_ON PASSED_ON]",
        "-a.1 -a.3 a.4=104 a.6=106 -b.2 b.5=105 sale.returns=4 told=5",
    ),
    (
        &[],
        "b a a b: 5 7 2 @units 2 109 4 104 1 101 5 105",
        "[NOT_HELD PASSED_ON]",
        "-a.1 b.5=105 sale.returns=4 told=5",
    ),
    (
        &[],
        "b a b b: 5 7 2 @units 2 102 4 104 2 102 5 105",
        "[PASSED_ON NOT_HELD]",
        "a.4=104 -b.2 sale.returns=4 told=5",
    ),
    (
        &[],
        "b a a a: 5 7 2 @units 2 102 4 104 1 101 4 105",
        "[PASSED_ON TAKEN]",
        "a.4=104 -b.2 sale.returns=4 told=5",
    ),
    (
        &[],
        "b a a a a b: 5 7 2 @units 2 102 4 104 1 101 4 105 1 101 5 106",
        "[PASSED_ON TAKEN PASSED_ON]",
        "-a.1 a.4=104 -b.2 b.5=106 sale.returns=4 told=5",
    ),
    // The buyer holds another order, or none.
    (&[], "b a: 5 7 2 @units 2 109 4 104", "[NOT_HELD]", ""),
    (&[], "b a: 5 7 2 @units 5 105 4 104", "[NOT_HELD]", ""),
    (&[], "b b: 5 7 2 @units 2 109 '' ''", "[NOT_HELD]", ""),
    (&[], "b a: 5 7 2 @units 2 109 1 104", "[NOT_HELD]", ""),
    // The heir is a buyer already.
    (&[], "b a: 5 7 2 @units 2 102 1 104", "[TAKEN]", ""),
    (&[], "b a: 5 7 2 @units 2 102 1 101", "[TAKEN]", ""),
    (
        &[],
        "b a a b: 5 7 2 @units 2 102 1 104 1 101 4 104",
        "[TAKEN PASSED_ON]",
        "-a.1 b.4=104 sale.returns=4 told=5",
    ),
    (
        &[],
        "a b b a: 5 7 2 @units 1 101 4 104 2 102 1 105",
        "[PASSED_ON TAKEN]",
        "-a.1 b.4=104 sale.returns=4 told=5",
    ),
    // No place is passed on.
    (
        &[("lane", "state=recovering")],
        "b a a b: 5 7 2 @units 2 102 4 104 1 101 5 105",
        "[RECOVERING]",
        "",
    ),
    (&[("lane", "gone")], "b a: 5 7 2 @units 2 102 4 104", "[RECOVERING]", ""),
    (
        &[("lane", "state=recovering"), ("sale", "gone")],
        "b a: 5 7 2 @units 2 102 4 104",
        "[RECOVERING]",
        "",
    ),
    (&[("sale", "gone")], "b a: 5 7 2 @units 2 102 4 104", "[NOT_LOADED]", ""),
    (&[("sale", "-state")], "b a: 5 7 2 @units 2 102 4 104", "[NOT_LOADED]", ""),
    (&[("sale", "state=loading")], "b a: 5 7 2 @units 2 102 4 104", "[NOT_LOADED]", ""),
    (&[("lane", "epoch=8")], "b a: 5 7 2 @units 2 102 4 104", "[STALE]", ""),
    (&[("sale", "epoch=6")], "b a: 5 7 2 @units 2 102 4 104", "[STALE]", ""),
    (&[], "b a: 5 7 3 @units 2 102 4 104", "[STALE]", ""),
    (&[("sale", "layout=1")], "b a: 5 7 2 @units 2 102 4 104", "[STALE]", ""),
    (&[("sale", "layout=4")], "b a: 5 7 2 @units 2 102 4 104", "[STALE]", ""),
    (&[("sale", "epoch=6"), ("b", "gone")], "b a: 5 7 2 @units 2 102 4 104", "[STALE]", ""),
    (&[("b", "gone")], "b a a a: 5 7 2 @units 2 102 4 104 1 101 5 105", "[LOST]", ""),
    (&[("a", "gone")], "b a: 5 7 2 @units 2 102 4 104", "[LOST]", ""),
    (&[("a", "gone")], "b b b a: 5 7 2 @units 2 102 4 104 5 105 6 106", "[LOST]", ""),
    (&[("b", "--")], "b a: 5 7 2 @units 2 102 4 104", "[LOST]", ""),
];

#[tokio::test]
async fn free_place_takes_orders_off_their_users_lists() {
    let mut stage = Stage::new().await;
    let free_place = VariadicScript::new(include_str!("../../../lua/free_place.lua"));
    stage.holds(&free_place, "unpaid", &LISTS, &FREED).await;
}

/// Unpaid orders of three users.
const LISTS: [(&str, &str); 1] = [("unpaid", "1=101_102_103 2=201 3=301_302")];

const FREED: [Row; 14] = [
    (&[], "1 101", "1", "unpaid.1=102 103"),
    (&[], "1 102", "1", "unpaid.1=101 103"),
    (&[], "1 103", "1", "unpaid.1=101 102"),
    (&[], "2 201", "1", "-unpaid.2"),
    (&[], "3 301 2 201 1 102", "3", "unpaid.1=101 103 -unpaid.2 unpaid.3=302"),
    (&[], "3 301 3 302", "2", "-unpaid.3"),
    (&[], "3 301 3 301", "1", "unpaid.3=302"),
    (&[], "1 104 2 201", "1", "-unpaid.2"),
    (&[], "2 101", "0", ""),
    (&[], "1 10", "0", ""),
    (&[], "4 401", "0", ""),
    (&[("unpaid", "1=101_102_101")], "1 101", "1", "unpaid.1=102"),
    (&[("unpaid", "gone")], "1 101", "0", ""),
    (&[], "", "0", ""),
];
