//! Coupons as shoppers are shown them, on a clock that stands still: the age at which each part is read again, and the
//! questions that this costs.

use std::sync::Arc;
use std::sync::Mutex;

use flash_sale::base::shutdown::Shutdown;
use flash_sale::sale::coupon::cache::CouponCache;
use flash_sale::sale::coupon::read::CouponReader;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::{Failure, Stores};
use futures_util::future::join_all;
use futures_util::poll;
use serde_json::{Value, json};
use tracing::Level;

use crate::support::TestApp;
use crate::support::lines::Lines;
use crate::support::played::{Play, Played, Still, list, soon};

/// A process that shows one coupon: its Redis answers questions about the sale as the test says.
struct Reader {
    app: TestApp,
    coupon: CouponId,
    cache: CouponCache,
    played: Played,
    /// Answer to the question about units left and revision; an error is the answer to messages, too.
    reply: Arc<Mutex<String>>,
    shutdown: Shutdown,
    still: Still,
}

impl Reader {
    /// Of a sale, or of a regular coupon. Postgres has the title "0".
    async fn of(is_sale: bool) -> Self {
        let app = TestApp::start().await;
        app.expect_disagreements();
        let coupon = if is_sale { app.create_flash(9).await } else { app.create_regular().await };
        let reply = Arc::new(Mutex::new(String::new()));
        let said = reply.clone();
        let played = Played::before(app.redis_url(), move |command| match command {
            [name, _, stock, revision] if name == "HMGET" && stock == "stock" => {
                assert_eq!(revision, "revision");
                Play::Reply(said.lock().expect("no holder panics").clone())
            }
            [name, ..] if name == "PUBLISH" => {
                let said = said.lock().expect("no holder panics");
                Play::Reply(if said.starts_with('-') { said.clone() } else { ":0\r\n".to_owned() })
            }
            _ => Play::Real,
        })
        .await;
        let redis = played.redis(app.config.stores.redis_timeout());
        let stores = Stores { redis, ..app.app.stores.clone() };
        let shutdown = Shutdown::default();
        let cache = CouponCache::new(&stores, CouponReader::new(&stores), shutdown.clone());
        let still = Still::begin();
        let reader = Self { app, coupon, cache, played, reply, shutdown, still };
        reader.entitle("0").await;
        reader.says("9", "1");
        reader
    }

    /// Postgres has this title from now on.
    async fn entitle(&self, title: &str) {
        self.app.execute(&format!("UPDATE coupons SET title = '{title}'")).await;
    }

    /// Redis has so many units left, and this revision.
    fn says(&self, left: &str, revision: &str) {
        *self.reply.lock().expect("no holder panics") = list(&[left, revision]);
    }

    fn fails(&self) {
        *self.reply.lock().expect("no holder panics") = "-OOM it says\r\n".to_owned();
    }

    async fn show(&self) -> Result<Option<Value>, Failure> {
        let shown = self.cache.show(self.coupon).await?;
        Ok(shown.map(|shown| serde_json::from_slice(&shown.body).expect("it is JSON")))
    }

    /// Title and units left, as they are shown.
    async fn shown(&self) -> (String, Value) {
        let shown = self.show().await.expect("both stores answer").expect("it is there");
        (shown["title"].as_str().expect("text").to_owned(), shown["sale"]["left"].clone())
    }

    async fn title(&self) -> String {
        self.shown().await.0
    }

    /// Questions to Redis since the last look.
    fn asked(&self) -> usize {
        self.played.take_asked().iter().filter(|command| command[0] == "HMGET").count()
    }

    /// Tasks that read the coupon again.
    fn aside(&self) -> usize {
        self.shutdown.tracker().len()
    }
}

/// The spread of the first coupon is a millisecond.
#[tokio::test]
async fn renew_aside_reads_a_record_again_that_is_due_and_shows_the_older_one_meanwhile() {
    let reader = Reader::of(false).await;
    assert_eq!(reader.title().await, "0");
    reader.entitle("1").await;
    reader.still.advance(900).await;
    assert_eq!((reader.title().await, reader.aside()), ("0".to_owned(), 0), "not due yet");
    reader.still.advance(1).await;
    assert_eq!((reader.title().await, reader.aside()), ("0".to_owned(), 1));
    assert_eq!((reader.title().await, reader.aside()), ("0".to_owned(), 1), "one task reads it");
    soon("it has been read", || reader.aside() == 0).await;
    reader.entitle("2").await;
    assert_eq!(reader.title().await, "1");
    reader.still.advance(900).await;
    assert_eq!((reader.title().await, reader.aside()), ("1".to_owned(), 0));
    reader.still.advance(100).await;
    assert_eq!(reader.title().await, "2", "a second old, it is shown no more");
    assert_eq!(reader.asked(), 0, "Redis knows nothing of a regular coupon");
}

#[tokio::test]
async fn show_forgets_a_coupon_that_was_changed_and_tells_the_others() {
    let reader = Reader::of(false).await;
    assert_eq!(reader.title().await, "0");
    reader.entitle("1").await;
    assert_eq!(reader.title().await, "0");
    reader.cache.changed(reader.coupon);
    assert_eq!(reader.title().await, "1");
    soon("the others are told", || reader.aside() == 0).await;
    let channel = reader.app.keys().changes_channel();
    let publish = ["PUBLISH".to_owned(), channel, reader.coupon.to_string()];
    assert_eq!(reader.played.take_asked(), [publish]);
    reader.entitle("2").await;
    reader.cache.forget(reader.coupon);
    assert_eq!(reader.title().await, "2");
    reader.still.settle().await;
    assert!(reader.played.take_asked().is_empty() && reader.aside() == 0);

    let lines = Lines::down_to(Level::DEBUG);
    for (fails, said) in [(false, 0), (true, 1)] {
        if fails {
            reader.fails();
        }
        reader.cache.changed(reader.coupon);
        soon("the others are told", || reader.aside() == 0).await;
        let count = lines.count("the other processes can't be told of a change");
        assert_eq!(count, said, "{fails}");
    }

    // Ids that no coupon has.
    for id in [CouponId::compose(9, 1), CouponId::compose(1, 4)] {
        let told = reader.cache.show(id).await.expect("both stores answer");
        assert_eq!(told.is_some(), id == reader.coupon, "{id}");
    }
}

#[tokio::test]
async fn show_without_postgres_tells_the_failure_for_a_while_before_it_asks_again() {
    let reader = Reader::of(false).await;
    assert_eq!(reader.title().await, "0");
    // A row that can't be read.
    let state = async |state: &str| {
        let statement = format!("UPDATE coupons SET state = '{state}', title = '{state}'");
        reader.app.execute(&statement).await;
    };
    reader.app.execute("ALTER TABLE coupons DROP CONSTRAINT coupons_state_check").await;
    state("unknown").await;
    reader.still.advance(901).await;
    let lines = Lines::down_to(Level::DEBUG);
    for tries in 1..=2 {
        assert_eq!(reader.title().await, "0", "the older one is shown until it is too old");
        soon("it could not be read", || reader.aside() == 0).await;
        assert_eq!(lines.count("a coupon can't be read again"), tries);
    }
    reader.still.advance(99).await;
    assert!(reader.show().await.is_err(), "it is a second old");
    state("active").await;
    let told = reader.show().await;
    assert!(matches!(told, Err(Failure::Shared(_))), "it is remembered: {told:?}");
    reader.still.advance(1).await;
    assert_eq!(reader.title().await, "active");
}

/// Of two readers, the second comes `gap` ms after the first has asked Postgres, which answers `wait` ms later still.
#[tokio::test]
async fn renew_asks_once_for_readers_who_come_until_the_answer_however_long_it_takes() {
    for (gap, wait, is_due) in [(0, 1_000, true), (100, 100, false)] {
        let reader = Reader::of(false).await;
        assert_eq!(reader.title().await, "0");
        reader.entitle("1").await;
        reader.still.advance(1_000).await;
        let holder = reader.app.holding("LOCK TABLE coupons IN ACCESS EXCLUSIVE MODE").await;

        let lines = Lines::down_to(Level::DEBUG);
        let mut first = Box::pin(reader.title());
        assert!(poll!(&mut first).is_pending());
        reader.still.advance(gap).await;
        let mut second = Box::pin(reader.title());
        assert!(poll!(&mut second).is_pending());
        reader.still.advance(wait).await;
        holder.commit().await.expect("Postgres answers");
        let titles = tokio::join!(first, second);
        assert_eq!(titles, ("1".to_owned(), "1".to_owned()), "{gap} {wait}");
        assert_eq!(lines.count("FROM coupons"), 1, "{gap} {wait}");
        // An answer that is old by now is asked for again aside.
        assert_eq!(reader.aside(), usize::from(is_due), "{gap} {wait}");
    }
}

#[tokio::test]
async fn compose_asks_redis_for_the_units_left_every_fifth_of_a_second() {
    let reader = Reader::of(true).await;
    assert_eq!(reader.shown().await, ("0".to_owned(), json!(9)));
    assert_eq!(reader.asked(), 1);
    reader.says("8", "1");
    reader.still.advance(199).await;
    assert_eq!((reader.shown().await.1, reader.asked()), (json!(9), 0));
    reader.still.advance(1).await;
    assert_eq!((reader.shown().await.1, reader.asked()), (json!(8), 1));
    // No answer is an answer for as long.
    reader.fails();
    reader.entitle("1").await;
    reader.still.advance(200).await;
    assert_eq!((reader.shown().await, reader.asked()), (("0".to_owned(), Value::Null), 1));
    reader.says("7", "1");
    reader.still.advance(199).await;
    assert_eq!((reader.shown().await, reader.asked()), (("0".to_owned(), Value::Null), 0));
    reader.still.advance(1).await;
    assert_eq!((reader.shown().await, reader.asked()), (("0".to_owned(), json!(7)), 1));
}

/// The units left are shown with another record, too, while they are young enough.
#[tokio::test]
async fn compose_keeps_the_units_counted_for_a_record_that_was_read_again() {
    let reader = Reader::of(true).await;
    reader.shown().await;
    reader.entitle("1").await;
    reader.still.advance(850).await;
    reader.says("8", "1");
    assert_eq!((reader.shown().await, reader.asked()), (("0".to_owned(), json!(8)), 2));
    reader.says("7", "1");
    reader.still.advance(151).await;
    assert_eq!((reader.title().await, reader.aside()), ("0".to_owned(), 1), "1,001 ms: it is due");
    soon("it has been read", || reader.aside() == 0).await;
    assert_eq!((reader.shown().await, reader.asked()), (("1".to_owned(), json!(8)), 0));
    reader.still.advance(48).await;
    assert_eq!((reader.shown().await, reader.asked()), (("1".to_owned(), json!(8)), 0));
    reader.still.advance(1).await;
    assert_eq!((reader.shown().await, reader.asked()), (("1".to_owned(), json!(7)), 1));
}

#[tokio::test]
async fn compose_reads_a_record_again_that_redis_has_a_newer_revision_of() {
    for (revision, title) in [("0", "0"), ("1", "0"), ("2", "1"), ("x", "1")] {
        let reader = Reader::of(true).await;
        reader.shown().await;
        reader.entitle("1").await;
        reader.still.advance(300).await;
        match revision {
            // None: the sale isn't there.
            "x" => *reader.reply.lock().expect("no holder panics") = "*2\r\n_\r\n_\r\n".to_owned(),
            revision => reader.says("8", revision),
        }
        let left = if revision == "x" { Value::Null } else { json!(8) };
        assert_eq!(reader.shown().await, (title.to_owned(), left), "{revision}");
        assert_eq!(reader.aside(), 0, "{revision}");
    }
}

/// Readers of one moment are shown the same, for one question.
#[tokio::test]
async fn compose_shows_the_record_that_another_reader_has_just_read() {
    let reader = Reader::of(true).await;
    reader.shown().await;
    reader.asked();
    reader.entitle("1").await;
    reader.app.execute("UPDATE coupons SET revision = 2").await;
    reader.says("8", "2");
    reader.still.advance(200).await;
    let shown = join_all((0..3).map(|_| reader.shown())).await;
    assert_eq!(shown, vec![("1".to_owned(), json!(8)); 3]);
    assert_eq!(reader.asked(), 1);
}

/// A record that Redis has confirmed is shown for 1.2 s, any other for one.
#[tokio::test]
async fn compose_shows_a_record_for_longer_that_redis_has_confirmed() {
    // For each, the answer of Redis at 900 ms and at 1,100 ms, and the titles at 900, 1,000 and 1,100 ms.
    for (before, after, titles) in [
        (Some("1"), Some("1"), ["0", "0", "0"]),
        (None, Some("1"), ["0", "1", "1"]),
        (Some("1"), None, ["0", "0", "1"]),
    ] {
        let reader = Reader::of(true).await;
        reader.title().await;
        reader.entitle("1").await;
        let answers = |revision: Option<&str>| match revision {
            Some(revision) => reader.says("8", revision),
            None => reader.fails(),
        };
        let mut shown = Vec::new();
        // The second reader of a moment is shown the same.
        for (pause, revision, readers) in [(900, before, 2), (100, after, 1), (100, after, 1)] {
            reader.still.advance(pause).await;
            answers(revision);
            let titles = join_all((0..readers).map(|_| reader.title())).await;
            assert!(titles.iter().all(|title| *title == titles[0]), "{titles:?}");
            shown.push(titles[0].clone());
        }
        assert_eq!(shown, titles, "{before:?} {after:?}");
    }
}

/// No coupon has an id whose lane doesn't follow from its sequence, nor one behind the newest as this process knows it.
#[tokio::test]
async fn existing_ids_are_composed_and_reach_up_to_the_newest_coupon() {
    let app = TestApp::start().await;
    let other = app.another_instance().await;
    let first = app.create_regular().await;
    let shows = async |coupon: CouponId| {
        other.coupons.cache.show(coupon).await.expect("both stores answer").is_some()
    };
    let insert = async |id: i64| {
        app.execute(&format!(
            "INSERT INTO coupons (id, kind, title, sub_title, rules, pay_cents, value_cents)
             VALUES ({id}, 'regular', 't', '', '', 1, 2)"
        ))
        .await;
    };
    assert!(shows(first).await);
    let second = CouponId::compose(first.sequence() + 1, 1);
    insert(second.get()).await;
    other.coupons.cache.forget(second);
    assert!(shows(second).await);
    let odd = CouponId::new(first.get() + 5).expect("a positive number");
    insert(odd.get()).await;
    other.coupons.cache.forget(odd);
    assert!(!shows(odd).await, "its lane is no lane");

    // On a busy machine the newest coupon may be asked for in between, but not each time.
    let mut is_overlooked = false;
    for sequence in second.sequence() + 1..second.sequence() + 30 {
        let next = CouponId::compose(sequence, 1);
        insert(next.get()).await;
        is_overlooked |= !shows(next).await;
        other.coupons.cache.forget(next);
        assert!(shows(next).await, "it has been told of the coupon");
    }
    assert!(is_overlooked);
}
