//! Commands that looks at a log cost, on a Redis that counts them.

use flash_sale::base::clock::Clock;
use flash_sale::sale::log::LogState;
use flash_sale::sale::log::numbers::{LogNumbers, Oldest};
use private_servers::testing::RedisServer;

use crate::support::servers::Addresses;
use crate::support::{TestApp, calls, command_calls, lane, shared};

#[tokio::test]
async fn the_numbers_of_a_log_cost_a_look_at_its_entries_only_if_one_is_unread() {
    let server = RedisServer::start(&[]);
    let at = Addresses { redis_url: server.url(), ..shared().clone() };
    let app = TestApp::on(&at, &[], Clock::System).await;
    let coupon = app.create_flash(10).await;
    let stores = &app.app.stores;
    let oldest = Oldest::default();
    for (user, is_unread) in [(0, false), (1, true), (0, false)] {
        if user > 0 {
            assert_eq!(app.claim(user, coupon).await.status, 202);
        } else {
            app.write_orders().await;
        }
        let log = calls(lane());
        let state = LogState::of(&stores.redis, &stores.keys, log).await.expect("Redis answers");
        assert_eq!(state.has_unread(), is_unread);
        let before = command_calls(&app, "xrange").await;
        let numbers = LogNumbers::look(&stores.redis, &stores.keys, log, &state, &oldest).await;
        assert_eq!(numbers.expect("Redis answers").unread, u64::from(is_unread));
        assert_eq!(command_calls(&app, "xrange").await - before, i64::from(is_unread));
    }
}
