//! The claim script: its decisions on one call, each with all that it writes.

use flash_sale::kit::script::VariadicScript;

use super::stage::{Row, Stage};

/// A sale with five units, whose first buyer is user 1.
const USUAL: [(&str, &str); 6] = [
    (
        "sale",
        "opens_ms=0 closes_ms=9999999999999 stock=5 state=active epoch=7 layout=2 shards=2 returns=3 revision=6",
    ),
    ("lane", "epoch=7 state=open promised=10"),
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

const REFUSED: [Row; 33] = [
    // The lane, and its log.
    (&[("lane", "state=recovering")], "a b: 5 7 1 0 2 calls 1 201 2 202", "[VV ]", ""),
    (&[("lane", "-state")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    (&[("lane", "gone")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    (&[("log", "gone")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    (&[("log", "string")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    (&[("log", "string"), ("lane", "-promised")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    (&[("log", "string"), ("lane", "promised=0")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    (&[("log", "string"), ("lane", "-promised")], "b: 5 7 1 0 2 claims 2 202", "[V ]", ""),
    (&[("lane", "state=recovering"), ("sale", "gone")], "b: 5 7 1 0 2 calls 2 202", "[V ]", ""),
    // The sale is not loaded.
    (&[("sale", "gone")], "b b: 5 7 1 0 2 calls 2 202 3 203", "[LL ]", ""),
    (&[("sale", "-state")], "b: 5 7 1 0 2 calls 2 202", "[L ]", ""),
    (&[("sale", "state=loading")], "b: 5 7 1 0 2 calls 2 202", "[L ]", ""),
    (&[("sale", "state=loading epoch=6")], "b: 5 7 1 0 2 calls 2 202", "[L ]", ""),
    // Another epoch, or another layout.
    (&[("lane", "epoch=8")], "b: 5 7 1 0 2 calls 2 202", "[T ]", ""),
    (&[("sale", "epoch=6")], "b: 5 7 1 0 2 calls 2 202", "[T ]", ""),
    (&[], "b b: 5 8 1 0 2 calls 2 202 3 203", "[TT ]", ""),
    (&[("sale", "layout=1")], "b: 5 7 1 0 2 calls 2 202", "[T ]", ""),
    (&[("sale", "layout=4")], "b: 5 7 1 0 2 calls 2 202", "[T ]", ""),
    (&[("sale", "-layout")], "b: 5 7 1 0 2 calls 2 202", "[T ]", ""),
    (&[("sale", "epoch=6 shards=3")], "b: 5 7 1 0 2 calls 2 202", "[T ]", ""),
    // Other shards.
    (&[("sale", "shards=3")], "b b: 5 7 1 0 2 calls 2 202 3 203", "[RR 3]", ""),
    (&[("sale", "-shards")], "b: 5 7 1 0 2 calls 2 202", "[R ]", ""),
    (&[], "b: 5 7 1 0 2_1 calls 2 202", "[R 2]", ""),
    (&[("sale", "shards=3 -stock")], "b: 5 7 1 0 2 calls 2 202", "[R 3]", ""),
    // The sale has lost its stock.
    (&[("sale", "-stock")], "a b: 5 7 1 0 2 calls 1 201 2 202", "[XX ]", ""),
    (&[("sale", "stock=x")], "b: 5 7 1 0 2 calls 2 202", "[X ]", ""),
    (&[("sale", "-stock")], "b: 5 7 1 0 2 claims 2 202", "[X ]", ""),
    // The lane has a log of calls by now.
    (&[], "b b: 5 7 1 0 2 claims 2 202 3 203", "[CC ]", ""),
    (&[("log", "gone")], "b: 5 7 1 0 2 claims 2 202", "[C ]", ""),
    (&[("lane", "promised=0")], "b: 5 7 1 0 2 claims 2 202", "[C ]", ""),
    // Lists of unpaid orders that can't be read.
    (&[("unpaid", "string")], "b: 5 7 1 1 2 calls 2 202", "error WRONGTYPE", ""),
];

#[tokio::test]
async fn claim_accepts_and_writes_the_log_the_stock_the_buyers_and_their_unpaid_orders() {
    let mut stage = Stage::new().await;
    let claim = VariadicScript::new(include_str!("../../../lua/claim.lua"));
    stage.holds(&claim, KEYS, &USUAL, &ACCEPTED).await;
}

const ACCEPTED: [Row; 24] = [
    (
        &[],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
    (
        &[],
        "a b a b: 5 7 1 2 2 calls 1 201 2 202 3 203 4 204",
        "[DAAA 3 101]",
        "a.3=203 b.2=202 b.4=204 lane.promised=13 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,claims,2 202 3 203 4 204] sale.stock=2 \
         unpaid.2=202 unpaid.3=203 unpaid.4=204",
    ),
    (
        &[("lane", "-promised"), ("log", "gone")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=1 log=[coupon,5,revision,6,epoch,7,first,1,claims,2 202] \
         sale.stock=4",
    ),
    (
        &[("lane", "promised=0"), ("log", "gone")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=1 log=[coupon,5,revision,6,epoch,7,first,1,claims,2 202] \
         sale.stock=4",
    ),
    (
        &[("lane", "-promised")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=1 log=[a,b coupon,5,revision,6,epoch,7,first,1,claims,2 202] \
         sale.stock=4",
    ),
    (
        &[("sale", "layout=3 -revision")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,0,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
    // Two claims of one user.
    (
        &[],
        "b b b: 5 7 1 1 2 calls 2 202 2 203 3 204",
        "[ADA 3 202]",
        "b.2=202 b.3=204 lane.promised=12 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,claims,2 202 3 204] sale.stock=3 unpaid.2=202 \
         unpaid.3=204",
    ),
    (
        &[],
        "b b b: 5 7 1 0 2 calls 2 202 2 202 2 203",
        "[ADD 3 202 202]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
    // The log that older versions read.
    (
        &[("lane", "-promised"), ("log", "gone")],
        "b a a: 5 7 1 1 2 claims 2 202 1 201 3 203",
        "[ADA 3 101]",
        "a.3=203 b.2=202 log=[coupon,5,user,2,order,202 coupon,5,user,3,order,203] \
         sale.stock=3 unpaid.2=202 unpaid.3=203",
    ),
    (
        &[("lane", "-promised")],
        "b: 5 7 1 0 2 claims 2 202",
        "[A 3]",
        "b.2=202 log=[a,b coupon,5,user,2,order,202] sale.stock=4",
    ),
    // As many as there are units.
    (
        &[("sale", "stock=1")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=0",
    ),
    (
        &[("sale", "stock=2")],
        "b b b a: 5 7 1 0 2 calls 2 202 3 203 4 204 1 201",
        "[AASD 3 101]",
        "b.2=202 b.3=203 lane.promised=12 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,claims,2 202 3 203] sale.stock=0",
    ),
    // As many unpaid orders as a user may have.
    (
        &[("unpaid", "2=102")],
        "b: 5 7 1 2 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4 unpaid.2=102 202",
    ),
    (&[("unpaid", "2=102")], "b: 5 7 1 1 2 calls 2 202", "[U 3]", ""),
    (
        &[("unpaid", "2=102 9=901")],
        "b b: 5 7 1 1 2 calls 2 202 3 203",
        "[UA 3]",
        "b.3=203 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,3 203] \
         sale.stock=4 unpaid.3=203",
    ),
    (
        &[("unpaid", "2=102_103 3=104 4=105_106_107")],
        "b b b b: 5 7 1 2 2 calls 2 202 3 203 4 204 5 205",
        "[UAUA 3]",
        "b.3=203 b.5=205 lane.promised=12 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,claims,3 203 5 205] sale.stock=3 unpaid.3=104 \
         203 unpaid.5=205",
    ),
    (
        &[("unpaid", "2=102_103_104")],
        "b b: 5 7 1 3 2 calls 2 202 3 203",
        "[UA 3]",
        "b.3=203 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,3 203] \
         sale.stock=4 unpaid.3=203",
    ),
    (
        &[("unpaid", "2=102_103 3=104")],
        "b b: 5 7 1 3 2 calls 2 202 3 203",
        "[AA 3]",
        "b.2=202 b.3=203 lane.promised=12 log=[a,b \
         coupon,5,revision,6,epoch,7,first,11,claims,2 202 3 203] sale.stock=3 unpaid.2=102 \
         103 202 unpaid.3=104 203",
    ),
    (
        &[("unpaid", "2=102_103")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
    (
        &[("unpaid", "string")],
        "b: 5 7 1 0 2 calls 2 202",
        "[A 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
    // A shard that was lost takes only its own claims along.
    (
        &[("a", "gone")],
        "a b: 5 7 1 0 2 calls 1 201 2 202",
        "[XA 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
    (
        &[("b", "gone")],
        "a b a: 5 7 1 0 2 calls 1 201 2 202 3 203",
        "[DXA 3 101]",
        "a.3=203 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,3 203] \
         sale.stock=4",
    ),
    (
        &[("a", "-- 3=103")],
        "a a b: 5 7 1 0 2 calls 1 201 3 203 2 202",
        "[XXA 3]",
        "b.2=202 lane.promised=11 log=[a,b coupon,5,revision,6,epoch,7,first,11,claims,2 202] \
         sale.stock=4",
    ),
];

#[tokio::test]
async fn claim_tells_each_user_why_there_is_no_unit_for_them() {
    let mut stage = Stage::new().await;
    let claim = VariadicScript::new(include_str!("../../../lua/claim.lua"));
    stage.holds(&claim, KEYS, &USUAL, &CLOSED).await;
}

const CLOSED: [Row; 21] = [
    (&[("sale", "state=ended")], "b a: 5 7 1 0 2 calls 2 202 1 201", "[ED 3 101]", ""),
    (&[("sale", "closes_ms=1")], "b a: 5 7 1 0 2 calls 2 202 1 201", "[ED 3 101]", ""),
    (&[("sale", "state=paused")], "b a: 5 7 1 0 2 calls 2 202 1 201", "[PD 3 101]", ""),
    (&[("sale", "state=paused closes_ms=1")], "b: 5 7 1 0 2 calls 2 202", "[E 3]", ""),
    (&[("sale", "state=paused opens_ms=9999999999998")], "b: 5 7 1 0 2 calls 2 202", "[P 3]", ""),
    (&[("sale", "state=ended opens_ms=9999999999998")], "b: 5 7 1 0 2 calls 2 202", "[E 3]", ""),
    (&[("sale", "state=ended stock=0 -returns")], "b: 5 7 1 0 2 calls 2 202", "[E 0]", ""),
    (&[("sale", "stock=0")], "b a b: 5 7 1 0 2 calls 2 202 1 201 3 203", "[SDS 3 101]", ""),
    (&[("sale", "stock=0 -returns")], "b: 5 7 1 0 2 calls 2 202", "[S 0]", ""),
    (&[("sale", "stock=-1")], "b: 5 7 1 0 2 calls 2 202", "[S 3]", ""),
    (&[("sale", "stock=0"), ("b", "gone")], "b: 5 7 1 0 2 calls 2 202", "[X 3]", ""),
    (&[("sale", "state=ended"), ("b", "gone")], "b: 5 7 1 0 2 calls 2 202", "[X 3]", ""),
    (&[("sale", "stock=0"), ("unpaid", "2=102")], "b: 5 7 0 1 2 calls 2 202", "[S 3]", ""),
    (&[("unpaid", "1=101")], "a: 5 7 1 1 2 calls 1 201", "[D 3 101]", ""),
    (&[("unpaid", "2=102")], "b: 5 7 0 1 2 calls 2 202", "[U 3]", ""),
    (&[("unpaid", "2=102")], "b: 5 7 0 2 2 calls 2 202", "[O 3]", ""),
    (&[], "b a: 5 7 0 0 2 calls 2 202 1 201", "[OD 3 101]", ""),
    (&[], "a: 5 7 1 2 2 calls 1 101", "[D 3 101]", ""),
    (&[], "a a: 5 7 1 0 2 calls 1 201 1 202", "[DD 3 101 101]", ""),
    (&[], "a: 5 7 1 0 2 calls 1 201", "[D 3 101]", ""),
    (&[("lane", "-promised")], "a: 5 7 1 0 2 claims 1 201", "[D 3 101]", ""),
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
        let call = format!("b: 5 7 1 0 2 calls {user} 9{user}");
        let now_ms = stage.now_ms().await;
        stage.change("sale", &format!("opens_ms=0 closes_ms={now_ms}")).await;
        assert_eq!(stage.reply(&claim, KEYS, &call).await, "[E 3]", "at the end of the window");

        stage.change("sale", &format!("opens_ms={FAR_MS} closes_ms={FAR_MS}")).await;
        let from_ms = stage.now_ms().await;
        let reply = stage.reply(&claim, KEYS, &call).await;
        let until_ms = reply.strip_prefix("[N ").and_then(|rest| rest.strip_suffix(']'));
        let until_ms: i64 = until_ms.expect(&reply).parse().expect(&reply);
        let times_ms = from_ms..=stage.now_ms().await;
        assert!(times_ms.contains(&(FAR_MS - until_ms)), "{reply} at {times_ms:?}");

        let now_ms = stage.now_ms().await;
        stage.change("sale", &format!("opens_ms={now_ms}")).await;
        assert_eq!(stage.reply(&claim, KEYS, &call).await, "[A 3]", "from the opening on");
    }
}
