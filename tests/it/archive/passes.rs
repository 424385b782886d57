//! `pass`, `archive_ended`, `remove_archived` and `remove`: the steps of a pass, what is compared once, and what is left.

use flash_sale::sale::buyers::shards::Shards;
use flash_sale::sale::ids::CouponId;

use crate::support::played::{Play, Played};
use crate::support::{Bounded, TestApp, proxy_before, sale};

/// A sale that is noted as archived, and still in Redis.
async fn noted_as_archived(app: &TestApp) -> CouponId {
    let coupon = app.create_flash(5).await;
    assert_eq!(app.r#move(coupon, "end").await.status, 200);
    app.execute(&format!("UPDATE flash_sales SET archived_at = now() WHERE coupon_id = {coupon}"))
        .await;
    coupon
}

async fn removed(app: &TestApp) -> Vec<i64> {
    app.numbers("SELECT coupon_id FROM flash_sales WHERE removed_at IS NOT NULL ORDER BY 1").await
}

async fn pass(app: &TestApp) -> usize {
    app.app.archive.pass().bounded().await.expect("both stores answer")
}

#[tokio::test]
async fn remove_archived_postpones_a_sale_that_cannot_be_removed_and_tries_end_settles_the_rest() {
    let app = TestApp::start().await;
    let (first, second) = (noted_as_archived(&app).await, noted_as_archived(&app).await);
    // An item of this pass that is no sale any more.
    app.execute(
        "INSERT INTO postponed (pass, item, error, next_try_at) VALUES ('archive', 77, 'x', now())",
    )
    .await;
    let refused = format!("NEW.coupon_id = {first} AND NEW.removed_at IS NOT NULL");
    app.refuse("UPDATE", "flash_sales", &refused, "23514").await;
    assert_eq!(pass(&app).await, 0);
    assert_eq!(app.postponed().await, [format!("archive {first} 1")]);
    assert_eq!(removed(&app).await, [second.get()]);
    app.accept("flash_sales").await;
    app.let_postponed_be_due().await;
    assert_eq!(pass(&app).await, 0);
    assert_eq!(removed(&app).await, [first.get(), second.get()]);
    assert_eq!(app.postponed().await, [] as [String; 0]);
}

/// Keys of these shards, written by hand, with the field of the sale that names them.
async fn built_anew(app: &TestApp, coupon: CouponId, field: &str) -> Vec<String> {
    let shards: Shards = field.parse().expect("shards");
    let keys: Vec<String> =
        shards.all().map(|shard| shards.key(app.keys(), coupon, shard)).collect();
    for key in &keys {
        let _: i64 = app.redis(&["HSET", key, "-", "0"]).await;
    }
    let _: i64 = app.redis(&["HSET", &app.keys().coupon(coupon), "shards", field]).await;
    keys
}

async fn there(app: &TestApp, keys: &[String]) -> i64 {
    let words: Vec<&str> = ["EXISTS"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    app.redis(&words).await
}

#[tokio::test]
async fn remove_takes_the_shards_of_each_generation() {
    let app = TestApp::start().await;
    for (field, shards) in [("1", 1), ("1@1", 1), ("3@2", 3), ("2@7", 2)] {
        let coupon = noted_as_archived(&app).await;
        let of_load = app.shard_keys(coupon).await;
        let built = built_anew(&app, coupon, field).await;
        let keys = [vec![app.keys().coupon(coupon)], of_load, built].concat();
        // Those of the load are named twice in the first row.
        assert_eq!(there(&app, &keys).await, 2 + shards, "{field}");
        assert_eq!(pass(&app).await, 0);
        assert_eq!(there(&app, &keys).await, 0, "{field}");
        assert!(removed(&app).await.contains(&coupon.get()));
    }
}

/// The hash alone names them: without it, nothing would find them again.
#[tokio::test]
async fn remove_takes_shards_that_were_built_anew_before_the_hash_that_names_them() {
    let app = TestApp::start().await;
    let coupon = noted_as_archived(&app).await;
    let built = built_anew(&app, coupon, "2@3").await;
    let sale = [app.keys().coupon(coupon)];
    let proxy = proxy_before(&app, "UNLINK").await;
    let behind = app.another_instance_behind(&proxy).await;
    proxy.lose_next_reply();
    assert!(
        behind.archive.pass().bounded().await.is_err(),
        "the connection breaks after the first step"
    );
    assert_eq!((there(&app, &built).await, there(&app, &sale).await), (0, 1));
    assert_eq!(removed(&app).await, [] as [i64; 0]);
    assert_eq!(pass(&app).await, 0);
    assert_eq!(there(&app, &sale).await, 0);
    assert_eq!(removed(&app).await, [coupon.get()]);
}

/// Postgres refuses the step of each sale, or Redis has lost it. In a run that takes seconds, their notes are due again
/// before its end; here they are at once.
#[tokio::test]
async fn each_step_of_a_run_tries_a_sale_once_however_soon_it_is_due_again() {
    let app = TestApp::configured(&["--archive-after-ms", "0"]).await;
    app.expect_disagreements();
    app.write_sales(3).await;
    app.execute(
        "CREATE FUNCTION be_due() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF NEW.tries > 3 THEN RAISE EXCEPTION 'tried again and again'; END IF;
                 NEW.next_try_at = now() - interval '1 hour';
                 RETURN NEW;
             END $$;
         CREATE TRIGGER due BEFORE INSERT OR UPDATE ON postponed FOR EACH ROW EXECUTE FUNCTION be_due()",
    )
    .await;
    let tried_once = [1, 2, 3].map(|number| format!("archive {} 1", sale(number)));
    for (step, refused) in [
        (
            "UPDATE flash_sales SET closes_at = now() - interval '1 minute'",
            Some(("coupons", "NEW.state = 'ended'")),
        ),
        ("UPDATE coupons SET state = 'ended', ended_at = now() - interval '1 minute'", None),
        (
            "UPDATE flash_sales SET archived_at = now()",
            Some(("flash_sales", "NEW.removed_at IS NOT NULL")),
        ),
    ] {
        app.execute(step).await;
        if let Some((table, when)) = refused {
            app.refuse("UPDATE", table, when, "23514").await;
        }
        assert_eq!(pass(&app).await, 0, "{step}");
        assert_eq!(app.postponed().await, tried_once, "{step}");
        if let Some((table, _)) = refused {
            app.accept(table).await;
        }
        app.execute("DELETE FROM postponed").await;
    }
}

#[tokio::test]
async fn archive_ended_compares_each_sale_once_and_remove_unlinks_each_key_once() {
    let app = TestApp::configured(&["--archive-after-ms", "0"]).await;
    let played = Played::before(app.redis_url(), |_| Play::Heard).await;
    let process = played.process(&app).await;
    let pass = async |counted: &str| {
        played.take_asked();
        let archived = process.archive.pass().bounded().await.expect("both stores answer");
        (archived, played.asked().iter().filter(|command| command[0] == counted).count())
    };
    let mut sales = Vec::new();
    let mut compared = Vec::new();
    for sale in 1..=3 {
        let coupon = app.create_flash(5).await;
        assert_eq!(app.r#move(coupon, "end").await.status, 200);
        // Each stays, because a buyer has no order.
        app.set_buyer(coupon, 3, 70 + sale).await;
        sales.push(coupon);
        let (archived, reads) = pass("HSCAN").await;
        assert_eq!(archived, 0);
        compared.push(reads);
    }
    assert!(compared[0] > 0);
    assert_eq!(compared, [1, 2, 3].map(|sales| sales * compared[0]));
    for coupon in sales {
        app.forget_buyer(coupon, 3).await;
    }
    assert_eq!(pass("UNLINK").await, (3, 3 * 2), "the hash and the shard of each");
}
