//! The board's producer, look by look: time stands still while the stores answer, and passes at once when the test says
//! so.

// The producer: its first event, its pace and its end.
mod board;

// Facts of Redis.
mod board_in_redis;

// Facts of Postgres.
mod board_in_postgres;

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::sale::board::sources::Sources;
use flash_sale::sale::board::{Board, Watching};
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::live::places::Places;
use futures_util::FutureExt;
use serde_json::{Value, json};
use sqlx::Postgres;
use sqlx::pool::PoolConnection;

use super::by_hand::{archive, pass, redis_settles, service, settle, still};
use crate::support::{TestApp, now};

/// A board of its own over the stores of a service.
struct Desk {
    app: TestApp,
    board: Board,
    /// Time at its beginning.
    began: DateTime<Utc>,
    clock: Clock,
    shutdown: Shutdown,
    _held: PoolConnection<Postgres>,
}

impl Desk {
    /// From now on time stands still.
    async fn over(app: TestApp) -> Self {
        let held = app.app.stores.pool.acquire().await.expect("Postgres answers");
        let (began, shutdown) = (now(), Shutdown::default());
        let clock = Clock::manual(began);
        let (service, stores) = (&app.app, app.app.stores.clone());
        let sources = Sources {
            stores,
            coupons: service.coupons.clone(),
            backlog: service.backlog.clone(),
            lanes: service.lanes.clone(),
            durability: service.durability.clone(),
            clock: clock.clone(),
        };
        let board = Board::new(sources, Places::new(3), shutdown.clone());
        tokio::time::pause();
        Self { app, board, began, clock, shutdown, _held: held }
    }

    /// The time so long after the beginning, in ms since 1970.
    fn at(&self, seconds: i64) -> i64 {
        self.began.timestamp_millis() + 1_000 * seconds
    }

    /// The first watcher, and its first board.
    async fn opened(&self) -> (Watching, Value) {
        let mut watching = self.board.watch().expect("there is room");
        self.first_looks().await;
        let (_, board) = told(&mut watching).expect("both stores have been looked at");
        (watching, board)
    }

    /// A producer that has just begun makes its first looks, and sends its first board.
    async fn first_looks(&self) {
        let pause = limits::BOARD_FIRST_LOOK_MAX / 20;
        for time in [Duration::ZERO, pause, pause] {
            pass(time).await;
            settle(&self.app).await;
        }
    }

    /// A second passes, and the looks that are due then are made.
    async fn tick(&self) {
        self.clock.set(self.clock.now() + TimeDelta::seconds(1));
        pass(limits::BOARD_PERIOD).await;
        settle(&self.app).await;
    }

    /// The board of the next second. It tells what was seen a second before.
    async fn next(&self, watching: &mut Watching) -> Value {
        self.tick().await;
        told(watching).expect("a board each second").1
    }
}

/// The seconds before and the board, if there is one that this watcher has not been told.
fn told(watching: &mut Watching) -> Option<(Value, Value)> {
    let (past, board) = watching.next().now_or_never()?.expect("the producer goes on");
    Some((json!(past.as_deref()), json!(*board)))
}

/// Redis and Postgres, each true if the board says that it answers.
fn there(board: &Value) -> [bool; 2] {
    [0, 1].map(|store| board["stores"][store]["is_there"] == true)
}

/// The line of a sale.
fn line(board: &Value, coupon: CouponId) -> &Value {
    let sales = board["sales"].as_array().expect("a list");
    let line = sales.iter().find(|sale| sale["coupon_id"] == json!(coupon));
    line.unwrap_or_else(|| panic!("no {coupon} in {board}"))
}
