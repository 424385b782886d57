//! `flash-sale id`, and the key of order ids at the start of a service.

use serde_json::Value;

use super::command_line::{said, with, words};
use crate::support::process::{flash_sale, run};
use crate::support::{KEYED, TestApp};

const OTHER: &str = "another key that is only good for tests";

#[tokio::test]
async fn an_id_is_translated_in_both_directions() {
    for (keyed, flags) in [(true, vec![("--order-id-key", KEYED[1])]), (false, Vec::new())] {
        let app = if keyed { TestApp::configured(&KEYED).await } else { TestApp::start().await };
        let coupon = app.create_flash(1).await;
        let public = app.order(1, coupon).await;
        let inner = app.number("SELECT id FROM orders").await;
        assert_eq!(public != inner, keyed);
        for (direction, from, to) in [("public", inner, public), ("inner", public, inner)] {
            let arguments = with(&app, &["id", direction, &from.to_string()], &flags);
            let told = said(&words(&arguments)).await;
            assert_eq!((told.code, told.stdout.trim()), (Some(0), &*to.to_string()), "{told:?}");
        }
    }
}

#[tokio::test]
async fn ids_that_cannot_be_are_refused() {
    for (arguments, name) in [
        (&["id"][..], "public"),
        (&["id", "public"], "<ORDER>"),
        (&["id", "inner"], "<ORDER>"),
        (&["id", "public", "0"], "an id is a whole number"),
        (&["id", "inner", "x"], "an id is a whole number"),
        (&["id", "inner", "007"], "an id is a whole number"),
        (&["id", "public", "9223372036854775808"], "an id is a whole number"),
        (&["id", "public", "1", "2"], "unexpected argument"),
        (&["id", "secret", "1"], "unrecognized subcommand"),
        (&["id", "public", "1", "--order-id-key", "short"], "--order-id-key has 5 bytes"),
        (&["serve", "--order-id-key", "short"], "--order-id-key has 5 bytes"),
    ] {
        let refused = said(arguments).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?}: {refused:?}");
        assert!(refused.stderr.contains(name), "{arguments:?}: {refused:?}");
        assert!(!refused.stderr.contains("short"), "a key is never printed: {refused:?}");
    }
}

#[tokio::test]
async fn a_key_that_does_not_fit_is_refused_with_the_remedy() {
    let keyed = TestApp::configured(&KEYED).await;
    let plain = TestApp::start().await;
    for (app, key, reason) in [
        (&keyed, None, "--order-id-key (FLASH_SALE_ORDER_ID_KEY) is missing"),
        (&keyed, Some(OTHER), "--order-id-key is not the key of this installation"),
        (&plain, Some(OTHER), "leave the key away"),
    ] {
        for command in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["id", "public", "7"],
            &["user", "export", "--user", "7"],
        ] {
            let mut process = flash_sale(&words(&with(app, command, &[])));
            process.envs(key.map(|key| ("FLASH_SALE_ORDER_ID_KEY", key)));
            let refused = run(process).await;
            assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{command:?}: {refused:?}");
            assert!(refused.stderr.contains(reason), "{command:?}: {refused:?}");
            assert!(!refused.stderr.contains(OTHER), "{command:?}: {refused:?}");
        }
    }
}

/// Data that leaves the house has the ids that the user knows; other commands have those of the log.
#[tokio::test]
async fn a_user_s_data_has_ids_outside_and_other_commands_have_inner_ones() {
    let app = TestApp::configured(&KEYED).await;
    let coupon = app.create_flash(2).await;
    let order = app.paid_order(7, coupon).await;
    assert_eq!(app.redeem(order).await.status, 200);
    let inner = app.inner(order).to_string();
    let flags = [("--user", "7"), ("--order-id-key", KEYED[1])];
    let exported = said(&words(&with(&app, &["user", "export"], &flags))).await;
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let data: Value = serde_json::from_str(&exported.stdout).expect("one JSON object");
    for (part, member) in [
        ("orders", "id"),
        ("redemptions", "order_id"),
        ("payments", "order_id"),
        ("places_in_redis", "order_id"),
        ("changes", "subject"),
    ] {
        assert_eq!(data[part][0][member], order.to_string(), "{part}: {data}");
    }
    assert!(!exported.stdout.contains(&inner), "{exported:?}");

    let audit = said(&words(&with(&app, &["audit"], &[("--subject", &*inner)]))).await;
    assert!(audit.stdout.contains(&format!("redeem_order {inner}")), "{audit:?}");
    let other = app.order(8, coupon).await;
    let cancel = ["orders", "cancel", &*app.inner(other).to_string(), "--reason", "r"];
    let cancelled = said(&words(&with(&app, &cancel, &[]))).await;
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert_eq!(app.status(8, other).await, "cancelled");
}
