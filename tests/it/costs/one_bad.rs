//! One bad item in front of many good ones, for each pass: the good ones are dealt with within twice the time that they
//! take alone. Both are measured in turns in one run, so a slow machine changes neither side of the ratio.

use std::time::{Duration, Instant};

use flash_sale::base::clock::Clock;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::pass::Pass;

use crate::support::{Bounded, OwnServers, TestApp, median};
use crate::tables::passes::{
    CANCELLED, LATE, LIFE, PAID, Step, orders, refunding, returns, sales, sold_is,
};

/// A pass and its bad item.
const ROWS: [(Pass, &str); 7] = [
    (Pass::Expiry, "an order that `sold` lacks"),
    (Pass::Refunds, "an order that `sold` lacks"),
    (Pass::StockReturns, "a sale whose stock is no number"),
    (Pass::Load, "a key of another type in the place of the first sale"),
    (Pass::Changes, "an unknown layout of the first sale"),
    (Pass::Archive, "a junk field in a shard of the first sale"),
    (Pass::Reconcile, "a junk field in a shard of the first sale"),
];

/// Turns of each side.
const ROUNDS: usize = 5;
/// Largest ratio of the time beside the bad item to the time alone.
const RATIO_MAX: f64 = 2.0;

/// Orders of the good sale, for the passes over orders, and for the comparison; good sales, for the passes over sales.
const ORDERS: i64 = 2_000;
const COMPARED: i64 = 20_000;
const SALES: i64 = 300;

#[tokio::test]
#[ignore = "measures: make faults, best in release"]
async fn long_the_good_items_of_each_pass_behind_a_bad_one() {
    let servers = OwnServers::start();
    let mut missed = Vec::new();
    for (pass, bad_item) in ROWS {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for turn in 0..2 {
                let is_beside = turn != round % 2;
                let took = took(&servers, pass, is_beside).await;
                times[usize::from(is_beside)].push(took.as_secs_f64() * 1_000.0);
            }
        }
        let ratios = times[1].iter().zip(&times[0]).map(|(beside, alone)| beside / alone);
        let (least, most) = ratios
            .fold((f64::MAX, 0.0_f64), |(least, most), ratio| (least.min(ratio), most.max(ratio)));
        let [alone, beside] = times.map(median);
        let ratio = beside / alone;
        let name = pass.name();
        println!(
            "| {name} | {bad_item} | {alone:.0} ms | {beside:.0} ms | {ratio:.2} ({least:.2} to {most:.2}) |"
        );
        if ratio > RATIO_MAX {
            missed.push(format!("{name}: {ratio:.2}"));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// Time of the pass for all good items, with the bad one in front of them or without it.
async fn took(servers: &OwnServers, pass: Pass, is_beside: bool) -> Duration {
    let app = TestApp::on(&servers.at, &["--archive-after-ms", "0"], Clock::System).await;
    app.expect_disagreements();
    match pass {
        Pass::Load => of_sales(&app, Step::Load, is_beside).await,
        Pass::Changes => of_sales(&app, Step::Changes, is_beside).await,
        Pass::Archive => of_sales(&app, Step::Archive, is_beside).await,
        Pass::Reconcile => of_comparison(&app, is_beside).await,
        _ => of_orders(&app, pass, is_beside).await,
    }
}

/// Expiry, refunds and returns of the orders of a sale.
async fn of_orders(app: &TestApp, pass: Pass, is_beside: bool) -> Duration {
    if is_beside {
        let bad = app.create_flash(1).await;
        write(app, pass, bad, (1, 1)).await;
        match pass {
            Pass::StockReturns => {
                let key = app.keys().coupon(bad);
                let _: i64 = app.redis(&["HSET", &key, "stock", "few"]).await;
            }
            _ => sold_is(app, bad, 0).await,
        }
    }
    let good = app.create_flash(1 + ORDERS).await;
    write(app, pass, good, (2, ORDERS)).await;
    let left = match pass {
        Pass::StockReturns => "stock_returns WHERE done_at IS NULL",
        _ => "orders WHERE status IN ('unpaid', 'refunding')",
    };
    let left = format!("SELECT count(*) FROM {left} AND coupon_id = {good}");
    assert_eq!(app.number(&left).await, ORDERS);
    let began = Instant::now();
    let passes = async {
        while app.number(&left).await > 0 {
            match pass {
                Pass::Expiry => app.expire().await,
                Pass::Refunds => app.refund_payments().await,
                _ => app.give_back().await,
            };
        }
    };
    passes.bounded().await;
    let took = began.elapsed();
    assert_eq!(app.postponed().await.len(), usize::from(is_beside), "{}", pass.name());
    took
}

/// Writes orders of these users that are due in the pass.
async fn write(app: &TestApp, pass: Pass, coupon: CouponId, (first, count): (i64, i64)) {
    match pass {
        Pass::Expiry => orders(app, coupon, (first, count), LATE).await,
        Pass::Refunds => refunding(app, coupon, (first, count)).await,
        _ => {
            app.sell_out_by_hand(coupon, first + count - 1).await;
            orders(app, coupon, (first, count), CANCELLED).await;
            returns(app, coupon, (first, count), "unit").await;
        }
    }
}

/// The step of many sales, the first of which may be bad.
async fn of_sales(app: &TestApp, step: Step, is_beside: bool) -> Duration {
    let all = sales(app, SALES + i64::from(is_beside)).await;
    let (bad, good) = all.split_at(usize::from(is_beside));
    for before in LIFE.into_iter().take_while(|before| *before != step) {
        before.prepare(app, &all, false).await;
        before.run(app).await;
    }
    if step == Step::Changes {
        step.run(app).await;
        app.execute("UPDATE coupons SET state = 'paused', revision = revision + 1").await;
    }
    match bad {
        [first] if step == Step::Archive => spoil(app, *first).await,
        _ => step.prepare(app, bad, true).await,
    }
    let began = Instant::now();
    let done = step.run(app).await;
    let took = began.elapsed();
    assert_eq!((done, good.len() as i64), (SALES, SALES), "{step:?}, in one run");
    assert_eq!(app.postponed().await.len(), bad.len(), "{step:?}");
    took
}

/// The comparison of a large sale, behind one that may be bad.
async fn of_comparison(app: &TestApp, is_beside: bool) -> Duration {
    if is_beside {
        let bad = app.create_flash(1).await;
        spoil(app, bad).await;
    }
    let good = app.create_flash(COMPARED).await;
    app.sell_out_by_hand(good, COMPARED).await;
    orders(app, good, (1, COMPARED), PAID).await;
    let began = Instant::now();
    let report = app.app.reconciler.compare().bounded().await.expect("both stores answer");
    let took = began.elapsed();
    let report = report.expect("no other comparison goes on");
    let sale = report.sales.iter().find(|sale| sale.coupon == good).expect("it is compared");
    assert!(sale.identical && sale.buyers == COMPARED, "{sale:?}");
    assert_eq!(report.agrees(), !is_beside, "{:?}", report.disagreements);
    took
}

/// Writes a field into a shard of a sale that names neither user nor order.
async fn spoil(app: &TestApp, coupon: CouponId) {
    let shard = app.shard_of(coupon, 1).await;
    let _: i64 = app.redis(&["HSET", &shard, "77", "ju\0nk"]).await;
}
