//! Commands that looks at a log cost, on a Redis that tells them.

use flash_sale::sale::log::LogState;
use flash_sale::sale::log::numbers::{LogNumbers, Oldest};

use crate::support::played::Played;
use crate::support::{Bounded, TestApp, lane, patience};

#[tokio::test]
async fn the_numbers_of_a_log_cost_a_look_at_its_entries_only_if_one_is_unread() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let stores = &app.app.stores;
    // The worker has begun a log, and a comparison of the stores asks for entries, too.
    let played = Played::hearing(app.redis_url(), "XRANGE").await;
    let redis = played.redis(patience());
    let oldest = Oldest::default();
    for (user, is_unread) in [(0, false), (1, true), (0, false)] {
        if user > 0 {
            assert_eq!(app.claim(user, coupon).await.status, 202);
        } else {
            app.write_orders().await;
        }
        let log = lane();
        let state = LogState::of(&stores.redis, &stores.keys, log).await.expect("Redis answers");
        assert_eq!(state.has_unread(), is_unread);
        let numbers = LogNumbers::look(&redis, &stores.keys, log, &state, &oldest).bounded().await;
        assert_eq!(numbers.expect("Redis answers").unread, u64::from(is_unread));
        assert_eq!(played.take_asked().len(), usize::from(is_unread));
    }
}
