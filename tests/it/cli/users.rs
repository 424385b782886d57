//! `flash-sale user`: export and erasure on the command line.

use serde_json::Value;

use super::command_line::{said, with, words};
use crate::support::TestApp;

/// A user whose number stands nowhere by chance.
const USER: i64 = 7_340_033_123_457;

#[tokio::test]
async fn a_user_is_exported_and_erased() {
    let app = TestApp::start().await;
    let coupon = app.create_regular().await;
    let order = app.claim(USER, coupon).await.order_id();
    let number = USER.to_string();
    let of_user = [("--user", &*number)];
    let export = async || said(&words(&with(&app, &["user", "export"], &of_user))).await;
    let erase = async || said(&words(&with(&app, &["user", "erase"], &of_user))).await;

    let exported = export().await;
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let data: Value = serde_json::from_str(&exported.stdout).expect("one JSON object");
    assert_eq!(
        (&data["user_id"], &data["orders"][0]["id"]),
        (&number.as_str().into(), &order.to_string().into())
    );
    let refused = erase().await;
    assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains(&format!("Order {order} is unpaid")), "{refused:?}");

    assert_eq!(app.cancel(USER, order).await.status, 200);
    let erased = erase().await;
    assert_eq!(erased.code, Some(0), "{erased:?}");
    assert!(erased.stdout.contains("1 orders stay for the books"), "{erased:?}");
    let again = erase().await;
    assert_eq!(
        (again.code, again.stdout.trim()),
        (Some(0), "The stores have nothing of this user.")
    );
    let data: Value = serde_json::from_str(&export().await.stdout).expect("one JSON object");
    assert_eq!(data["orders"], Value::Array(Vec::new()));
    let listed =
        said(&words(&with(&app, &["audit", "--json"], &[("--action", "erase_user")]))).await;
    assert_eq!(listed.stdout.lines().count(), 1, "{listed:?}");
    assert!(!listed.stdout.contains(&number), "{listed:?}");
}

#[tokio::test]
async fn users_that_cannot_be_are_refused_by_name() {
    for (arguments, names) in [
        (&["user"][..], &["export", "erase"][..]),
        (&["user", "export"], &["--user"]),
        (&["user", "erase"], &["--user"]),
        (&["user", "export", "--user", "0"], &["--user", "an id is a whole number"]),
        (&["user", "erase", "--user=-1"], &["--user", "an id is a whole number"]),
        (&["user", "erase", "--user", "me"], &["--user", "an id is a whole number"]),
        (&["user", "erase", "7"], &["unexpected argument"]),
        (&["user", "forget", "--user", "7"], &["unrecognized subcommand"]),
    ] {
        let refused = said(arguments).await;
        assert_eq!((refused.code, &*refused.stdout), (Some(2), ""), "{arguments:?}: {refused:?}");
        for name in names {
            assert!(refused.stderr.contains(name), "{arguments:?}: {refused:?}");
        }
    }
}
