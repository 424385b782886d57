//! Input that the API refuses: every row of these tables is a mistake or an attack.

use flash_sale::base::limits;
use flash_sale::kit::jwt::Scope;
use serde_json::{Value, json};

use crate::support::{Reply, TestApp, scoped_token};

/// Routes with an id in their path: method, and the text around the id.
const WITH_AN_ID: [(&str, &str, &str); 25] = [
    ("POST", "/v1/coupons/", "/claims"),
    ("GET", "/v1/coupons/", "/claims/me"),
    ("GET", "/v1/coupons/", ""),
    ("GET", "/v1/coupons/", "/live"),
    ("GET", "/v1/orders/", ""),
    ("GET", "/v1/orders/", "/trace"),
    ("GET", "/v1/orders/", "/qr"),
    ("GET", "/v1/orders/", "/payments"),
    ("POST", "/v1/coupons/", "/archive"),
    ("GET", "/v1/coupons/", "/progress"),
    ("POST", "/v1/postponed/", "/retry"),
    ("POST", "/v1/payments/", "/close"),
    ("POST", "/v1/payments/", "/hand-back"),
    ("GET", "/v1/dead-letters/", ""),
    ("POST", "/v1/dead-letters/", "/retry"),
    ("POST", "/v1/dead-letters/", "/discard"),
    ("POST", "/v1/recoveries/", "/settle"),
    ("POST", "/v1/coupons/", "/cancel-unpaid"),
    ("POST", "/v1/orders/", "/cancel-for-buyer"),
    ("POST", "/v1/orders/", "/refund-for-buyer"),
    ("GET", "/v1/webhooks/", ""),
    ("PATCH", "/v1/webhooks/", ""),
    ("DELETE", "/v1/webhooks/", ""),
    ("POST", "/v1/webhooks/", "/test"),
    ("GET", "/v1/webhooks/", "/deliveries"),
];

#[tokio::test]
async fn what_is_not_json_is_malformed() {
    let app = TestApp::start().await;
    let rows: [(&str, &[u8]); 11] = [
        ("nothing", b""),
        ("blanks", b"  \n"),
        ("cut off", br#"{"kind":"regular","#),
        (
            "more text behind it",
            br#"{"kind":"regular","title":"t","pay_cents":1,"value_cents":2} x"#,
        ),
        ("single quotes", b"{'kind':'regular'}"),
        ("a comma too many", br#"{"kind":"regular",}"#),
        ("a number that is none", br#"{"pay_cents":NaN}"#),
        ("a number beyond all", br#"{"pay_cents":1e999}"#),
        ("half a surrogate pair", br#"{"title":"\ud800"}"#),
        ("not UTF-8", b"{\"title\":\"\xff\xfe\"}"),
        ("two byte order marks", b"\xef\xbb\xbf\xef\xbb\xbf{}"),
    ];
    for (what, body) in rows {
        let reply = post_bytes(&app, "/v1/coupons", "application/json", body.to_vec()).await;
        assert_eq!(reply.refusal(), (400, "malformed_json"), "{what}");
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 0);
}

/// A body behind a byte order mark is read (RFC 8259, section 8.1); one in another coding is told so.
#[tokio::test]
async fn the_form_of_a_body_is_told_from_its_content() {
    let app = TestApp::start().await;
    let coupon = json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2});
    let marked = format!("\u{feff}{coupon}").into_bytes();
    let reply = post_bytes(&app, "/v1/coupons", "application/json; charset=utf-8", marked).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    for coding in ["gzip", "br", "deflate, gzip"] {
        let request =
            app.client().post(app.url.clone() + "/v1/coupons").bearer_auth(app.admin_token());
        let request = request.header("content-encoding", coding).json(&coupon);
        let refused = app.send(request, "POST", "/v1/coupons").await;
        assert_eq!(refused.refusal(), (415, "unsupported_media_type"), "{coding}");
        assert!(refused.text("detail").contains("Content-Encoding"), "{refused:?}");
    }
}

/// Values in places of a flash coupon that is valid otherwise; several values stand side by side.
const BAD_VALUES: [(&str, &str); 22] = [
    ("", r#"[] {} "flash" null 1 true"#),
    ("/colour", r#""red" null"#),
    ("/id", r#""1024""#),
    ("/state", r#""ended""#),
    ("/kind", r#""Flash" "" {"gift":null} "gift""#),
    // A field of sales, which a regular coupon can't have.
    ("/kind", r#""regular""#),
    (
        "/title",
        r#""" 1 null ["t"] "\u0000" "a\u0000b" "  " "\n" "a\nb" "a\u202eb" "\u2066a\u2069"
           "\u200b" "\u2060" "\ufeff" "\u00ad\u200d" "\u3164" "\u2800" "a\u200f" "\u061ca""#,
    ),
    ("/sub_title", r#""a\nb" "\u0007" "a\u202eb" "\u200e""#),
    ("/rules", r#""\u0007" "a\u0000" "a\u202ab""#),
    ("/sub_title", r#"1 null "\u0000""#),
    ("/rules", r#"1 null "\u0000""#),
    ("/pay_cents", r#""1" 1.5 -1 null 1000000000001 9223372036854775808 1e30"#),
    ("/currency", r#""" "eur" "EURO" "E1R" null 978 ["EUR"]"#),
    ("/value_cents", r#""2" 2.5 -1 null 1000000000001 -9223372036854775809 2e-1"#),
    ("/sale", r#"null [] "flash" {} 5"#),
    ("/sale/left", "1 null"),
    (
        "/sale/total",
        r#"0 -1 100000001 9223372036854775807 9223372036854775808 1e30 "5" 5.5 -0.5 null"#,
    ),
    ("/sale/opens_at", NO_TIMES),
    ("/sale/closes_at", NO_TIMES),
    // No time at all, and less than Redis can count.
    ("/sale/closes_at", r#""2030-01-01T00:00:00Z" "2030-01-01T00:00:00.0005Z""#),
    // Before it opens; once by its offset.
    ("/sale/closes_at", r#""2029-12-31T23:59:59Z" "2030-01-01T01:00:00+02:00""#),
    ("/sale/opens_at", r#""2031-01-01T00:00:00Z""#),
];

/// No RFC 3339 times, and in the last two lines times that no coupon can have.
const NO_TIMES: &str = r#"
    1893456000 null "" "soon" "2030-01-01" "2030-01-01T00:00:00" "01.01.2030 00:00:00Z"
    "2030-02-30T00:00:00Z" "2030-13-01T00:00:00Z" "2030-01-01T25:00:00Z" "2030-01-01T00:00:00+99:99"
    "1969-12-31T23:59:59Z" "1970-01-01T00:00:00+01:00" "0000-01-01T00:00:00Z" "-0001-01-01T00:00:00Z"
    "+10000-01-01T00:00:00Z" "9999-12-31T23:59:59-01:00"
"#;

#[tokio::test]
async fn a_coupon_that_can_not_be_is_refused() {
    let app = TestApp::start().await;
    let mut rows: Vec<(&str, Value)> = BAD_VALUES
        .iter()
        .flat_map(|(place, values)| json_values(values).map(|value| (*place, value)))
        .collect();
    for (place, too_long) in [("/title", 201), ("/sub_title", 201), ("/rules", 4_001)] {
        rows.push((place, json!("x".repeat(too_long))));
    }
    for (place, value) in rows {
        let mut coupon = flash();
        put(&mut coupon, place, value.clone());
        assert_invalid(&app, &coupon, &format!("{place} is {value}")).await;
    }
    for (place, field) in [
        ("", "kind"),
        ("", "title"),
        ("", "pay_cents"),
        ("", "value_cents"),
        ("", "sale"),
        ("/sale", "total"),
        ("/sale", "opens_at"),
        ("/sale", "closes_at"),
    ] {
        let mut coupon = flash();
        remove(coupon.pointer_mut(place).unwrap(), field);
        assert_invalid(&app, &coupon, &format!("{place} without {field}")).await;
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 0);
}

async fn assert_invalid(app: &TestApp, coupon: &Value, what: &str) {
    let reply = app.post("/v1/coupons", &app.admin_token(), coupon).await;
    assert_eq!(reply.status, 422, "{what}: {reply:?}");
    assert_eq!(reply.text("code"), "invalid_body", "{what}");
}

#[tokio::test]
async fn the_limits_themselves_are_allowed() {
    let app = TestApp::start().await;
    let ticket = json!("🎟".repeat(200));
    for (place, value) in [
        ("/title", ticket.clone()),
        ("/sub_title", ticket),
        ("/rules", json!("x".repeat(4_000))),
        ("/rules", json!("one\n\ttwo\r\nعرض خاص")),
        ("/rules", json!("券".repeat(4_000))),
        ("/pay_cents", json!(0)),
        ("/pay_cents", json!(limits::CENTS_MAX)),
        ("/value_cents", json!(limits::CENTS_MAX)),
        ("/sale/total", json!(1)),
        ("/sale/total", json!(limits::TOTAL_MAX)),
        ("/sale/opens_at", json!("1970-01-01T00:00:00Z")),
        ("/sale/closes_at", json!("2030-01-01T00:00:00.001Z")),
        ("/sale/closes_at", json!("9999-12-31T23:59:59Z")),
    ] {
        let mut coupon = flash();
        put(&mut coupon, place, value.clone());
        let reply = app.post("/v1/coupons", &app.admin_token(), &coupon).await;
        assert_eq!(reply.status, 201, "{place}: {reply:?}");
        assert_eq!(reply.body.pointer(place), Some(&value), "{place}");
    }
}

#[tokio::test]
async fn a_body_is_json_and_says_so() {
    let app = TestApp::start().await;
    let body = flash().to_string().into_bytes();
    for kind in ["", "text/plain", "application/jsonp", "json"] {
        let reply = post_bytes(&app, "/v1/coupons", kind, body.clone()).await;
        assert_eq!(reply.refusal(), (415, "unsupported_media_type"), "{kind:?}");
    }
    let with_charset = "application/json; charset=utf-8";
    let reply = post_bytes(&app, "/v1/coupons", with_charset, body).await;
    assert_eq!(reply.status, 201, "{reply:?}");
}

/// serde would take a list for an object, field by field.
#[tokio::test]
async fn a_list_is_no_object() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.claim(1, coupon).await.order_id();
    app.write_orders().await;
    let user = crate::support::token(1);
    let reply = app.post(&format!("/v1/orders/{order}/pay"), &user, &json!(["wechat"])).await;
    assert_eq!(reply.refusal(), (422, "invalid_body"));
    assert_eq!(app.my_claim(1, coupon).await.text("status"), "unpaid");
    let mut nested = flash();
    nested["sale"] = json!([10, "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"]);
    assert_invalid(&app, &nested, "a sale that is a list").await;
}

/// Each of these characters is two escapes of six bytes.
#[tokio::test]
async fn four_thousand_characters_fit_however_they_are_escaped() {
    let app = TestApp::start().await;
    let mut coupon = flash();
    coupon["rules"] = "@".into();
    let body = coupon.to_string().replace('@', &"\\ud83c\\udf9f".repeat(4_000));
    let reply = post_bytes(&app, "/v1/coupons", "application/json", body.into_bytes()).await;
    assert_eq!(reply.status, 201, "{reply:?}");
    assert_eq!(reply.text("rules").chars().count(), 4_000);
}

#[tokio::test]
async fn a_body_has_a_limit() {
    let app = TestApp::start().await;
    let claims = format!("/v1/coupons/{}/claims", app.create_flash(5).await);
    let padded = |bytes: usize| {
        let mut body = flash().to_string().into_bytes();
        body.resize(bytes, b' ');
        body
    };
    for path in ["/v1/coupons", &claims, "/v1/coupons/0/claims", "/nowhere"] {
        let too_large = padded(limits::BODY_BYTES_MAX + 1);
        let reply = post_bytes(&app, path, "application/json", too_large).await;
        assert_eq!(reply.refusal(), (413, "body_too_large"), "{path}");
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 1);
    assert_eq!(app.reconcile().await.sales[0].buyers, 0);

    for (path, status) in [("/v1/coupons", 201), (&claims, 202)] {
        let largest = padded(limits::BODY_BYTES_MAX);
        assert_eq!(largest.len(), limits::BODY_BYTES_MAX);
        let reply = post_bytes(&app, path, "application/json", largest).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
    }
}

#[tokio::test]
async fn an_id_is_a_positive_number_with_one_spelling() {
    let app = TestApp::start().await;
    for id in "0 -1 +1 01 1.0 1e3 0x10 x null 9223372036854775808 18446744073709551616 -0 \
               99999999999999999999999999 %20 1%20 %00 1%00 %FF %2F 1%2F2 1;2 1'-- %D9%A3 %2B1"
        .split(' ')
    {
        for (method, before, after) in WITH_AN_ID {
            let path = format!("{before}{id}{after}");
            let reply = ask(&app, method, &path, &bearer(&app.admin_token())).await;
            assert_eq!(reply.refusal(), (400, "invalid_id"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn an_unknown_coupon_is_not_found() {
    let app = TestApp::start().await;
    app.create_flash(5).await;
    // Ids of the existing lane, and of lanes that don't exist.
    for coupon in ["1", "1023", "1048576", "1048577", "9223372036854775807"] {
        for (method, before, after) in &WITH_AN_ID[..3] {
            let path = format!("{before}{coupon}{after}");
            let reply = ask(&app, method, &path, &bearer(&app.token(42))).await;
            let refusal = (404, "coupon_not_found");
            assert_eq!(reply.refusal(), refusal, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn another_users_order_is_like_none() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let order = app.claim(42, coupon).await.order_id();
    app.write_orders().await;
    let path = format!("/v1/orders/{order}");
    let unknown = format!("/v1/orders/{}", order + 1);
    assert_eq!(app.get(&path, &app.token(42)).await.status, 200);

    let mut bodies = Vec::new();
    for (what, path, token) in [
        ("unknown", &unknown, app.token(7)),
        ("another user's", &path, app.token(7)),
        ("also for clerks", &path, scoped_token(7, Scope::Clerk)),
    ] {
        let mut reply = app.get(path, &token).await;
        assert_eq!(reply.refusal(), (404, "order_not_found"), "{what}");
        remove(&mut reply.body, "request_id");
        bodies.push(reply.body);
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(bodies[0], bodies[2]);
}

#[tokio::test]
async fn a_query_is_taken_at_its_word() {
    let app = TestApp::start().await;
    let bad = "colour=red user_id=7 Limit=1 limit=0 limit=101 limit=-1 limit=1.5 limit=x limit= \
               limit=99999999999 limit=1&limit=2 cursor= cursor=0 cursor=-1 cursor=07 cursor=x \
               cursor=%FF cursor=9223372036854775808 cursor=1&cursor=2 access_token=x";
    for list in ["/v1/coupons", "/v1/orders", "/v1/recoveries"] {
        for query in bad.split(' ') {
            let path = format!("{list}?{query}");
            let reply = app.get(&path, &app.admin_token()).await;
            assert_eq!(reply.refusal(), (400, "invalid_query"), "{path}");
        }
        for query in ["", "limit=1", "limit=100", "cursor=1&limit=1"] {
            let path = format!("{list}?{query}");
            assert_eq!(app.get(&path, &app.admin_token()).await.status, 200, "{path}");
        }
    }
}

/// Postgres refuses times far before our own, and the reply would be that it is away.
#[tokio::test]
async fn a_time_of_a_query_is_in_our_millennia() {
    let app = TestApp::start().await;
    for list in ["/v1/orders"] {
        for name in ["from", "to"] {
            let rows = [
                ("1969-12-31T23:59:59.999Z", 400),
                ("-4713-01-01T00:00:00Z", 400),
                ("-262143-01-01T00:00:00Z", 400),
                ("%2B10000-01-01T00:00:00Z", 400),
                ("%2B262142-12-31T23:59:59Z", 400),
                ("1970-01-01T00:00:00%2B23:59", 200),
                ("1970-01-01T00:00:00Z", 200),
                ("9999-12-31T23:59:59.999-23:59", 200),
            ];
            for (time, status) in rows {
                let path = format!("{list}?{name}={time}");
                let reply = app.get(&path, &app.admin_token()).await;
                assert_eq!(reply.status, status, "{path}: {reply:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_filter_is_a_word_that_the_list_knows() {
    let app = TestApp::start().await;
    for query in [
        "kind=Flash",
        "kind=cheap",
        "kind=",
        "kind=flash&kind=regular",
        "state=over",
        "state=active,paused",
        "state=",
    ] {
        let path = format!("/v1/coupons?{query}");
        assert_eq!(app.get(&path, "").await.refusal(), (400, "invalid_query"), "{path}");
    }
}

#[tokio::test]
async fn a_code_that_is_none_is_told_the_form_of_a_code() {
    let app = TestApp::start().await;
    let reply = app.get("/v1/redemptions/%ff", &scoped_token(7, Scope::Clerk)).await;
    assert_eq!(reply.refusal(), (400, "invalid_id"));
    assert!(reply.text("detail").starts_with("a redemption code has 16 letters"), "{reply:?}");
}

// ---- making the requests ----

/// A flash coupon that can be created.
pub fn flash() -> Value {
    let opens_at = "2030-01-01T00:00:00Z";
    let closes_at = "2030-01-02T00:00:00Z";
    let sale = json!({"total": 5, "opens_at": opens_at, "closes_at": closes_at});
    json!({"kind": "flash", "title": "t", "pay_cents": 1, "value_cents": 2, "sale": sale})
}

/// JSON values that stand side by side.
pub fn json_values(text: &str) -> impl Iterator<Item = Value> {
    let values = serde_json::Deserializer::from_str(text).into_iter();
    values.map(|value| value.expect("the tables hold JSON"))
}

/// Puts a value at the place of a JSON pointer, in place of another one or anew.
fn put(into: &mut Value, place: &str, value: Value) {
    match place.rsplit_once('/') {
        Some((parent, name)) => into.pointer_mut(parent).expect("a parent")[name] = value,
        None => *into = value,
    }
}

fn remove(from: &mut Value, name: &str) {
    let removed = from.as_object_mut().expect("an object").remove(name);
    assert!(removed.is_some(), "{name} wasn't there");
}

async fn post_bytes(app: &TestApp, path: &str, content_type: &str, body: Vec<u8>) -> Reply {
    let request = app.client().post(app.url.clone() + path).body(body);
    let request = match content_type {
        "" => request,
        given => request.header("content-type", given),
    };
    let request = request.bearer_auth(app.admin_token());
    app.send(request, "POST", path).await
}

/// A request without a body, with this Authorization header; "" for none.
pub async fn ask(app: &TestApp, method: &str, path: &str, authorization: &str) -> Reply {
    let request = app.client().request(method.parse().expect("a method"), app.url.clone() + path);
    let request = match authorization {
        "" => request,
        given => request.header("authorization", given),
    };
    app.send(request, method, path).await
}

/// An Authorization header.
pub fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
