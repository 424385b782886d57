//! Dead letters: which of them each query finds, and what each note changes.

use chrono::{DateTime, Utc};
use flash_sale::sale::audit::Actor;
use flash_sale::sale::ids::{CouponId, DeadLetterId, Lane};
use flash_sale::sale::log::{LoggedClaim, Place};
use flash_sale::sale::order::dead_letter::{
    self, DeadLetter, LetterFilter, LetterState, Namesake, Reason,
};
use flash_sale::sale::order::discard::Discarded;

use super::{begin, id, move_rows, order, pool, sorted, user_id, write_letters};
use crate::support::{TestApp, lane, sale, user};

fn letter(id: i64) -> DeadLetterId {
    DeadLetterId::new(id).expect("a positive number")
}

async fn holds_unit(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT id FROM dead_letters WHERE holds_unit ORDER BY id").await
}

/// A letter with another claim's order has that order as its namesake.
#[tokio::test]
async fn find_tells_the_order_that_has_the_id_of_a_letter() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (11, 1, "flash", 1, "unpaid"),
        (12, 1, "flash", 2, "cancelled"),
        (13, 2, "flash", 3, "paid"),
        (14, 1, "flash", 44, "unpaid"),
        (15, 1, "flash", 5, "redeemed"),
    ])
    .await;
    move_rows(&app, &[15]).await;
    let letters = [
        (1, 1, 11, true),
        (1, 2, 12, false),
        (1, 3, 13, true),
        (1, 4, 14, true),
        (1, 5, 15, true),
        (1, 6, 16, true),
    ];
    write_letters(&app, &letters).await;
    let is = |is_same_claim, is_live| Some(Namesake { is_same_claim, is_live });
    for (number, expected) in [
        (1, (true, Some(11), is(true, true))),
        (2, (false, Some(12), is(true, false))),
        (3, (true, Some(13), is(false, true))),
        (4, (true, Some(14), is(false, true))),
        (5, (true, Some(15), is(true, true))),
        (6, (true, Some(16), None)),
    ] {
        let found = dead_letter::find(pool(&app), letter(number)).await.expect("Postgres answers");
        let found = found.expect("there is such a letter");
        let claim = found.claim.map(|claim| id(claim.order_id));
        assert_eq!((found.is_open, claim, found.order), expected, "letter {number}");
    }
    assert!(dead_letter::find(pool(&app), letter(7)).await.expect("Postgres answers").is_none());
}

#[tokio::test]
async fn open_page_lists_open_letters_of_a_reason_oldest_first() {
    let app = TestApp::with_sales(1).await;
    write_letters(&app, &[(1, 1, 1, true), (1, 2, 2, false), (1, 3, 3, true), (1, 4, 4, true)])
        .await;
    app.execute("UPDATE dead_letters SET reason = 'oversold' WHERE id = 3").await;
    let (conflict, oversold) = (Some(Reason::Conflict), Some(Reason::Oversold));
    for (reason, after, limit, expected) in [
        (None, None, 9, vec![1, 3, 4]),
        (None, None, 2, vec![1, 3]),
        (None, Some(1), 9, vec![3, 4]),
        (None, Some(2), 1, vec![3]),
        (conflict, None, 9, vec![1, 4]),
        (conflict, Some(1), 9, vec![4]),
        (oversold, None, 9, vec![3]),
        (oversold, Some(3), 9, vec![]),
    ] {
        let page = dead_letter::open_page(pool(&app), reason, after.map(letter), limit).await;
        let page: Vec<i64> = page.expect("Postgres answers").iter().map(|it| it.get()).collect();
        assert_eq!(page, expected, "{reason:?} behind {after:?}, {limit}");
    }
}

#[tokio::test]
async fn became_order_closes_one_open_letter_with_a_word_about_it() {
    let app = TestApp::with_sales(1).await;
    write_letters(&app, &[(1, 1, 1, true), (1, 2, 2, false), (1, 3, 3, true)]).await;
    app.let_rows_age("dead_letters").await;
    for number in [1, 2] {
        dead_letter::became_order(pool(&app), letter(number), &Actor::command_line())
            .await
            .expect("Postgres answers");
    }
    assert_eq!(app.touched("dead_letters", "id").await, [1]);
    let details = app.texts("SELECT detail FROM dead_letters ORDER BY id").await;
    assert_eq!(details, ["why; it became an order when it was tried again", "why", "why"]);
    let open = "SELECT id FROM dead_letters WHERE resolved_at IS NULL";
    assert_eq!(app.numbers(open).await, [3]);
    assert_eq!(app.numbers("SELECT subject_id FROM audit").await, [1], "in the book of changes");
}

#[tokio::test]
async fn note_unit_is_about_one_open_letter_that_holds_none() {
    let app = TestApp::with_sales(1).await;
    let letters = [(1, 1, 1, true), (1, 2, 2, false), (1, 3, 3, true), (1, 4, 4, true)];
    write_letters(&app, &letters).await;
    app.execute("UPDATE dead_letters SET holds_unit = id = 4").await;
    app.let_rows_age("dead_letters").await;
    for number in [1, 2, 4] {
        dead_letter::note_unit(pool(&app), letter(number)).await.expect("Postgres answers");
    }
    assert_eq!(holds_unit(&app).await, [1, 4]);
    assert_eq!(app.touched("dead_letters", "id").await, [1], "the others hold one, or are closed");
}

#[tokio::test]
async fn note_units_sets_those_of_a_coupon_and_note_units_among_those_of_a_list() {
    // In Redis, the buyers of letters 1, 2, 6 and 8 hold units.
    let holding = [1, 2, 6, 8];
    let letters = [
        (1, 1, 1, true),
        (1, 2, 2, true),
        (1, 3, 3, true),
        (1, 4, 4, true),
        (1, 5, 5, false),
        (1, 6, 6, false),
        (2, 7, 7, true),
        (2, 8, 8, true),
    ];
    for by_coupon in [true, false] {
        let app = TestApp::with_sales(2).await;
        write_letters(&app, &letters).await;
        app.execute("UPDATE dead_letters SET holds_unit = id IN (2, 3, 5, 7)").await;
        app.let_rows_age("dead_letters").await;
        let mut tx = begin(&app).await;
        let noted = if by_coupon {
            dead_letter::note_units(&mut tx, sale(1), &holding).await
        } else {
            dead_letter::note_units_among(&mut tx, &[1, 2, 3, 4, 5, 6], &holding).await
        };
        noted.expect("Postgres answers");
        tx.commit().await.expect("Postgres answers");
        assert_eq!(holds_unit(&app).await, [1, 2, 5, 7], "of a coupon: {by_coupon}");
        assert_eq!(app.touched("dead_letters", "id").await, [1, 3], "of a coupon: {by_coupon}");
    }
}

#[tokio::test]
async fn give_up_closes_the_open_letters_of_a_coupon_with_a_note() {
    let app = TestApp::with_sales(2).await;
    let letters = [(1, 1, 1, true), (1, 2, 2, false), (2, 3, 3, true), (1, 4, 4, true)];
    write_letters(&app, &letters).await;
    app.let_rows_age("dead_letters").await;
    let mut tx = begin(&app).await;
    assert_eq!(dead_letter::give_up(&mut tx, sale(1)).await.expect("Postgres answers"), 2);
    tx.commit().await.expect("Postgres answers");
    assert_eq!(app.touched("dead_letters", "id").await, [1, 4]);
    let given_up = "SELECT id FROM dead_letters WHERE resolved_at > '2024-01-02'
                    AND detail = 'why; given up by an operator, who has archived the sale' ORDER BY id";
    assert_eq!(app.numbers(given_up).await, [1, 4]);
    assert_eq!(app.numbers("SELECT id FROM dead_letters WHERE resolved_at IS NULL").await, [3]);
}

#[tokio::test]
async fn insert_all_makes_each_letter_once_and_in_the_order_of_the_log() {
    let app = TestApp::with_sales(1).await;
    let letter = |lane: i32, epoch, entry: &str, position| {
        let place = Place { epoch, entry: entry.parse().expect("an entry's id"), position };
        let claim = LoggedClaim { place, ..LoggedClaim::without_entry(sale(1), user(7), order(9)) };
        DeadLetter::of_claim(Lane::numbered(lane), &claim, Reason::Oversold, "why")
    };
    let letters = [
        letter(1, 1, "1-1", 0),
        letter(0, 2, "1-1", 0),
        letter(0, 1, "2-1", 0),
        letter(0, 1, "1-1", 1),
        letter(0, 1, "1-1", 0),
    ];
    let insert = async |letters: &[DeadLetter]| {
        dead_letter::insert_all(pool(&app), letters).await.expect("Postgres answers")
    };
    assert_eq!((insert(&letters[..4]).await, insert(&letters).await), (4, 1), "repeats are none");
    assert_eq!(insert(&[]).await, 0);
    let rows = "SELECT concat_ws(' ', lane, epoch, entry_id, position, reason, detail, coupon_id, user_id, order_id)
                FROM dead_letters ORDER BY id";
    let of_claim = "oversold why 1024 7 9";
    let expected = ["0 1 1-1 1", "0 1 2-1 0", "0 2 1-1 0", "1 1 1-1 0", "0 1 1-1 0"];
    assert_eq!(app.texts(rows).await, expected.map(|place| format!("{place} {of_claim}")));
}

/// Orders with the ids of some letters: 12 is the same claim, 13 is of another coupon, 14 of another user, and 17 has
/// moved.
async fn letters_and_orders() -> TestApp {
    let app = TestApp::with_sales(3).await;
    app.write_rows(&[
        (12, 1, "flash", 2, "cancelled"),
        (13, 2, "flash", 3, "paid"),
        (14, 1, "flash", 44, "unpaid"),
        (17, 1, "flash", 7, "redeemed"),
    ])
    .await;
    move_rows(&app, &[17]).await;
    let letters = [
        (1, 1, 11, true),
        (1, 2, 12, true),
        (1, 3, 13, true),
        (1, 4, 14, true),
        (1, 5, 15, false),
        (2, 6, 16, true),
        (1, 7, 17, false),
        (3, 8, 18, false),
    ];
    write_letters(&app, &letters).await;
    app
}

#[tokio::test]
async fn open_letters_are_found_by_order_and_by_coupon() {
    let app = letters_and_orders().await;
    let pool = pool(&app);
    for (number, expected) in [(11, true), (12, true), (15, false), (17, false), (99, false)] {
        let is_open = dead_letter::is_open(pool, order(number)).await.expect("Postgres answers");
        assert_eq!(is_open, expected, "is_open, order {number}");
    }
    let among = dead_letter::among(pool, &[11, 15, 99]).await.expect("Postgres answers");
    assert_eq!(sorted(among.into_iter().map(id)), [11, 15], "among, open or closed");
    assert_eq!(dead_letter::count_open(pool).await.expect("Postgres answers"), 5, "count_open");
    for (number, open, without_order) in
        [(1, vec![11, 13, 14], 2), (2, vec![16], 1), (3, vec![], 1), (4, vec![], 0)]
    {
        let found = dead_letter::open_of_coupon(pool, sale(number)).await;
        let found = sorted(found.expect("Postgres answers").into_iter().map(id));
        assert_eq!(found, open, "open_of_coupon {number}");
        let count = dead_letter::count_without_order(pool, sale(number)).await;
        assert_eq!(count.expect("Postgres answers"), without_order, "count_without_order {number}");
    }
    for (asked, expected) in [(vec![1, 2, 3], vec![1, 2]), (vec![1, 3], vec![1]), (vec![3], vec![])]
    {
        let asked: Vec<i64> = asked.into_iter().map(|number| sale(number).get()).collect();
        let found = dead_letter::coupons_with_open(pool, &asked).await.expect("Postgres answers");
        let found = sorted(found.into_iter().map(|coupon| coupon.sequence()));
        assert_eq!(found, expected, "coupons_with_open, each once");
    }
}

#[tokio::test]
async fn count_of_lane_counts_letters_without_their_own_order_and_count_since_the_young_ones() {
    let app = letters_and_orders().await;
    app.execute(
        "UPDATE dead_letters SET lane = 1 WHERE id IN (5, 7);
         UPDATE dead_letters SET created_at = '2024-01-01T00:00:00Z'::timestamptz + id * interval '1 s'",
    )
    .await;
    // Orders 12 and 17 are those of their letters.
    for (lane, expected) in [(0, 5), (1, 1), (2, 0)] {
        let count = dead_letter::count_of_lane(pool(&app), Lane::numbered(lane)).await;
        assert_eq!(count.expect("Postgres answers"), expected, "lane {lane}");
    }
    // Ten seconds more, by which the clocks may differ.
    for (lane, second, expected) in
        [(0, 10, 6), (0, 13, 4), (0, 14, 3), (0, 15, 2), (1, 15, 2), (1, 17, 1), (1, 18, 0)]
    {
        let since: DateTime<Utc> = format!("2024-01-01T00:00:{second}Z").parse().expect("a time");
        let count = dead_letter::count_since(pool(&app), Lane::numbered(lane), since).await;
        assert_eq!(count.expect("Postgres answers"), expected, "lane {lane} from {second} s on");
    }
}

#[tokio::test]
async fn letters_without_live_order_are_open_and_their_users_hold_none() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (52, 1, "flash", 2, "unpaid"),
        (53, 2, "flash", 3, "unpaid"),
        (54, 1, "flash", 4, "cancelled"),
        (25, 1, "flash", 5, "expired"),
        (26, 2, "flash", 6, "expired"),
        (27, 1, "flash", 77, "expired"),
        (60, 1, "regular", 10, "unpaid"),
    ])
    .await;
    let letters = [
        (1, 10, 30, true),
        (2, 9, 29, true),
        (1, 8, 28, false),
        (1, 7, 27, true),
        (1, 6, 26, true),
        (1, 5, 25, true),
        (1, 4, 24, true),
        (1, 3, 23, true),
        (1, 2, 22, true),
        (1, 1, 21, true),
    ];
    write_letters(&app, &letters).await;
    let mut tx = begin(&app).await;
    let found = dead_letter::without_live_order(&mut tx, sale(1)).await.expect("Postgres answers");
    let found: Vec<_> =
        found.into_iter().map(|(letter, user, order)| (letter, user_id(user), id(order))).collect();
    let expected = [(10, 1, 21), (8, 3, 23), (7, 4, 24), (5, 6, 26), (4, 7, 27), (1, 10, 30)];
    assert_eq!(found, expected, "in the order of their orders");
    let mode: String = sqlx::query_scalar("SELECT current_setting('plan_cache_mode')")
        .fetch_one(&mut *tx)
        .await
        .expect("Postgres has it");
    assert_eq!(mode, "force_custom_plan", "no plan from before there were letters");
}

#[tokio::test]
async fn letters_holding_a_unit_since_a_time_are_those_of_a_lane() {
    let app = TestApp::with_sales(2).await;
    app.write_rows(&[
        (52, 1, "flash", 2, "unpaid"),
        (53, 2, "flash", 3, "unpaid"),
        (54, 1, "flash", 4, "cancelled"),
        (60, 1, "regular", 5, "unpaid"),
    ])
    .await;
    let mut letters: Vec<_> = (1..=9).map(|n| (1, n, 20 + n, n != 6)).collect();
    letters.push((2, 1, 30, true));
    write_letters(&app, &letters).await;
    app.execute(
        "UPDATE dead_letters SET holds_unit = id <> 7,
             created_at = '2024-01-01T00:00:00Z'::timestamptz - CASE id WHEN 8 THEN interval '1 us' ELSE '0' END,
             coupon_id = coupon_id + CASE id WHEN 9 THEN 5 ELSE 0 END;
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail)
             VALUES (0, '11-1', '{}', 'undecodable', 'it names no claim')",
    )
    .await;
    let since = "2024-01-01T00:00:00Z".parse().expect("a time");
    let other = CouponId::new(sale(1).get() + 5).expect("a positive number");
    let of_lane =
        [(sale(1), 1, 21), (sale(1), 3, 23), (sale(1), 4, 24), (sale(1), 5, 25), (sale(2), 1, 30)];
    for (lane, expected) in [(lane(), &of_lane[..]), (other.lane(), &[(other, 9, 29)][..])] {
        let found = dead_letter::holding_since(pool(&app), lane, since).await;
        let found = found.expect("Postgres answers").into_iter();
        let found = sorted(found.map(|(coupon, user, order)| (coupon, user_id(user), id(order))));
        assert_eq!(found, expected, "holding_since, {lane:?}");
    }
}

#[tokio::test]
async fn newest_open_of_a_user_may_leave_out_letters_with_a_unit() {
    let app = TestApp::with_sales(3).await;
    let letters =
        [(1, 1, 33, true), (1, 1, 31, true), (1, 1, 35, false), (2, 1, 37, true), (1, 2, 39, true)];
    write_letters(&app, &letters).await;
    app.execute("UPDATE dead_letters SET holds_unit = order_id IN (33, 39)").await;
    for (coupon, of, without_unit, expected) in [
        (1, 1, false, Some(33)),
        (1, 1, true, Some(31)),
        (2, 1, true, Some(37)),
        (1, 2, false, Some(39)),
        (1, 2, true, None),
        (3, 1, false, None),
        (1, 3, false, None),
    ] {
        let found =
            dead_letter::newest_open_of(pool(&app), sale(coupon), user(of), without_unit).await;
        let found = found.expect("Postgres answers").map(id);
        assert_eq!(found, expected, "coupon {coupon}, user {of}, without unit: {without_unit}");
    }
}

#[tokio::test]
async fn the_list_of_dead_letters_is_narrowed_down_by_each_part_of_a_filter() {
    let app = TestApp::with_sales(2).await;
    let letters = [
        (1, 1, 11, true),
        (2, 1, 12, true),
        (1, 2, 13, true),
        (1, 1, 14, false),
        (2, 2, 15, false),
        (1, 1, 16, true),
    ];
    write_letters(&app, &letters).await;
    app.execute(
        "UPDATE dead_letters SET reason = 'oversold' WHERE id IN (3, 5);
         INSERT INTO dead_letters (lane, entry_id, payload, reason, detail)
             VALUES (0, '7-1', '{}', 'undecodable', 'it names no claim')",
    )
    .await;
    let dead_letters = &app.app.dead_letters;
    let (open, closed) = (LetterState::Open, LetterState::Closed);
    let oversold = Some(Reason::Oversold);
    for (state, reason, coupon, of, before, limit, expected) in [
        (open, None, None, None, None, 9, vec![7, 6, 3, 2, 1]),
        (open, None, None, None, None, 2, vec![7, 6]),
        (open, None, None, None, Some(6), 9, vec![3, 2, 1]),
        (open, None, None, None, Some(6), 1, vec![3]),
        (closed, None, None, None, None, 9, vec![5, 4]),
        (closed, None, None, None, Some(5), 9, vec![4]),
        (open, oversold, None, None, None, 9, vec![3]),
        (closed, oversold, None, None, None, 9, vec![5]),
        (open, None, Some(1), None, None, 9, vec![6, 3, 1]),
        (closed, None, Some(2), None, None, 9, vec![5]),
        (open, None, None, Some(1), None, 9, vec![6, 2, 1]),
        (open, None, Some(1), Some(1), None, 9, vec![6, 1]),
        (open, oversold, Some(2), None, None, 9, vec![]),
    ] {
        let filter = LetterFilter { state, reason, coupon: coupon.map(sale), user: of.map(user) };
        let listed = dead_letters.list(&filter, before.map(letter), limit).await;
        let listed = listed.expect("Postgres answers");
        let ids: Vec<i64> = listed.iter().map(|letter| letter.id.get()).collect();
        assert_eq!(ids, expected, "{filter:?} before {before:?}, {limit}");
        assert!(listed.iter().all(|letter| letter.closed_at.is_some() == (state == closed)));
    }
    for number in [2, 5] {
        let found = dead_letters.get(letter(number)).await.expect("Postgres answers");
        let found = found.map(|found| (found.id.get(), found.order_id.map(id)));
        assert_eq!(found, Some((number, Some(10 + number))), "get");
    }
    assert_eq!(dead_letters.get(letter(8)).await.expect("Postgres answers"), None);
}

#[tokio::test]
async fn discard_closes_one_letter_and_a_repeat_keeps_the_time() {
    let app = TestApp::with_sales(1).await;
    write_letters(&app, &[(1, 1, 11, true), (1, 2, 12, false), (1, 3, 13, true)]).await;
    app.let_rows_age("dead_letters").await;
    for number in [1, 2] {
        let done = app.app.dead_letters.discard(letter(number), &Actor::command_line()).await;
        assert_eq!(done.expect("Postgres answers"), Discarded::Done, "letter {number}");
    }
    let open = "SELECT id FROM dead_letters WHERE resolved_at IS NULL";
    assert_eq!(app.numbers(open).await, [3]);
    let before = "SELECT id FROM dead_letters WHERE resolved_at = '2024-01-01T00:00:00Z'";
    assert_eq!(app.numbers(before).await, [2]);
    assert_eq!(app.touched("dead_letters", "id").await, [1, 2]);
    assert_eq!(app.numbers("SELECT subject_id FROM audit").await, [1], "closed by this call");
    let orders =
        "SELECT concat_ws(' ', id, coupon_id, kind, user_id, status) FROM orders ORDER BY id";
    assert_eq!(app.texts(orders).await, ["11 1024 flash 1 cancelled", "12 1024 flash 2 cancelled"]);
}
