//! Readers of the buyers of sold-out sales: a stranger is refused only if all of them have been read, and nothing has
//! changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::redis::ServerId;
use flash_sale::sale::claim::memory::Memories;
use flash_sale::sale::claim::memory::listening::Edition;
use flash_sale::sale::ids::{CouponId, OrderId};
use private_servers::testing::RedisServer;
use tokio::time::Instant;

use super::buyers::Sale;
use crate::faults::failover::ask;
use crate::support::played::{Play, Played, Still, soon, text};
use crate::support::{bounded, eventually, shared, user};

/// Questions that pay for any read here.
const ENOUGH: usize = 1_000;
/// Epoch of the sale.
const EPOCH: i64 = 7;
/// A sale without an edge: three units, and three buyers.
const USUAL: [(&str, &str); 5] =
    [("total", "3"), ("stock", "0"), ("epoch", "7"), ("returns", "2"), ("shards", "1")];

/// A process that hears of all units of one sale.
struct Process {
    sale: Sale,
    memories: Memories,
    shutdown: Shutdown,
    server: ServerId,
}

impl Process {
    async fn of(sale: Sale) -> Self {
        let server = sale.redis.link().await.expect("Redis answers").server().clone();
        let shutdown = Shutdown::default();
        let memory = Duration::from_secs(60);
        let (redis, keys) = (sale.redis.clone(), sale.keys.clone());
        let memories = Memories::new(redis, keys, memory, shutdown.clone());
        memories.begin_listening(server.clone(), Arc::new(AtomicBool::new(true)));
        Self { sale, memories, shutdown, server }
    }

    /// A sale with these fields in place of the usual ones, and so many buyers.
    async fn with(fields: &[(&str, &str)], buyers: i64) -> Self {
        Self::on(Sale::absent(), fields, buyers).await
    }

    async fn on(sale: Sale, fields: &[(&str, &str)], buyers: i64) -> Self {
        sale.set(&USUAL).await;
        sale.set(fields).await;
        sale.set_buyers(0, 0, 1..=buyers).await;
        Self::of(sale).await
    }

    /// Redis has refused so many claims.
    fn note(&self, additions: i64, refused: usize) {
        let edition = Edition { server: self.server.clone(), epoch: EPOCH, additions };
        self.memories.sold_out.note(self.sale.coupon, edition, refused, Instant::now());
    }

    async fn readers_end(&self) {
        self.shutdown.tracker().close();
        bounded("the readers end", self.shutdown.tracker().wait()).await;
    }

    fn refuses(&self, id: i64) -> bool {
        self.memories.heard(Instant::now());
        self.memories.sold_out.refuses(self.sale.coupon, user(id))
    }

    /// Whether the memory refuses users that are no buyers. The filter takes one in ten thousand of them for a buyer.
    fn refuses_strangers(&self) -> bool {
        (900_001..=900_003).any(|id| self.refuses(id))
    }
}

#[tokio::test]
async fn read_buyers_stand_for_a_sale_that_is_still_sold_out_in_the_same_edition() {
    for (fields, additions, buyers, stands) in [
        (&[][..], 2, 3, true),
        (&[], 2, 4, true),
        (&[("total", "500")], 2, 500, true),
        (&[("total", "500")], 2, 499, false),
        (&[], 2, 2, false),
        (&[("stock", "1")], 2, 3, false),
        (&[("stock", "-1")], 2, 3, false),
        (&[("epoch", "8")], 2, 3, false),
        (&[("returns", "3")], 2, 3, false),
        (&[], 1, 3, false),
        (&[], 0, 3, false),
        (&[("returns", "0")], 0, 3, true),
        (&[("shards", "2")], 2, 3, true),
        (&[("shards", "1@4")], 2, 3, false),
    ] {
        let process = Process::with(fields, buyers).await;
        process.note(additions, ENOUGH);
        process.readers_end().await;
        assert_eq!(process.refuses_strangers(), stands, "{fields:?} {additions} {buyers}");
        assert!((1..=buyers).all(|id| !process.refuses(id)), "a buyer is never refused");
    }
}

#[tokio::test]
async fn read_buyers_of_a_sale_that_lacks_fields() {
    for (field, additions, stands) in
        [("returns", 0, true), ("returns", 2, false), ("stock", 2, false), ("epoch", 2, false)]
    {
        let process = Process::with(&[], 3).await;
        let mut command = redis::cmd("HDEL");
        command.arg(process.sale.keys.coupon(process.sale.coupon)).arg(field);
        process.sale.redis.query::<i64>(&command).await.expect("Redis answers");
        process.note(additions, ENOUGH);
        process.readers_end().await;
        assert_eq!(process.refuses_strangers(), stands, "{field} {additions}");
    }
}

/// No question pays for these, so a reader that waited for that would not end.
#[tokio::test]
async fn read_buyers_begins_for_no_other_redis_and_no_sale_that_is_too_large() {
    let too_many = (limits::SOLD_OUT_BUYERS_MAX + 1).to_string();
    let process = Process::with(&[("total", &too_many)], 3).await;
    process.note(2, 0);
    process.readers_end().await;
    assert!(!process.refuses_strangers());

    let mut process = Process::with(&[("total", "500")], 500).await;
    process.server = ServerId::named("another");
    let connected = Arc::new(AtomicBool::new(true));
    process.memories.begin_listening(process.server.clone(), connected);
    process.note(2, 0);
    process.readers_end().await;
    assert!(!process.refuses_strangers());
}

#[tokio::test]
async fn read_buyers_of_the_largest_sale_that_is_read_waits_to_be_paid() {
    let played = Played::before(&shared().redis_url, |command| match command {
        [name, _, field] if name == "HGET" && field == "total" => {
            Play::Reply(text(&limits::SOLD_OUT_BUYERS_MAX.to_string()))
        }
        _ => Play::Real,
    })
    .await;
    let redis = played.redis(Duration::from_secs(10));
    let process = Process::on(Sale { redis, ..Sale::absent() }, &[], 3).await;
    let still = Still::begin();
    process.note(2, 0);
    soon("the number of units is read", || played.asked().len() == 1).await;
    still.settle().await;
    assert_eq!(process.shutdown.tracker().len(), 1);
    process.memories.forget(process.sale.coupon);
    process.readers_end().await;
}

/// Nothing is believed of a sale for longer than its memory, and it is dropped a minute later.
#[tokio::test]
async fn forget_idle_ends_the_readers_of_sales_that_no_claim_asks_about() {
    let process = Process::with(&[("total", "500")], 500).await;
    let still = Still::begin();
    process.note(2, 0);
    let ms = |time: Duration| u64::try_from(time.as_millis()).expect("it is short");
    still.advance(60_000 + ms(limits::SOLD_OUT_KEPT) - 1).await;
    process.memories.forget_idle();
    still.settle().await;
    assert_eq!(process.shutdown.tracker().len(), 1);
    still.advance(1).await;
    process.memories.forget_idle();
    soon("the reader ends", || process.shutdown.tracker().is_empty()).await;
}

/// Of both memories, each alone.
#[tokio::test]
async fn memories_forget_a_sale_and_all_sales_where_units_may_have_come_back_unheard() {
    let process = Process::with(&[], 3).await;
    let other = CouponId::compose(6, 1);
    let note = |coupon| {
        let edition = Edition { server: process.server.clone(), epoch: EPOCH, additions: 2 };
        let orders = [(user(1), OrderId::new(77).expect("an id"))].into_iter();
        process.memories.promised.note(coupon, edition, Instant::now(), orders);
    };
    let is_promised = |coupon| {
        process.memories.heard(Instant::now());
        process.memories.promised.order_of(coupon, user(1)).is_some()
    };
    let begin = || {
        let connected = Arc::new(AtomicBool::new(true));
        process.memories.begin_listening(process.server.clone(), connected);
    };
    let forgets: [&dyn Fn(); 3] = [
        &|| process.memories.forget(process.sale.coupon),
        // Another connection.
        &begin,
        &|| {
            process.memories.end_listening();
            begin();
        },
    ];
    for (forget, keeps_others) in forgets.iter().zip([true, false, false]) {
        process.note(2, ENOUGH);
        note(process.sale.coupon);
        note(other);
        eventually("the buyers are read", async || process.refuses_strangers()).await;
        assert!(is_promised(process.sale.coupon) && is_promised(other));
        forget();
        assert!(!process.refuses_strangers() && !is_promised(process.sale.coupon));
        assert_eq!(is_promised(other), keeps_others);
    }
}

#[tokio::test]
async fn learn_buyers_begins_anew_after_a_failure() {
    let process = Process::with(&[("total", "x")], 3).await;
    process.note(2, ENOUGH);
    process.readers_end().await;
    process.sale.set(&[("total", "3")]).await;
    process.note(2, ENOUGH);
    process.readers_end().await;
    assert!(process.refuses_strangers());
}

#[tokio::test]
async fn learn_buyers_ends_with_its_edition_and_with_the_service() {
    let process = Process::with(&[("total", "500")], 500).await;
    process.note(2, 0);
    process.memories.forget(process.sale.coupon);
    process.readers_end().await;
    process.note(2, 0);
    process.memories.end_listening();
    process.readers_end().await;

    let connected = Arc::new(AtomicBool::new(true));
    process.memories.begin_listening(process.server.clone(), connected);
    process.note(2, 0);
    assert!(bounded("the stop", process.shutdown.stop(Duration::from_secs(600))).await);
}

#[tokio::test]
async fn a_reader_that_waited_through_a_restart_of_redis_does_not_believe_it() {
    let mut server = RedisServer::start(&[]);
    let fields = [("total", "500"), ("returns", "0")];
    let process = Process::on(Sale::on(&server.url()), &fields, 500).await;
    process.note(0, 0);
    let looked = async || {
        let stats: String = ask(&server, &["INFO", "commandstats"]).await;
        stats.contains("cmdstat_hget:")
    };
    eventually("the reader waits to be paid", looked).await;
    let _: String = ask(&server, &["SAVE"]).await;
    server.kill();
    server.start_again();
    let ping = redis::cmd("PING");
    let answers = async || process.sale.redis.query::<String>(&ping).await.is_ok();
    eventually("Redis is back", answers).await;
    process.note(0, ENOUGH);
    process.readers_end().await;
    assert!(!process.refuses_strangers(), "units may have come back in what Redis has lost");
}
