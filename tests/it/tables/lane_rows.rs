//! Each statement about a lane's rows, on three lanes: the lane that it names, one whose state forbids it, and one that it
//! does not name.

use std::time::Duration;

use chrono::DateTime;
use flash_sale::kit::postgres;
use flash_sale::kit::redis::Origin;
use flash_sale::sale::fence::table::{self, NotedBeat, Settled};
use flash_sale::sale::ids::Lane;

use crate::support::TestApp;

async fn app() -> (TestApp, [Lane; 3]) {
    let app = TestApp::with_lanes(3).await;
    app.expect_disagreements();
    let mut lanes = Lane::all(3);
    (app, std::array::from_fn(|_| lanes.next().expect("there are three")))
}

fn origin(name: &str) -> Origin {
    Origin { run_id: format!("life of {name}"), replication_id: format!("data of {name}") }
}

/// Lanes as `lane epoch state harvests run_id/replication_id reason`, and whether they were closed in the last hour.
async fn lanes(app: &TestApp) -> Vec<String> {
    app.texts(
        "SELECT concat_ws(' ', lane, epoch, state, harvests, run_id || '/' || replication_id, reason,
                          closed_at BETWEEN now() - interval '1 hour' AND now())
         FROM lanes ORDER BY lane",
    )
    .await
}

/// Lanes that are open under epoch 5 and approved, without a closure.
async fn open_under_5(app: &TestApp) {
    app.execute(
        "UPDATE lanes SET epoch = 5, state = 'open', harvests = true, run_id = 'r', replication_id = 'd',
                          reason = NULL, closed_at = NULL",
    )
    .await;
}

const OPEN: [&str; 3] = ["0 5 open t r/d", "1 5 open t r/d", "2 5 open t r/d"];

/// [`OPEN`] with another second lane.
fn with(second: &'static str) -> [&'static str; 3] {
    [OPEN[0], second, OPEN[2]]
}

#[tokio::test]
async fn add_adds_lanes_that_are_not_there_and_changes_no_other() {
    let (app, _) = app().await;
    let pool = &app.app.stores.pool;
    open_under_5(&app).await;
    app.execute("DELETE FROM lane_beats WHERE lane = 1; DELETE FROM lanes WHERE lane = 1; UPDATE lane_beats SET beat = 9").await;
    table::add(pool).await.expect("lanes that are there are no obstacle");
    assert_eq!(lanes(&app).await[0], OPEN[0]);
    assert_eq!(app.numbers("SELECT lane::bigint FROM lanes ORDER BY lane").await, [0, 1, 2]);
    assert_eq!(app.numbers("SELECT beat FROM lane_beats ORDER BY lane").await, [9, 0, 9]);
}

#[tokio::test]
async fn note_beats_raises_the_beats_of_its_lanes_and_lowers_none() {
    let (app, [zero, one, two]) = app().await;
    let pool = &app.app.stores.pool;
    app.execute(
        "UPDATE lane_beats SET beat = 5, promised = 1, beat_at = now() - interval '1 day',
                               settled_promised = 1, settled_at = to_timestamp(10)",
    )
    .await;
    let at = |seconds| DateTime::from_timestamp(seconds, 0).expect("a time");
    let beat = |lane, beat, promised, settled: Option<i64>| NotedBeat {
        lane,
        beat,
        promised,
        settled: settled.map(|promised| Settled { promised, at: at(20 + promised) }),
        at: at(0),
    };
    table::note_beats(pool, &[beat(zero, 6, 7, Some(7)), beat(one, 5, 8, Some(8))]).await.unwrap();
    let noted = "SELECT concat_ws(' ', lane, beat, promised, settled_promised, extract(epoch FROM settled_at)::integer,
                                  beat_at > now() - interval '1 hour')
                 FROM lane_beats ORDER BY lane";
    assert_eq!(app.texts(noted).await, ["0 6 7 7 27 t", "1 5 1 1 10 f", "2 5 1 1 10 f"]);
    table::note_beats(pool, &[beat(zero, 8, 9, None), beat(two, 9, 10, Some(6))]).await.unwrap();
    assert_eq!(app.texts(noted).await, ["0 8 9 t", "1 5 1 1 10 f", "2 9 10 6 26 t"]);
    let found = table::beat(pool, two).await.unwrap();
    let settled = found.settled.map(|settled| (settled.promised, settled.at));
    assert_eq!((found.beat, found.promised, settled), (9, 10, Some((6, at(26)))));
}

/// A note is younger than the last change of its lane, or older.
#[tokio::test]
async fn doubt_notes_beats_that_redis_cannot_have_for_its_lanes_as_of_no_look() {
    let (app, [zero, one, two]) = app().await;
    let pool = &app.app.stores.pool;
    app.execute(
        "UPDATE lanes SET updated_at = to_timestamp(10 + lane);
         UPDATE lane_beats SET beat = 5, beat_at = to_timestamp(20)",
    )
    .await;
    let noted = "SELECT concat_ws(' ', lane, beat, extract(epoch FROM beat_at)::integer)
                 FROM lane_beats ORDER BY lane";
    table::doubt(pool, [zero, two]).await.unwrap();
    assert_eq!(app.texts(noted).await, ["0 7 10", "1 5 20", "2 7 12"]);
    app.execute("UPDATE lane_beats SET beat_at = to_timestamp(1)").await;
    table::doubt(pool, [one]).await.unwrap();
    assert_eq!(app.texts(noted).await, ["0 7 1", "1 7 1", "2 7 1"]);
}

#[tokio::test]
async fn note_checked_ends_the_note_of_a_lane_that_was_not_recovered_since() {
    let (app, [zero, one, two]) = app().await;
    let pool = &app.app.stores.pool;
    let wait = Duration::from_hours(1);
    for lane in [zero, one] {
        table::note_unchecked(pool, lane).await.unwrap();
    }
    let noted = table::unchecked(pool, wait).await.unwrap();
    let [(_, since), (_, other)] = noted[..] else { panic!("{noted:?}") };
    let unchecked = async || {
        let lanes = table::unchecked(pool, wait).await.unwrap();
        lanes.into_iter().map(|(lane, _)| lane.get()).collect::<Vec<_>>()
    };
    assert_eq!(unchecked().await, [0, 1]);
    // Of a lane without a note, and with the time of another lane's note.
    table::note_checked(pool, &[(two, since), (one, since)]).await.unwrap();
    assert_eq!(unchecked().await, [0, 1]);
    table::note_checked(pool, &[(zero, since)]).await.unwrap();
    assert_eq!(unchecked().await, [1]);
    table::note_unchecked(pool, one).await.unwrap();
    table::note_checked(pool, &[(one, other)]).await.unwrap();
    assert_eq!(unchecked().await, [1], "it has been recovered again");
}

#[tokio::test]
async fn approve_first_approves_a_lane_that_has_no_redis() {
    let (app, [zero, one, _]) = app().await;
    let pool = &app.app.stores.pool;
    open_under_5(&app).await;
    app.execute("UPDATE lanes SET run_id = NULL, replication_id = NULL WHERE lane > 0").await;
    assert!(!table::approve_first(pool, zero, &origin("a")).await.unwrap());
    assert!(table::approve_first(pool, one, &origin("b")).await.unwrap());
    assert!(!table::approve_first(pool, one, &origin("c")).await.unwrap());
    let expected = [OPEN[0], "1 5 open t life of b/data of b", "2 5 open t"];
    assert_eq!(lanes(&app).await, expected);
}

#[tokio::test]
async fn raise_closes_its_lane_and_keeps_the_first_reason() {
    let (app, [_, one, _]) = app().await;
    let pool = &app.app.stores.pool;
    open_under_5(&app).await;
    assert_eq!(table::raise(pool, one, 4, "early").await.unwrap(), None);
    assert_eq!(lanes(&app).await, OPEN);
    assert_eq!(table::raise(pool, one, 5, "first").await.unwrap(), Some(6));
    assert_eq!(lanes(&app).await, with("1 6 recovering t r/d first t"));
    app.execute("UPDATE lanes SET closed_at = now() - interval '1 day' WHERE lane = 1").await;
    assert_eq!(table::raise(pool, one, 6, "second").await.unwrap(), Some(7));
    assert_eq!(lanes(&app).await, with("1 7 recovering t r/d first f"));
    assert_eq!(table::epoch(pool, one).await.unwrap(), Some(7));
}

#[tokio::test]
async fn close_by_hand_tells_the_lane_before_and_after() {
    let (app, [_, one, _]) = app().await;
    let pool = &app.app.stores.pool;
    for (epoch, after) in [(4, 6), (5, 6), (9, 10)] {
        open_under_5(&app).await;
        let mut tx = postgres::begin(pool).await.unwrap();
        let closed = table::close_by_hand(&mut tx, one, epoch, false, "a word").await.unwrap();
        tx.commit().await.unwrap();
        let (before, then) = closed.expect("there is such a lane");
        let told = |of: &table::LaneValues| (of.lane, of.epoch, of.state.clone(), of.harvests);
        assert_eq!(told(&before), (1, 5, "open".to_owned(), true), "{epoch}");
        assert_eq!((before.closed_at, before.reason), (None, None));
        assert_eq!(told(&then), (1, after, "recovering".to_owned(), false), "{epoch}");
        assert_eq!((then.closed_at.is_some(), &*then.reason.unwrap()), (true, "a word"));
        let closed = format!("1 {after} recovering f r/d a word t");
        assert_eq!(lanes(&app).await, [OPEN[0], &closed, OPEN[2]]);
    }
}

#[tokio::test]
async fn close_by_hand_waits_for_a_recovery_that_is_at_the_lane_and_tells_what_that_has_left() {
    let (app, [_, one, _]) = app().await;
    let pool = &app.app.stores.pool;
    open_under_5(&app).await;
    let raise = "UPDATE lanes SET epoch = 8, state = 'recovering', closed_at = now(), reason = 'lost', updated_at = now()
                 WHERE lane = 1";
    let recovery = app.holding(raise).await;
    let closes = async {
        let mut tx = postgres::begin(pool).await.unwrap();
        let closed = table::close_by_hand(&mut tx, one, 1, true, "a word").await.unwrap();
        tx.commit().await.unwrap();
        closed.expect("there is such a lane")
    };
    let commits = async {
        app.a_session_waits_for_a_row().await;
        recovery.commit().await.unwrap();
    };
    let ((before, after), ()) = tokio::join!(closes, commits);
    assert_eq!((before.epoch, &*before.state, after.epoch), (8, "recovering", 9));
}

#[tokio::test]
async fn open_opens_its_lane_under_the_epoch_of_its_recovery_alone() {
    let (app, [zero, one, two]) = app().await;
    let pool = &app.app.stores.pool;
    open_under_5(&app).await;
    app.execute(
        "UPDATE lanes SET state = 'recovering', closed_at = now(), reason = 'lost', harvests = false WHERE lane > 0",
    )
    .await;
    assert!(!table::open(pool, zero, 5, &origin("a")).await.unwrap(), "it is open already");
    assert!(!table::open(pool, two, 4, &origin("a")).await.unwrap(), "another recovery has begun");
    assert!(table::open(pool, one, 5, &origin("b")).await.unwrap());
    let expected =
        [OPEN[0], "1 5 open t life of b/data of b lost t", "2 5 recovering f r/d lost t"];
    assert_eq!(lanes(&app).await, expected);
}

#[tokio::test]
async fn one_process_keeps_the_lanes_until_its_time_is_over_or_it_gives_up() {
    let (app, _) = app().await;
    let pool = &app.app.stores.pool;
    let keep = async |process, time| table::keep(pool, process, time).await.unwrap();
    let hour = Duration::from_hours(1);
    app.execute("UPDATE lane_keeper SET until = now() - interval '1 s'").await;
    assert!(keep("a", hour).await);
    let left = "SELECT (extract(epoch FROM until - now()) / 60)::bigint FROM lane_keeper";
    assert!((30..=60).contains(&app.number(left).await));
    assert!(!keep("b", hour).await);
    assert!(keep("a", hour).await, "its own time is lengthened");
    table::give_up(pool, "b").await.unwrap();
    assert!(!keep("b", hour).await, "only its own time can be given up");
    table::give_up(pool, "a").await.unwrap();
    assert!(keep("b", Duration::ZERO).await);
    assert!(keep("c", hour).await, "no time is left");
}
