//! `flash-sale id`, and the key of order ids at the start of a service.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use private_servers::testing::DataFolder;
use serde_json::Value;

use super::command_line::{said, with, words};
use super::private_servers::Demo;
use crate::support::process::{Process, flash_sale, order_id, run};
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

#[tokio::test]
async fn a_service_whose_key_does_not_fit_changes_nothing() {
    let keyed = TestApp::configured(&KEYED).await;
    let plain = TestApp::start().await;
    for (app, key) in [(&keyed, None), (&keyed, Some(OTHER)), (&plain, Some(OTHER))] {
        let settings = async || {
            app.number("SELECT hashtextextended(row_to_json(s)::text, 0) FROM settings s").await
        };
        let before = settings().await;
        let serve = ["serve", "--listen", "127.0.0.1:0", "--lanes", "4"];
        let mut process = flash_sale(&words(&with(app, &serve, &[])));
        process.envs(key.map(|key| ("FLASH_SALE_ORDER_ID_KEY", key)));
        let refused = run(process).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert_eq!(settings().await, before);
    }
}

#[tokio::test]
async fn doctor_says_which_form_ids_have_and_whether_the_key_fits() {
    let keyed = TestApp::configured(&KEYED).await;
    let plain = TestApp::start().await;
    let undecided = TestApp::start().await;
    undecided.execute("UPDATE settings SET order_ids = NULL").await;
    for (app, key, level, words) in [
        (
            &keyed,
            Some(KEYED[1]),
            "ok    ",
            "they tell nothing, and the key is that of this installation",
        ),
        (&keyed, None, "FAIL  ", "--order-id-key (FLASH_SALE_ORDER_ID_KEY) is missing"),
        (&keyed, Some(OTHER), "FAIL  ", "--order-id-key is not the key of this installation"),
        (&plain, None, "ok    ", "plain: as they are inside"),
        (&plain, Some(OTHER), "FAIL  ", "leave the key away"),
        (&undecided, None, "ok    ", "the first start without --order-id-key makes them plain"),
        (&undecided, Some(OTHER), "ok    ", "gives this installation the key of --order-id-key"),
    ] {
        let mut process = flash_sale(&self::words(&with(app, &["doctor"], &[])));
        process.envs(key.map(|key| ("FLASH_SALE_ORDER_ID_KEY", key)));
        let found = run(process).await;
        let begins = format!("{level}Order ids outside: ");
        let line = found.stdout.lines().find(|line| line.starts_with(&begins));
        assert!(line.is_some_and(|line| line.contains(words)), "{begins}{words}: {found:?}");
        assert!(!found.stdout.contains(OTHER) && !found.stdout.contains(KEYED[1]), "{found:?}");
    }
    // It looks only.
    let decided = undecided.number("SELECT count(*) FROM settings WHERE order_ids IS NULL").await;
    assert_eq!(decided, 1);
}

/// The demo's key is kept like its token secret, and each command on the data folder finds it there.
#[tokio::test]
async fn a_demo_on_a_new_data_folder_has_a_key_of_its_own() {
    let folder = DataFolder::new();
    let mut demo = Demo::start(&folder).await;
    let (status, accepted) = demo.claim(&demo.token).await;
    assert_eq!(status, 202, "{accepted}");
    let public = order_id(&accepted);
    let kept = folder.path().join("order-id-key");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!((mode(&kept), mode(folder.path()) & 0o066), (0o600, 0));
    assert_ne!(fs::read(&kept).unwrap(), fs::read(folder.path().join("token-secret")).unwrap());

    let on_the_folder = async |arguments: &[&str]| {
        said(&[arguments, &["--data-dir", folder.text()]].concat()).await
    };
    let inner = on_the_folder(&["id", "inner", &public.to_string()]).await;
    assert_eq!(inner.code, Some(0), "{inner:?}");
    let inner = inner.stdout.trim().to_owned();
    assert_ne!(inner, public.to_string());
    let back = on_the_folder(&["id", "public", &inner]).await;
    assert_eq!(back.stdout.trim(), public.to_string());
    let doctor = on_the_folder(&["doctor"]).await;
    assert!(doctor.stdout.contains("they tell nothing, and the key is that of this"), "{doctor:?}");
    demo.interrupt().await;

    // The next start, of either kind, goes on with it.
    let mut next = Demo::start(&folder).await;
    next.assert_order(&demo.token, public).await;
    next.interrupt().await;
    let mut served = serve(&folder);
    served.url().await;
    served.signal(Signal::SIGINT);
    assert_eq!(served.ended().await.code(), Some(0));

    fs::rename(&kept, folder.path().join("elsewhere")).expect("it is there");
    let refused = on_the_folder(&["demo", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("put the file `order-id-key` back"), "{refused:?}");
    assert!(!kept.exists(), "no other key is made");
    fs::write(&kept, "short").expect("room on the disk");
    let refused = on_the_folder(&["id", "inner", "7"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("is damaged") && !refused.stderr.contains("short"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_data_folder_that_has_plain_ids_keeps_them() {
    let folder = DataFolder::new();
    let mut served = serve(&folder);
    served.url().await;
    served.signal(Signal::SIGINT);
    assert_eq!(served.ended().await.code(), Some(0));
    assert!(!folder.path().join("order-id-key").exists(), "only a demo makes a key unasked");

    let mut demo = Demo::start(&folder).await;
    assert!(!folder.path().join("order-id-key").exists());
    let same = said(&["id", "public", "7", "--data-dir", folder.text()]).await;
    assert_eq!(same.stdout.trim(), "7", "{same:?}");
    demo.interrupt().await;
}

fn serve(folder: &DataFolder) -> Process {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", folder.text()];
    Process::spawn(flash_sale(&arguments))
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
