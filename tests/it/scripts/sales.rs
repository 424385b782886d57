//! The sale in Redis: `load_sale`, `make_shards`, `open_sale`, `apply_coupon`, `census`, and the steps of a recovery,
//! `switch_sale` and `adopt_sale`.

use flash_sale::kit::script::VariadicScript;

use super::stage::{Row, Stage};

#[tokio::test]
async fn load_sale_writes_a_sale_that_is_not_there_yet() {
    let mut stage = Stage::new().await;
    let load = VariadicScript::new(include_str!("../../../lua/load_sale.lua"));
    stage.holds(&load, "sale lane", &BEFORE, &LOADED).await;
}

const BEFORE: [(&str, &str); 2] = [("sale", ""), ("lane", "epoch=7 state=open")];

const LOADED: [Row; 14] = [
    (
        &[],
        "new 100 200 9 6 7 4 active ''",
        "[new 4]",
        "sale.closes_ms=200 sale.epoch=7 sale.layout=2 sale.load=new sale.opens_as=active \
         sale.opens_ms=100 sale.revision=6 sale.shards=4 sale.state=loading sale.stock=9 \
         sale.total=9",
    ),
    (
        &[],
        "new 100 200 9 6 7 4 paused 1",
        "[new 4]",
        "sale.closes_ms=200 sale.durability=1 sale.epoch=7 sale.layout=2 sale.load=new \
         sale.opens_as=paused sale.opens_ms=100 sale.revision=6 sale.shards=4 \
         sale.state=loading sale.stock=9 sale.total=9",
    ),
    (
        &[("sale", "stock=1 load=old shards=2")],
        "new 100 200 9 6 7 4 ended ''",
        "[new 4]",
        "sale.closes_ms=200 sale.epoch=7 sale.layout=2 sale.load=new sale.opens_as=ended \
         sale.opens_ms=100 sale.revision=6 sale.shards=4 sale.state=loading sale.stock=9 \
         sale.total=9",
    ),
    (
        &[("sale", "state=loading epoch=6 load=old shards=2")],
        "new 100 200 9 6 7 4 active ''",
        "[new 4]",
        "sale.closes_ms=200 sale.epoch=7 sale.layout=2 sale.load=new sale.opens_as=active \
         sale.opens_ms=100 sale.revision=6 sale.shards=4 sale.stock=9 sale.total=9",
    ),
    (
        &[("sale", "state=loading epoch=7 load=old shards=2")],
        "new 100 200 9 6 7 4 active 1",
        "[old 2]",
        "",
    ),
    (
        &[("sale", "state=active epoch=7 load=old shards=2")],
        "new 100 200 9 6 7 4 active ''",
        "[old 2]",
        "",
    ),
    (
        &[("sale", "state=active epoch=6 load=old shards=2")],
        "new 100 200 9 6 7 4 active 1",
        "[old 2]",
        "",
    ),
    (
        &[("sale", "state=loading load=old")],
        "new 100 200 9 6 7 4 active ''",
        "[new 4]",
        "sale.closes_ms=200 sale.epoch=7 sale.layout=2 sale.load=new sale.opens_as=active \
         sale.opens_ms=100 sale.revision=6 sale.shards=4 sale.stock=9 sale.total=9",
    ),
    (&[("lane", "state=recovering")], "new 100 200 9 6 7 4 active ''", "[ ]", ""),
    (&[("lane", "epoch=8")], "new 100 200 9 6 7 4 active ''", "[ ]", ""),
    (&[("lane", "epoch=6")], "new 100 200 9 6 7 4 active ''", "[ ]", ""),
    (&[("lane", "gone")], "new 100 200 9 6 7 4 active ''", "[ ]", ""),
    (
        &[("lane", "state=recovering"), ("sale", "state=active load=old shards=2")],
        "new 100 200 9 6 7 4 active ''",
        "[ ]",
        "",
    ),
    (
        &[("lane", "epoch=8"), ("sale", "state=active load=old shards=2")],
        "new 100 200 9 6 7 4 active ''",
        "[ ]",
        "",
    ),
];

#[tokio::test]
async fn make_shards_makes_them_while_their_sale_is_loading() {
    let mut stage = Stage::new().await;
    let make = VariadicScript::new(include_str!("../../../lua/make_shards.lua"));
    stage.holds(&make, "sale lane", &LOADING, &MADE).await;
}

const LOADING: [(&str, &str); 5] = [
    ("sale", "state=loading load=new opens_as=paused epoch=7"),
    ("lane", "epoch=7 state=open"),
    ("a", ""),
    ("b", ""),
    ("c", "-= 1=101"),
];

const MADE: [Row; 12] = [
    (&[], "a: new", "MADE", "a.-="),
    (&[], "b a: new", "MADE", "a.-= b.-="),
    (&[], "a b c: new", "MADE", "a.-= b.-="),
    (&[("c", "--")], "c: new", "MADE", "c.-="),
    (&[("sale", "state=active")], "a: new", "PRESENT", ""),
    (&[], "a: old", "MISSING", ""),
    (&[("sale", "state=active")], "a: old", "MISSING", ""),
    (&[("sale", "-state")], "a: new", "MISSING", ""),
    (&[("sale", "gone")], "a: new", "MISSING", ""),
    (&[("lane", "state=recovering")], "a b: new", "RECOVERING", ""),
    (&[("lane", "gone")], "a: new", "RECOVERING", ""),
    (&[("lane", "state=recovering"), ("sale", "gone")], "a: new", "RECOVERING", ""),
];

#[tokio::test]
async fn open_sale_opens_the_load_that_postgres_has_noted() {
    let mut stage = Stage::new().await;
    let open = VariadicScript::new(include_str!("../../../lua/open_sale.lua"));
    stage.holds(&open, "sale lane", &LOADING, &OPENED).await;
}

const OPENED: [Row; 14] = [
    (&[], "new", "OPENED", "sale.state=paused"),
    (&[("sale", "opens_as=active")], "new", "OPENED", "sale.state=active"),
    (&[("sale", "state=active")], "new", "PRESENT", ""),
    (&[("sale", "state=active epoch=6")], "new", "PRESENT", ""),
    (&[("sale", "gone")], "new", "MISSING", ""),
    (&[("sale", "-state")], "new", "MISSING", ""),
    (&[("sale", "load=old")], "new", "MISSING", ""),
    (&[("sale", "load=old state=active")], "new", "MISSING", ""),
    (&[("sale", "load=old epoch=6")], "new", "MISSING", ""),
    (&[("sale", "epoch=6")], "new", "BEHIND", ""),
    (&[("lane", "epoch=8")], "new", "BEHIND", ""),
    (&[("lane", "state=recovering")], "new", "RECOVERING", ""),
    (&[("lane", "gone")], "new", "RECOVERING", ""),
    (&[("lane", "state=recovering"), ("sale", "gone")], "new", "RECOVERING", ""),
];

#[tokio::test]
async fn apply_coupon_brings_a_sale_up_to_a_newer_revision() {
    let mut stage = Stage::new().await;
    let apply = VariadicScript::new(include_str!("../../../lua/apply_coupon.lua"));
    stage.holds(&apply, "sale lane", &OPEN, &APPLIED).await;
}

const OPEN: [(&str, &str); 2] = [
    (
        "sale",
        "opens_ms=1 closes_ms=2 stock=5 total=9 state=active load=old revision=6 epoch=7 layout=2 shards=2 returns=3",
    ),
    ("lane", "epoch=7 state=open"),
];

const APPLIED: [Row; 29] = [
    (
        &[],
        "5 old 7 7 100 200 9 paused @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.revision=7 sale.state=paused",
    ),
    (
        &[],
        "5 old 7 10 100 200 12 active @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.returns=4 sale.revision=10 sale.stock=8 \
         sale.total=12 told=5",
    ),
    (
        &[],
        "5 old 7 7 100 200 10 ended @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.returns=4 sale.revision=7 sale.state=ended \
         sale.stock=6 sale.total=10 told=5",
    ),
    (
        &[],
        "5 old 7 7 100 200 8 active @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.revision=7 sale.stock=4 sale.total=8",
    ),
    (
        &[],
        "5 old 7 7 100 200 7 active @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.revision=7 sale.stock=3 sale.total=7",
    ),
    (
        &[],
        "5 old 7 7 100 200 3 active @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.revision=7 sale.stock=-1 sale.total=3",
    ),
    (
        &[("sale", "-returns layout=3")],
        "5 old 7 7 100 200 9 active @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.returns=0 sale.revision=7",
    ),
    (
        &[("sale", "-returns")],
        "5 old 7 7 100 200 11 active @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.returns=1 sale.revision=7 sale.stock=7 \
         sale.total=11 told=5",
    ),
    (
        &[("sale", "state=ended stock=0")],
        "5 old 7 7 100 200 11 paused @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.returns=4 sale.revision=7 sale.state=paused \
         sale.stock=2 sale.total=11 told=5",
    ),
    // This revision, or a newer one.
    (&[], "5 old 7 6 100 200 12 paused @units", "PRESENT", ""),
    (&[], "5 old 7 5 100 200 12 paused @units", "PRESENT", ""),
    (&[("sale", "revision=10")], "5 old 7 9 100 200 12 paused @units", "PRESENT", ""),
    (
        &[("sale", "revision=9")],
        "5 old 7 10 100 200 9 paused @units",
        "APPLIED",
        "sale.closes_ms=200 sale.opens_ms=100 sale.revision=10 sale.state=paused",
    ),
    // The sale is not there, or can't be changed.
    (&[("lane", "state=recovering")], "5 old 7 7 100 200 12 paused @units", "RECOVERING", ""),
    (&[("lane", "gone")], "5 old 7 7 100 200 12 paused @units", "RECOVERING", ""),
    (
        &[("lane", "state=recovering"), ("sale", "gone")],
        "5 old 7 7 100 200 12 paused @units",
        "RECOVERING",
        "",
    ),
    (&[("sale", "gone")], "5 old 7 7 100 200 12 paused @units", "MISSING", ""),
    (&[("sale", "-state")], "5 old 7 7 100 200 12 paused @units", "MISSING", ""),
    (&[], "5 new 7 7 100 200 12 paused @units", "MISSING", ""),
    (&[("sale", "state=loading")], "5 new 7 7 100 200 12 paused @units", "MISSING", ""),
    (&[("sale", "state=loading")], "5 old 7 7 100 200 12 paused @units", "LOADING", ""),
    (&[("sale", "state=loading epoch=6")], "5 old 7 7 100 200 12 paused @units", "LOADING", ""),
    (&[("lane", "epoch=8")], "5 old 7 7 100 200 12 paused @units", "STALE", ""),
    (&[("sale", "epoch=6")], "5 old 7 7 100 200 12 paused @units", "STALE", ""),
    (&[], "5 old 8 7 100 200 12 paused @units", "STALE", ""),
    (&[("sale", "layout=1")], "5 old 7 7 100 200 12 paused @units", "STALE", ""),
    (&[("sale", "layout=4")], "5 old 7 7 100 200 12 paused @units", "STALE", ""),
    (&[("sale", "-layout")], "5 old 7 7 100 200 12 paused @units", "STALE", ""),
    (&[("sale", "epoch=6 revision=7")], "5 old 7 7 100 200 12 paused @units", "STALE", ""),
];

#[tokio::test]
async fn census_counts_buyers_and_missing_shards() {
    let mut stage = Stage::new().await;
    let census = VariadicScript::new(include_str!("../../../lua/census.lua"));
    stage.holds(&census, "sale", &COUNTED, &COUNTS).await;
}

const COUNTED: [(&str, &str); 4] = [
    ("sale", "opens_ms=1 closes_ms=2 stock=5 total=9 state=active revision=6 epoch=7 returns=3"),
    ("a", "-= 1=101 3=103 4=104"),
    ("b", "-= 2=102"),
    ("c", "-="),
];

const COUNTS: [Row; 8] = [
    (&[], "a b c:", "[4 0 9 5 active 6 7 1 2 3]", ""),
    (&[], "c:", "[0 0 9 5 active 6 7 1 2 3]", ""),
    (&[], "a:", "[3 0 9 5 active 6 7 1 2 3]", ""),
    (&[("a", "gone")], "a b c:", "[1 1 9 5 active 6 7 1 2 3]", ""),
    (&[("a", "gone"), ("c", "gone")], "a b c:", "[1 2 9 5 active 6 7 1 2 3]", ""),
    (&[("a", "gone"), ("b", "gone"), ("c", "gone")], "a b c:", "[0 3 9 5 active 6 7 1 2 3]", ""),
    (&[("sale", "-returns -stock")], "b:", "[1 0 9 nil active 6 7 1 2 nil]", ""),
    (&[("sale", "gone")], "a b:", "[4 0 nil nil nil nil nil nil nil nil]", ""),
];

#[tokio::test]
async fn switch_sale_puts_a_built_sale_in_the_place_of_what_is_there() {
    let mut stage = Stage::new().await;
    let switch = VariadicScript::new(include_str!("../../../lua/switch_sale.lua"));
    stage.holds(&switch, "lane sale", &RECOVERING, &SWITCHED).await;
}

const RECOVERING: [(&str, &str); 2] = [
    ("lane", "epoch=7 state=recovering steps=2"),
    ("sale", "stock=5 state=active load=old epoch=6 layout=2 shards=2 returns=3 durability=1"),
];

const SWITCHED: [Row; 12] = [
    (
        &[],
        "7 100 200 4 9 paused new 6 8 ''",
        "[SWITCHED 2]",
        "lane.steps=3 sale.closes_ms=200 -sale.durability sale.epoch=7 sale.layout=3 \
         sale.load=new sale.opens_as=paused sale.opens_ms=100 sale.returns=4 sale.revision=6 \
         sale.shards=8 sale.state=paused sale.stock=4 sale.total=9",
    ),
    (
        &[],
        "7 100 200 4 9 active new 6 8 2",
        "[SWITCHED 2]",
        "lane.steps=3 sale.closes_ms=200 sale.durability=2 sale.epoch=7 sale.layout=3 \
         sale.load=new sale.opens_as=active sale.opens_ms=100 sale.returns=4 sale.revision=6 \
         sale.shards=8 sale.stock=4 sale.total=9",
    ),
    (
        &[("sale", "gone")],
        "7 100 200 4 9 active new 6 8 ''",
        "[SWITCHED ]",
        "lane.steps=3 sale.closes_ms=200 sale.epoch=7 sale.layout=3 sale.load=new \
         sale.opens_as=active sale.opens_ms=100 sale.returns=1 sale.revision=6 sale.shards=8 \
         sale.state=active sale.stock=4 sale.total=9",
    ),
    (
        &[("sale", "string")],
        "7 100 200 4 9 active new 6 8 1",
        "[SWITCHED ]",
        "lane.steps=3 -sale sale.closes_ms=200 sale.durability=1 sale.epoch=7 sale.layout=3 \
         sale.load=new sale.opens_as=active sale.opens_ms=100 sale.returns=1 sale.revision=6 \
         sale.shards=8 sale.state=active sale.stock=4 sale.total=9",
    ),
    (
        &[("sale", "-shards -returns")],
        "7 100 200 4 9 ended new 6 8 ''",
        "[SWITCHED ]",
        "lane.steps=3 sale.closes_ms=200 -sale.durability sale.epoch=7 sale.layout=3 \
         sale.load=new sale.opens_as=ended sale.opens_ms=100 sale.returns=1 sale.revision=6 \
         sale.shards=8 sale.state=ended sale.stock=4 sale.total=9",
    ),
    (
        &[("sale", "returns=x"), ("lane", "-steps")],
        "7 100 200 4 9 ended new 6 8 ''",
        "[SWITCHED 2]",
        "lane.steps=1 sale.closes_ms=200 -sale.durability sale.epoch=7 sale.layout=3 \
         sale.load=new sale.opens_as=ended sale.opens_ms=100 sale.returns=1 sale.revision=6 \
         sale.shards=8 sale.state=ended sale.stock=4 sale.total=9",
    ),
    (
        &[("sale", "returns=0")],
        "7 100 200 4 9 ended new 6 8 ''",
        "[SWITCHED 2]",
        "lane.steps=3 sale.closes_ms=200 -sale.durability sale.epoch=7 sale.layout=3 \
         sale.load=new sale.opens_as=ended sale.opens_ms=100 sale.returns=1 sale.revision=6 \
         sale.shards=8 sale.state=ended sale.stock=4 sale.total=9",
    ),
    (&[("lane", "state=open")], "7 100 200 4 9 active new 6 8 ''", "[FENCED ]", ""),
    (&[("lane", "epoch=8")], "7 100 200 4 9 active new 6 8 ''", "[FENCED ]", ""),
    (&[("lane", "epoch=6")], "7 100 200 4 9 active new 6 8 1", "[FENCED ]", ""),
    (&[("lane", "gone")], "7 100 200 4 9 active new 6 8 ''", "[FENCED ]", ""),
    (&[("lane", "-state")], "7 100 200 4 9 active new 6 8 ''", "[FENCED ]", ""),
];

#[tokio::test]
async fn adopt_sale_takes_an_open_sale_of_the_noted_load_into_the_epoch() {
    let mut stage = Stage::new().await;
    let adopt = VariadicScript::new(include_str!("../../../lua/adopt_sale.lua"));
    stage.holds(&adopt, "lane sale", &RECOVERING, &ADOPTED).await;
}

const ADOPTED: [Row; 13] = [
    (&[], "7 old", "ADOPTED", "lane.steps=3 sale.epoch=7 sale.layout=3"),
    (
        &[("sale", "state=paused layout=3 epoch=7"), ("lane", "-steps")],
        "7 old",
        "ADOPTED",
        "lane.steps=1",
    ),
    (&[("sale", "state=ended")], "7 old", "ADOPTED", "lane.steps=3 sale.epoch=7 sale.layout=3"),
    (&[("sale", "gone")], "7 old", "MISSING", ""),
    (&[("sale", "string")], "7 old", "MISSING", ""),
    (&[("sale", "-state")], "7 old", "MISSING", ""),
    (&[("sale", "state=loading")], "7 old", "MISSING", ""),
    (&[], "7 new", "MISSING", ""),
    (&[("sale", "-load")], "7 old", "MISSING", ""),
    (&[("lane", "state=open")], "7 old", "FENCED", ""),
    (&[("lane", "epoch=8")], "7 old", "FENCED", ""),
    (&[("lane", "gone")], "7 old", "FENCED", ""),
    (&[("lane", "state=open"), ("sale", "gone")], "7 old", "FENCED", ""),
];
