//! The claim script: its decisions on one call, each with all that it writes.

use flash_sale::kit::script::VariadicScript;

use super::stage::{Row, Stage};

/// A sale with five units, whose first buyer is user 1. The lane's last order ids are of a second that no clock has
/// reached, so that the next ones are known: 4294967296007340037 and those behind.
const USUAL: [(&str, &str); 6] = [
    (
        "sale",
        "opens_ms=0 closes_ms=9999999999999 stock=5 state=active epoch=7 shards=2 returns=3 \
         revision=6",
    ),
    ("lane", "epoch=7 state=open replid=@ promised=10 second=1000000000 used=5"),
    ("log", "stream"),
    ("unpaid", ""),
    ("a", "-= 1=101"),
    ("b", "-="),
];

/// Keys of the script before the shards.
const KEYS: &str = "sale lane log unpaid";

#[tokio::test]
async fn claim_refuses_all_claims_of_a_call_and_changes_nothing() {
    let mut stage = Stage::new().await;
    let claim = VariadicScript::new(include_str!("../../../lua/claim.lua"));
    stage.holds(&claim, KEYS, &USUAL, &REFUSED).await;
}

const REFUSED: [Row; 25] = [
    // The lane, and its log.
    (&[("lane", "state=recovering")], "a b: 5 0 7 1 0 2 1 2", "[VV  ]", ""),
    (&[("lane", "-state")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("lane", "replid=0")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("lane", "-replid")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("lane", "gone")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("log", "gone")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("log", "string")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("log", "string"), ("lane", "-promised")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("log", "string"), ("lane", "promised=0")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("lane", "state=recovering"), ("sale", "gone")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    // The sale is not loaded.
    (&[("sale", "gone")], "b b: 5 0 7 1 0 2 2 3", "[LL  ]", ""),
    (&[("sale", "-state")], "b: 5 0 7 1 0 2 2", "[L  ]", ""),
    (&[("sale", "state=loading")], "b: 5 0 7 1 0 2 2", "[L  ]", ""),
    (&[("sale", "state=loading epoch=6")], "b: 5 0 7 1 0 2 2", "[L  ]", ""),
    // Another epoch.
    (&[("lane", "epoch=8")], "b: 5 0 7 1 0 2 2", "[T  ]", ""),
    (&[("sale", "epoch=6")], "b: 5 0 7 1 0 2 2", "[T  ]", ""),
    (&[], "b b: 5 0 8 1 0 2 2 3", "[TT  ]", ""),
    (&[("sale", "epoch=6 shards=3")], "b: 5 0 7 1 0 2 2", "[T  ]", ""),
    // Other shards.
    (&[("sale", "shards=3")], "b b: 5 0 7 1 0 2 2 3", "[RR 3 ]", ""),
    (&[("sale", "-shards")], "b: 5 0 7 1 0 2 2", "[R  ]", ""),
    (&[], "b: 5 0 7 1 0 2_1 2", "[R 2 ]", ""),
    (&[("sale", "shards=3 -stock")], "b: 5 0 7 1 0 2 2", "[R 3 ]", ""),
    // The sale has lost its stock.
    (&[("sale", "-stock")], "a b: 5 0 7 1 0 2 1 2", "[XX  ]", ""),
    (&[("sale", "stock=x")], "b: 5 0 7 1 0 2 2", "[X  ]", ""),
    // Lists of unpaid orders that can't be read.
    (&[("unpaid", "string")], "b: 5 0 7 1 1 2 2", "error WRONGTYPE", ""),
];

#[tokio::test]
async fn claim_accepts_and_writes_the_log_the_stock_the_buyers_and_their_unpaid_orders() {
    let mut stage = Stage::new().await;
    let claim = VariadicScript::new(include_str!("../../../lua/claim.lua"));
    stage.holds(&claim, KEYS, &USUAL, &ACCEPTED).await;
}

const ACCEPTED: [Row; 25] = [
    (
        &[],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4",
    ),
    (
        &[],
        "a b a b: 5 0 7 1 2 2 1 2 3 4",
        "[DAAA 3 4294967296007340037 101]",
        "a.3=4294967296007340038 b.2=4294967296007340037 b.4=4294967296007340039 \
         lane.promised=13 lane.used=8 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2 3 4] \
         sale.stock=2 unpaid.2=4294967296007340037 unpaid.3=4294967296007340038 \
         unpaid.4=4294967296007340039",
    ),
    (
        &[("lane", "-promised"), ("log", "gone")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=1 lane.used=6 \
         log=[coupon,5,revision,6,epoch,7,first,1,order,4294967296007340037,users,2] \
         sale.stock=4",
    ),
    (
        &[("lane", "promised=0"), ("log", "gone")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=1 lane.used=6 \
         log=[coupon,5,revision,6,epoch,7,first,1,order,4294967296007340037,users,2] \
         sale.stock=4",
    ),
    (
        &[("lane", "-promised")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=1 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,1,order,4294967296007340037,users,2] sale.stock=4",
    ),
    // Two claims of one user.
    (
        &[],
        "b b b: 5 0 7 1 1 2 2 2 3",
        "[ADA 3 4294967296007340037 4294967296007340037]",
        "b.2=4294967296007340037 b.3=4294967296007340038 lane.promised=12 lane.used=7 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2 3] sale.stock=3 \
         unpaid.2=4294967296007340037 unpaid.3=4294967296007340038",
    ),
    (
        &[],
        "b b b: 5 0 7 1 0 2 2 2 2",
        "[ADD 3 4294967296007340037 4294967296007340037 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4",
    ),
    // The counter of the second is full, or would be within the call; another lane.
    (
        &[("lane", "used=1048576")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967300302307328]",
        "b.2=4294967300302307328 lane.promised=11 lane.second=1000000001 lane.used=1 \
         log=[a,b coupon,5,revision,6,epoch,7,first,11,order,4294967300302307328,users,2] \
         sale.stock=4",
    ),
    (
        &[("lane", "used=1048575")],
        "b b: 5 0 7 1 0 2 2 3",
        "[AA 3 4294967300302307328]",
        "b.2=4294967300302307328 b.3=4294967300302307329 lane.promised=12 \
         lane.second=1000000001 lane.used=2 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967300302307328,users,2 3] \
         sale.stock=3",
    ),
    (
        &[("lane", "used=1048575")],
        "b: 5 62 7 1 0 2 2",
        "[A 3 4294967300169138175]",
        "b.2=4294967300169138175 lane.promised=11 lane.used=1048576 \
         log=[a,b coupon,5,revision,6,epoch,7,first,11,order,4294967300169138175,users,2] \
         sale.stock=4",
    ),
    // No id can carry the next second.
    (&[("lane", "second=2147483647 used=1048576")], "b: 5 0 7 1 0 2 2", "[V  ]", ""),
    (&[("lane", "second=2147483647 used=1048576")], "a: 5 0 7 1 0 2 1", "[D 3  101]", ""),
    // As many as there are units.
    (
        &[("sale", "stock=1")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=0",
    ),
    (
        &[("sale", "stock=2")],
        "b b b a: 5 0 7 1 0 2 2 3 4 1",
        "[AASD 3 4294967296007340037 101]",
        "b.2=4294967296007340037 b.3=4294967296007340038 lane.promised=12 lane.used=7 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2 3] sale.stock=0",
    ),
    // As many unpaid orders as a user may have.
    (
        &[("unpaid", "2=102")],
        "b: 5 0 7 1 2 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4 \
         unpaid.2=102 4294967296007340037",
    ),
    (&[("unpaid", "2=102")], "b: 5 0 7 1 1 2 2", "[U 3 ]", ""),
    (
        &[("unpaid", "2=102 9=901")],
        "b b: 5 0 7 1 1 2 2 3",
        "[UA 3 4294967296007340037]",
        "b.3=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,3] sale.stock=4 \
         unpaid.3=4294967296007340037",
    ),
    (
        &[("unpaid", "2=102_103 3=104 4=105_106_107")],
        "b b b b: 5 0 7 1 2 2 2 3 4 5",
        "[UAUA 3 4294967296007340037]",
        "b.3=4294967296007340037 b.5=4294967296007340038 lane.promised=12 lane.used=7 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,3 5] sale.stock=3 \
         unpaid.3=104 4294967296007340037 unpaid.5=4294967296007340038",
    ),
    (
        &[("unpaid", "2=102_103_104")],
        "b b: 5 0 7 1 3 2 2 3",
        "[UA 3 4294967296007340037]",
        "b.3=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,3] sale.stock=4 \
         unpaid.3=4294967296007340037",
    ),
    (
        &[("unpaid", "2=102_103 3=104")],
        "b b: 5 0 7 1 3 2 2 3",
        "[AA 3 4294967296007340037]",
        "b.2=4294967296007340037 b.3=4294967296007340038 lane.promised=12 lane.used=7 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2 3] sale.stock=3 \
         unpaid.2=102 103 4294967296007340037 unpaid.3=104 4294967296007340038",
    ),
    (
        &[("unpaid", "2=102_103")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4",
    ),
    (
        &[("unpaid", "string")],
        "b: 5 0 7 1 0 2 2",
        "[A 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4",
    ),
    // A shard that was lost takes only its own claims along.
    (
        &[("a", "gone")],
        "a b: 5 0 7 1 0 2 1 2",
        "[XA 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4",
    ),
    (
        &[("b", "gone")],
        "a b a: 5 0 7 1 0 2 1 2 3",
        "[DXA 3 4294967296007340037 101]",
        "a.3=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,3] sale.stock=4",
    ),
    (
        &[("a", "-- 3=103")],
        "a a b: 5 0 7 1 0 2 1 3 2",
        "[XXA 3 4294967296007340037]",
        "b.2=4294967296007340037 lane.promised=11 lane.used=6 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,order,4294967296007340037,users,2] sale.stock=4",
    ),
];

#[tokio::test]
async fn claim_tells_each_user_why_there_is_no_unit_for_them() {
    let mut stage = Stage::new().await;
    let claim = VariadicScript::new(include_str!("../../../lua/claim.lua"));
    stage.holds(&claim, KEYS, &USUAL, &CLOSED).await;
}

const CLOSED: [Row; 20] = [
    (&[("sale", "state=ended")], "b a: 5 0 7 1 0 2 2 1", "[ED 3  101]", ""),
    (&[("sale", "closes_ms=1")], "b a: 5 0 7 1 0 2 2 1", "[ED 3  101]", ""),
    (&[("sale", "state=paused")], "b a: 5 0 7 1 0 2 2 1", "[PD 3  101]", ""),
    (&[("sale", "state=paused closes_ms=1")], "b: 5 0 7 1 0 2 2", "[E 3 ]", ""),
    (&[("sale", "state=paused opens_ms=9999999999998")], "b: 5 0 7 1 0 2 2", "[P 3 ]", ""),
    (&[("sale", "state=ended opens_ms=9999999999998")], "b: 5 0 7 1 0 2 2", "[E 3 ]", ""),
    (&[("sale", "state=ended stock=0 -returns")], "b: 5 0 7 1 0 2 2", "[E 0 ]", ""),
    (&[("sale", "stock=0")], "b a b: 5 0 7 1 0 2 2 1 3", "[SDS 3  101]", ""),
    (&[("sale", "stock=0 -returns")], "b: 5 0 7 1 0 2 2", "[S 0 ]", ""),
    (&[("sale", "stock=-1")], "b: 5 0 7 1 0 2 2", "[S 3 ]", ""),
    (&[("sale", "stock=0"), ("b", "gone")], "b: 5 0 7 1 0 2 2", "[X 3 ]", ""),
    (&[("sale", "state=ended"), ("b", "gone")], "b: 5 0 7 1 0 2 2", "[X 3 ]", ""),
    (&[("sale", "stock=0"), ("unpaid", "2=102")], "b: 5 0 7 0 1 2 2", "[S 3 ]", ""),
    (&[("unpaid", "1=101")], "a: 5 0 7 1 1 2 1", "[D 3  101]", ""),
    (&[("unpaid", "2=102")], "b: 5 0 7 0 1 2 2", "[U 3 ]", ""),
    (&[("unpaid", "2=102")], "b: 5 0 7 0 2 2 2", "[O 3 ]", ""),
    (&[], "b a: 5 0 7 0 0 2 2 1", "[OD 3  101]", ""),
    (&[], "a: 5 0 7 1 2 2 1", "[D 3  101]", ""),
    (&[], "a a: 5 0 7 1 0 2 1 1", "[DD 3  101 101]", ""),
    (&[], "a: 5 0 7 1 0 2 1", "[D 3  101]", ""),
];

/// Opening of a sale that no test comes to see.
const FAR_MS: i64 = 9_999_999_999_998;

#[tokio::test]
async fn claim_is_told_closed_to_the_millisecond_by_the_clock_of_redis() {
    let stage = Stage::new().await;
    let claim = VariadicScript::new(include_str!("../../../lua/claim.lua"));
    stage.set_all(&USUAL).await;
    stage.change("sale", "stock=1000").await;
    // Some of so many calls come in the very millisecond that was read before.
    for user in 100..150 {
        let call = format!("b: 5 0 7 1 0 2 {user}");
        let now_ms = stage.now_ms().await;
        stage.change("sale", &format!("opens_ms=0 closes_ms={now_ms}")).await;
        assert_eq!(stage.reply(&claim, KEYS, &call).await, "[E 3 ]", "at the end of the window");

        stage.change("sale", &format!("opens_ms={FAR_MS} closes_ms={FAR_MS}")).await;
        let from_ms = stage.now_ms().await;
        let reply = stage.reply(&claim, KEYS, &call).await;
        let until_ms = reply.strip_prefix("[N ").and_then(|rest| rest.strip_suffix(" ]"));
        let until_ms: i64 = until_ms.expect(&reply).parse().expect(&reply);
        let times_ms = from_ms..=stage.now_ms().await;
        assert!(times_ms.contains(&(FAR_MS - until_ms)), "{reply} at {times_ms:?}");

        let now_ms = stage.now_ms().await;
        stage.change("sale", &format!("opens_ms={now_ms}")).await;
        let reply = stage.reply(&claim, KEYS, &call).await;
        assert!(reply.starts_with("[A 3 "), "from the opening on: {reply}");
    }
}
