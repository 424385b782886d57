//! Calls of the claim script whose replies are played: the effect of each reply on its claims, and on the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use flash_sale::base::durability::Level;
use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::sale::Failure;
use flash_sale::sale::claim::calls::{Bounds, ClaimScript};
use flash_sale::sale::claim::memory::Memories;
use flash_sale::sale::claim::outcome::Reply;
use flash_sale::sale::durability::Durability;
use flash_sale::sale::ids::CouponId;
use flash_sale::sale::receipts::book::{Receipt, ReceiptBook};
use flash_sale::sale::trace::probe::Probe;
use futures_util::future::join_all;
use futures_util::poll;
use tokio::time::Instant;

use crate::http::pages::by_hand::redis_settles;
use crate::support::played::{Play, Played, Still, hash, list, soon, text};
use crate::support::{Bounded, TestApp, bounded, eventually, lane, user};

/// The reply that a sale has ended.
const ENDED: &str = "Ok(Decided(Ended))";
/// The failure of a call that too few replicas have.
const TOO_FEW: &str = "Err(Shared(NotKept(\"too few replicas have it\")))";

/// Calls of a process whose claim script is played. All else in Redis is real.
struct Process {
    app: TestApp,
    played: Played,
    script: ClaimScript,
    durability: Arc<Durability>,
    receipts: Arc<ReceiptBook>,
    memories: Memories,
    /// True while Redis syncs its file before each reply, as far as the process can learn.
    is_synced: Arc<AtomicBool>,
}

impl Process {
    async fn start() -> Self {
        let app = TestApp::start().await;
        app.expect_disagreements();
        let link = app.app.stores.redis.link().await.expect("Redis answers");
        let info = format!("run_id:{}\r\nrole:master\r\naof_enabled:1\r\n", link.server().as_str());
        let script = hash(include_str!("../../../../lua/claim.lua"));
        let is_synced = Arc::new(AtomicBool::new(true));
        let synced = is_synced.clone();
        let played = Played::before(app.redis_url(), move |command| match command {
            [name] if name == "INFO" => Play::Reply(text(&info)),
            [name, ..] if name == "CONFIG" => {
                let sync = if synced.load(Ordering::SeqCst) { "always" } else { "everysec" };
                let others =
                    ["save", "", "no-appendfsync-on-rewrite", "no", "min-replicas-to-write", "0"];
                Play::Reply(list(&[&["appendfsync", sync], &others[..]].concat()))
            }
            [_, of, ..] if *of == script => Play::Later,
            [name, ..] if name == "WAIT" => Play::Later,
            _ => Play::Real,
        })
        .await;
        let redis = played.redis(app.config.stores.redis_timeout());
        let (keys, shutdown) = (app.keys().clone(), Shutdown::default());
        let durability = Arc::new(Durability::new(&redis, Level::Memory));
        let receipts = Arc::new(ReceiptBook::new(100));
        let memory = Duration::from_secs(600);
        let memories = Memories::new(redis.clone(), keys.clone(), memory, shutdown.clone());
        let backlog = app.app.backlog.clone();
        let bounds = Bounds { backlog, unpaid_orders_max: 3, claim_wait: Duration::from_secs(60) };
        let told = (durability.clone(), receipts.clone(), memories.clone());
        let lanes = (app.app.layout.clone(), app.app.lanes.clone());
        let ids = app.app.order_ids.clone();
        let script = ClaimScript::new((redis, keys), ids, bounds, lanes, told, shutdown);
        Self { app, played, script, durability, receipts, memories, is_synced }
    }

    /// The user claims the coupon of this sequence.
    async fn ask(&self, sequence: i64, id: i64) -> String {
        let asked = self.script.ask(CouponId::compose(sequence, 1), user(id), None);
        format!("{:?}", bounded("a reply", asked).await)
    }

    /// Calls of the script so far.
    fn calls(&self) -> usize {
        self.played.asked().iter().filter(|command| command[0].starts_with("EVAL")).count()
    }

    async fn has_called(&self, times: usize) {
        eventually("the script is called", async || self.calls() == times).await;
    }
}

/// Keys and arguments of a call.
fn parts(command: &[String]) -> (&[String], &[String]) {
    let keys: usize = command[2].parse().expect("the number of keys");
    command[3..].split_at(keys)
}

/// Id of the order that a call of one claim has named.
fn order(command: &[String]) -> String {
    parts(command).1[7].clone()
}

/// Number of an order in the sequence of its day.
fn number(order: &str) -> i64 {
    order.parse::<i64>().expect("an order id") & 0xffff_ffff
}

/// The setup that a call has named.
fn setup(command: &[String]) -> String {
    parts(command).1[4].clone()
}

#[tokio::test]
async fn call_learns_two_lessons_of_the_replies_and_no_more() {
    let process = Process::start().await;
    for (sequence, (replies, told)) in (1..).zip([
        ("E", ENDED),
        ("RE", ENDED),
        ("RRE", ENDED),
        ("RRR", "Ok(Resharded("),
        ("CE", ENDED),
        ("CCE", ENDED),
        ("CCC", "Ok(LogOfCalls)"),
        ("RCE", ENDED),
        ("CRE", ENDED),
        ("RCC", "Ok(LogOfCalls)"),
        ("CRR", "Ok(Resharded("),
    ]) {
        let (mut named, mut setups) = ("1".to_owned(), Vec::new());
        for (letter, shards) in replies.chars().zip(2..) {
            let number = format!("{shards}@5");
            process.played.answer(list(&[&letter.to_string(), &number]));
            setups.push(named.clone());
            named = if letter == 'R' { number } else { named };
        }
        // To a call too many.
        process.played.answer(list(&["E", "0"]));
        let reply = process.ask(sequence, 1).await;
        assert!(reply.starts_with(told), "{replies}: {reply}");
        let asked = process.played.take_asked();
        let asked: Vec<String> = asked.iter().map(|command| setup(command)).collect();
        assert_eq!(asked, setups, "{replies}");
        process.played.forget_answers();
    }
}

#[tokio::test]
async fn run_names_the_keys_and_arguments_of_the_call() {
    let process = Process::start().await;
    process.played.answer(list(&["R", "157@4"]));
    process.played.answer(list(&["E", "0"]));
    assert_eq!(process.ask(5, 1).await, ENDED);
    let asked = process.played.take_asked();
    let (keys, arguments) = parts(&asked[1]);
    let (names, coupon) = (process.app.keys(), CouponId::compose(5, 1));
    // A user's shard is fixed for ever.
    let expected = [
        names.coupon(coupon),
        names.lane(lane()),
        process.app.log(lane()),
        names.unpaid(lane()),
        names.buyers_of(coupon, 4, 53),
    ];
    assert_eq!(keys, expected);
    let id = coupon.to_string();
    assert_eq!(arguments[..7], [id.as_str(), "1", "1", "3", "157@4", "calls", "1"]);
    assert_eq!(arguments.len(), 8);
    let [first, second] = [0, 1].map(|at: usize| number(&order(&asked[at])));
    assert_eq!(second - first, 1, "each call has orders of its own");
}

#[tokio::test]
async fn run_waits_for_the_replicas_of_a_sale_on_a_connection_of_its_own() {
    let process = Process::start().await;
    for (sequence, (replicas, have_it, told, connections)) in (1..).zip([
        (0, 0, ENDED, 1),
        (1, 1, ENDED, 2),
        (1, 0, TOO_FEW, 2),
        (2, 2, ENDED, 2),
        (2, 3, ENDED, 2),
        (2, 1, TOO_FEW, 2),
        (0, 0, ENDED, 2),
    ]) {
        if replicas > 0 {
            process.played.answer(list(&["R", &format!("1 replica:{replicas}")]));
        }
        process.played.answer(list(&["E", "0"]));
        if replicas > 0 {
            process.played.answer(format!(":{have_it}\r\n"));
        }
        let reply = process.ask(sequence, 1).await;
        assert_eq!(reply, told, "{have_it} of {replicas}");
        assert_eq!(process.played.connections(), connections, "{have_it} of {replicas}");
        let waits = process.played.take_asked();
        let waits: Vec<_> = waits.into_iter().filter(|command| command[0] == "WAIT").collect();
        // Three quarters of the time that Redis has to answer.
        let wait = ["WAIT".to_owned(), replicas.to_string(), "7500".to_owned()];
        assert_eq!(waits, vec![wait; usize::from(replicas > 0)], "{have_it} of {replicas}");
    }
}

#[tokio::test]
async fn require_and_confirm_need_a_file_that_is_synced_before_and_after_the_call() {
    let process = Process::start().await;
    process.played.answer(list(&["R", "1 fsync"]));
    process.played.answer(list(&["E", "0"]));
    assert_eq!(process.ask(1, 1).await, ENDED, "Redis was looked at before the call");
    process.played.take_asked();

    let look = async || process.durability.pass().bounded().await.expect("Redis answers");
    let not_kept = "Err(Shared(NotKept(\"Redis has no appendonly yes with appendfsync always\")))";
    let change = async {
        process.has_called(1).await;
        process.is_synced.store(false, Ordering::SeqCst);
        look().await;
        process.played.answer(list(&["E", "0"]));
    };
    let (reply, ()) = tokio::join!(process.ask(1, 2), change);
    assert_eq!(reply, not_kept, "the claim may not be on disk");

    process.played.take_asked();
    assert_eq!(process.ask(1, 3).await, not_kept);
    assert_eq!(process.calls(), 0, "no call is begun");
    process.is_synced.store(true, Ordering::SeqCst);
    look().await;
    process.played.answer(list(&["E", "0"]));
    assert_eq!(process.ask(1, 3).await, ENDED);
}

/// Of a call that ends in another epoch than it began in, the receipts are noted all the same. Orders of the new epoch are
/// higher than all that any process has handed out.
#[tokio::test]
async fn confirm_needs_the_epoch_of_the_call_and_enter_the_next_era_of_order_ids() {
    let process = Process::start().await;
    let app = &process.app;
    let order = |at: usize| order(&process.played.asked()[at]);
    let change = async {
        process.has_called(1).await;
        app.execute("UPDATE lanes SET epoch = 2").await;
        app.app.lanes.read_now().await.expect("Postgres answers");
        process.played.answer(list(&["A", "0"]));
    };
    let (reply, ()) = tokio::join!(process.ask(1, 7), change);
    assert!(reply.starts_with("Err(Shared(Recovering("), "{reply}");
    let receipts: Vec<_> = process.receipts.of(lane()).iter().map(|it| it.order.get()).collect();
    assert_eq!(receipts.iter().map(i64::to_string).collect::<Vec<_>>(), [order(0)]);
    assert_eq!(process.memories.promised.order_of(CouponId::compose(1, 1), user(7)), None);

    process.played.answer(list(&["A", "0"]));
    assert!(process.ask(1, 8).await.starts_with("Ok(Decided(Accepted("));
    assert_eq!(parts(&process.played.asked()[1]).1[1], "2", "the new epoch");
    let block = 10;
    assert_eq!(number(&order(1)) - number(&order(0)), block, "the block before is dropped");
    assert_eq!(process.receipts.of(lane()).len(), 2);
}

#[tokio::test]
async fn calling_drop_ends_a_call_that_panics_so_that_the_next_claim_begins_one() {
    let process = Process::start().await;
    let broken = || process.receipts.note(lane(), std::iter::from_fn(broken_receipt));
    assert!(catch_unwind(AssertUnwindSafe(broken)).is_err());
    for id in (1..).take(limits::CLAIM_CALLS_MAX + 2) {
        process.played.answer(list(&["A", "0"]));
        assert_eq!(process.ask(1, id).await, "Err(NoReply)", "claim {id}");
        process.has_called(usize::try_from(id).expect("a few")).await;
    }
}

fn broken_receipt() -> Option<Receipt> {
    panic!("the book can't be used any more")
}

/// A claim that waits for its reply.
type Claim<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + 'a>>;

/// Claims of one coupon, each polled once, in their order.
async fn begin<'a>(process: &'a Process, ids: &[i64]) -> Vec<Claim<'a>> {
    let mut claims: Vec<Claim<'a>> = Vec::new();
    for id in ids {
        let mut claim: Claim<'a> =
            Box::pin(process.script.ask(CouponId::compose(1, 1), user(*id), None));
        assert!(poll!(&mut claim).is_pending());
        claims.push(claim);
    }
    claims
}

fn is_ended(reply: &Result<Reply, Failure>) -> bool {
    format!("{reply:?}") == ENDED
}

/// Two calls are under way, and one of them ends: then one may begin, and not two.
#[tokio::test]
async fn calling_that_is_over_leaves_the_queue_to_the_other_call() {
    let process = Process::start().await;
    let ended = || process.played.answer(list(&["E", "0"]));
    let first = begin(&process, &[1]).await;
    process.has_called(1).await;
    let second = begin(&process, &[2]).await;
    process.has_called(2).await;
    ended();
    let told = bounded("the first reply", join_all(first)).await;
    assert!(told.iter().all(is_ended), "{told:?}");
    let still = Still::begin();
    still.settle().await;
    let third = begin(&process, &[3]).await;
    still.settle().await;
    let fourth = begin(&process, &[4]).await;
    still.settle().await;
    soon("a third call", || process.calls() == 3).await;
    ended();
    let told = join_all(second).await;
    assert!(told.iter().all(is_ended), "{told:?}");
    soon("the fourth claim has a call", || process.calls() == 4).await;
    ended();
    ended();
    let told = join_all(third.into_iter().chain(fourth)).await;
    assert!(told.iter().all(is_ended), "{told:?}");
    let calls = process.played.asked();
    let users: Vec<&str> = calls.iter().map(|call| parts(call).1[6].as_str()).collect();
    assert_eq!(users, ["1", "2", "3", "4"]);
}

/// In the queue and in the call, a claim waits for as long as Redis has to answer, and its outcome is unknown then.
#[tokio::test]
async fn call_gives_up_late_claims_that_have_waited_in_the_queue_and_in_the_call() {
    let process = Process::start().await;
    process.played.answer(list(&["E", "0"]));
    process.ask(1, 9).await;
    let still = Still::begin();
    let first = begin(&process, &[1]).await;
    soon("a call", || process.calls() == 2).await;
    let _second = begin(&process, &[2]).await;
    soon("another call", || process.calls() == 3).await;
    let mut third = begin(&process, &[3]).await.pop().expect("one");
    still.advance(6_000).await;
    process.played.answer(list(&["E", "0"]));
    assert!(join_all(first).await.iter().all(is_ended), "no claim is given up sooner");
    soon("a call of the claim that has waited", || process.calls() == 4).await;
    still.advance(3_970).await;
    still.advance(20).await;
    assert!(poll!(&mut third).is_pending(), "after 9.99 s");
    still.advance(20).await;
    let told = poll!(&mut third);
    assert!(matches!(told, Poll::Ready(Err(Failure::NoReply))), "{told:?}");
}

#[tokio::test]
async fn calling_run_measures_the_claims_with_a_probe_among_others() {
    let process = Process::start().await;
    let first = begin(&process, &[1]).await;
    process.has_called(1).await;
    let second = begin(&process, &[2]).await;
    process.has_called(2).await;
    let queued_at = Instant::now();
    let queued = begin(&process, &[3]).await;
    let probe = Arc::new(Probe::default());
    let coupon = CouponId::compose(1, 1);
    let mut probed = Box::pin(process.script.ask(coupon, user(4), Some(&probe)));
    assert!(poll!(&mut probed).is_pending());
    for replies in ["E", "E", "EE"] {
        process.played.answer(list(&[replies, "0"]));
    }
    let told = join_all(first.into_iter().chain(second).chain(queued)).await;
    assert!(told.iter().all(is_ended) && is_ended(&probed.await));
    let call = probe.call().expect("it was measured");
    assert_eq!((call.claims, call.accepted), (2, None));
    assert!(queued_at <= call.queued_at && call.queued_at <= call.called_at);
    assert!(call.called_at <= call.answered_at);
}

/// Each claim of a call is told its failure.
#[tokio::test]
async fn calling_run_tells_each_claim_the_failure_of_its_call() {
    let process = Process::start().await;
    let first = begin(&process, &[1]).await;
    process.has_called(1).await;
    let second = begin(&process, &[2]).await;
    process.has_called(2).await;
    let queued = begin(&process, &[3, 4]).await;
    process.played.answer(list(&["E", "0"]));
    process.played.answer(list(&["E", "0"]));
    process.played.answer("-OOM command not allowed\r\n");
    for told in join_all(first.into_iter().chain(second)).await {
        assert!(is_ended(&told), "{told:?}");
    }
    for told in join_all(queued).await {
        let Err(Failure::Shared(failure)) = told else { panic!("{told:?}") };
        assert!(matches!(&*failure, Failure::Redis(error) if error.code() == Some("OOM")));
    }
}

/// A sale of one unit, which is sold, and a process that hears of units that come back.
async fn sold_out() -> (Process, CouponId) {
    let process = Process::start().await;
    let coupon = process.app.create_flash(1).await;
    assert_eq!(process.app.claim(1, coupon).await.status, 202);
    let link = process.app.app.stores.redis.link().await.expect("Redis answers");
    process.memories.begin_listening(link.server().clone(), Arc::new(AtomicBool::new(true)));
    (process, coupon)
}

#[tokio::test]
async fn remember_believes_the_last_reply_that_says_something_of_the_stock() {
    let (process, coupon) = sold_out().await;
    let believes = || {
        process.memories.heard(Instant::now());
        // Of ten thousand strangers, one is taken for a buyer.
        (900..903).any(|id| process.memories.sold_out.refuses(coupon, user(id)))
    };
    for (letters, number, is_sold_out) in [
        ("S", "0", true),
        ("D", "0", true),
        ("X", "0", true),
        ("P", "0", false),
        ("D", "0", false),
        ("X", "0", false),
        ("DS", "0", true),
        ("SX", "0", true),
        ("N", "1500", false),
        ("SD", "0", true),
        ("SA", "0", false),
        ("S", "0", true),
        ("U", "0", false),
        ("S", "0", true),
        ("DN", "1500", false),
    ] {
        let repeats = letters.matches('D').map(|_| "77");
        let words: Vec<&str> = [letters, number].into_iter().chain(repeats).collect();
        process.played.answer(list(&words));
        let ids = (1..).zip(letters.chars()).map(|(id, _)| id);
        join_all(ids.map(|id| process.script.ask(coupon, user(id), None))).await;
        if is_sold_out {
            eventually("it is remembered", async || believes()).await;
        } else {
            // A reader that has begun by mistake would be done then.
            redis_settles(&process.app).await;
        }
        assert_eq!(believes(), is_sold_out, "{letters}");
    }
}

/// An order that has to be a row first isn't confirmed yet.
#[tokio::test]
async fn remember_the_orders_of_replies_unless_their_rows_are_waited_for() {
    let (process, _) = sold_out().await;
    for (sequence, (setup, replies, of_first, of_second)) in (20..).zip([
        ("1@5", &["DD", "0", "77", "78"][..], Some(77), Some(78)),
        ("1@5", &["SD", "0", "78"], None, Some(78)),
        ("1@5", &["DN", "1500", "77"], None, None),
        ("1 memory", &["DD", "0", "77", "78"], Some(77), Some(78)),
        ("1 postgres", &["DD", "0", "77", "78"], None, None),
    ]) {
        let coupon = CouponId::compose(sequence, 1);
        process.played.answer(list(&["RR", setup]));
        process.played.answer(list(replies));
        join_all([1, 2].map(|id| process.script.ask(coupon, user(id), None))).await;
        process.memories.heard(Instant::now());
        let order =
            |id| process.memories.promised.order_of(coupon, user(id)).map(|order| order.get());
        assert_eq!([order(1), order(2)], [of_first, of_second], "{setup} {replies:?}");
    }
}
