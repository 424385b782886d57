//! `changed`: the sales whose orders were not read for longest are read first, as far as there is room for their buyers.

use flash_sale::base::limits::CHANGED_BUYERS_MAX;
use flash_sale::sale::Stores;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::reconcile::{self, Kind};

use crate::support::{Bounded, TestApp};

/// The running counts have so many live orders more of a sale.
async fn count_more(app: &TestApp, coupon: CouponId, orders: i64) {
    app.execute(&format!(
        "INSERT INTO order_count_changes (coupon_id, status, orders, digest) VALUES ({coupon}, 'unpaid', {orders}, 0)"
    ))
    .await;
}

#[tokio::test]
async fn changed_sales_are_read_from_the_longest_unread_on_while_there_is_room() {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let mut sales = Vec::new();
    for _ in 0..5 {
        sales.push(app.create_flash(5).await);
    }
    // By the time since the last reading; the last two were never read.
    for (sale, hours, orders) in [
        (0, Some(1), 1),
        (1, Some(2), 1),
        (2, None, CHANGED_BUYERS_MAX - 1),
        (3, Some(1), 0),
        (4, None, 0),
    ] {
        count_more(&app, sales[sale], orders).await;
        if let Some(hours) = hours {
            app.execute(&format!(
                "INSERT INTO sale_readings (coupon_id, read_at, in_redis, in_postgres, is_good)
                 VALUES ({}, now() - {hours} * interval '1 hour', '', '', true)",
                sales[sale]
            ))
            .await;
        }
    }
    let Stores { pool, redis, keys } = &app.app.stores;
    let told = async |unchecked| {
        let report =
            reconcile::check_as(Kind::Changed, unchecked, pool, redis, keys).bounded().await;
        let report = report.expect("both stores answer");
        let all: Vec<CouponId> = report.sales.iter().map(|sale| sale.coupon).collect();
        assert!(all.is_sorted() && all.len() == 5, "{all:?}");
        let read: Vec<CouponId> = report.readings.iter().map(|reading| reading.coupon).collect();
        (read, report.waiting)
    };
    let sale = |numbers: [usize; 4]| numbers.map(|number| sales[number]).to_vec();
    // The one that was read an hour ago has no room.
    assert_eq!(told(&[]).await, (sale([2, 4, 1, 3]), 1));
    // Sales of a lane that has to be read need no room.
    count_more(&app, sales[1], CHANGED_BUYERS_MAX).await;
    let (read, waiting) = told(&[sales[0].lane()]).await;
    assert!(read.contains(&sales[0]) && !read.contains(&sales[1]));
    assert_eq!((read.len(), waiting), (4, 1));
}
