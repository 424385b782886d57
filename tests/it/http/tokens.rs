//! Access tokens: the API believes only tokens of its own issuer, and only about their user.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::TimeDelta;
use jsonwebtoken::{Algorithm, EncodingKey, Header, crypto};
use serde_json::{Value, json};

use crate::http::bad_input::{ask, bearer, flash, json_values};
use crate::support::{SECRET, TestApp, now};

/// Routes that need a token.
const WITH_A_TOKEN: [(&str, &str); 10] = [
    ("POST", "/v1/coupons"),
    ("PATCH", "/v1/coupons/1024"),
    ("POST", "/v1/coupons/1024/pause"),
    ("POST", "/v1/coupons/1024/resume"),
    ("POST", "/v1/coupons/1024/end"),
    ("POST", "/v1/coupons/1024/restock"),
    ("POST", "/v1/coupons/1024/claims"),
    ("GET", "/v1/coupons/1024/claims/me"),
    ("GET", "/v1/orders"),
    ("GET", "/v1/orders/1"),
];

#[tokio::test]
async fn a_token_that_is_not_ours_is_nobodys() {
    let app = TestApp::start().await;
    let good = app.admin_token();
    let mut headers: Vec<(String, String)> = [
        ("no token", String::new()),
        ("no scheme", good.clone()),
        ("a scheme and nothing else", "Bearer".into()),
        ("an empty token", "Bearer ".into()),
        ("another scheme", format!("Basic {good}")),
        ("garbage", bearer("garbage")),
        ("three dots", bearer("...")),
        ("no signature", bearer(good.rsplit_once('.').unwrap().0)),
        ("two tokens", bearer(&format!("{good} {good}"))),
        ("a token and a comma", bearer(&format!("{good},"))),
    ]
    .map(|(what, header)| (what.to_owned(), header))
    .into();
    headers.extend(forged().into_iter().map(|(what, token)| (what, bearer(&token))));
    for (method, path) in WITH_A_TOKEN {
        for (what, header) in &headers {
            let reply = ask(&app, method, path, header).await;
            let refusal = (401, "invalid_token");
            assert_eq!(reply.refusal(), refusal, "{what}: {method} {path}");
            let challenge = reply.header("www-authenticate");
            match MISSING.contains(&what.as_str()) {
                true => assert_eq!(challenge, "Bearer", "{what}"),
                false => {
                    let begins = r#"Bearer error="invalid_token", error_description="the token "#;
                    assert!(challenge.starts_with(begins), "{what}: {challenge}");
                }
            }
        }
    }
    // Two headers: a proxy in front may have looked at the other one.
    for second in [&good, "x"] {
        let request = app.client().get(format!("{}/v1/orders", app.url)).bearer_auth(&good);
        let request = request.header("authorization", bearer(second));
        let reply = app.send(request, "GET", "/v1/orders").await;
        assert_eq!(reply.refusal(), (401, "invalid_token"), "{second}");
        assert!(reply.text("detail").contains("send one header `Authorization`"), "{reply:?}");
    }
    // The good token still works, so only the change made the difference.
    for token in [good, jwt(&hs256(), &payload("42"), SECRET)] {
        for scheme in ["Bearer", "bearer"] {
            let reply = ask(&app, "GET", "/v1/orders", &format!("{scheme} {token}")).await;
            assert_eq!(reply.status, 200, "{scheme} {token}");
        }
    }
}

/// Requests without any token.
const MISSING: [&str; 5] =
    ["no token", "no scheme", "a scheme and nothing else", "an empty token", "another scheme"];

/// Headers of tokens, none of which is `HS256`.
const BAD_HEADERS: &str = r#"
    {"alg":"none"} {"alg":"None"} {"alg":"RS256"} {"alg":"HS512"} {"alg":"hs256"} {"alg":null}
    {"typ":"JWT"} [] {"alg":["HS256"]}
"#;

/// Payloads of tokens without a user, or without a known time; SOON stands for a good one.
const BAD_PAYLOADS: &str = r#"
    {"exp":SOON} {"exp":SOON,"sub":42} {"exp":SOON,"sub":null}
    {"exp":SOON,"sub":"0"} {"exp":SOON,"sub":"-1"} {"exp":SOON,"sub":"+1"}
    {"exp":SOON,"sub":"01"} {"exp":SOON,"sub":"root"} {"exp":SOON,"sub":""}
    {"exp":SOON,"sub":"9223372036854775808"} {"exp":SOON,"sub":["42"]}
    {"sub":"42"} {"sub":"42","exp":0} {"sub":"42","exp":-1} {"sub":"42","exp":null}
    {"sub":"42","exp":"SOON"} {"sub":"42","exp":1e300} ["42",SOON] "42" null
    {"sub":"42","exp":SOON,"aud":1} {"sub":"42","exp":SOON,"aud":["x"]} {"sub":"42","exp":SOON,"aud":{}}
    {"sub":"42","exp":SOON,"nbf":"now"} {"sub":"42","exp":SOON,"role":["admin"]}
"#;

/// RFC 7519, section 2: a time may have a fraction. And of a token with the right key, the refusal names the claim.
#[tokio::test]
async fn a_time_may_have_a_fraction_and_a_wrong_claim_is_named() {
    let app = TestApp::start().await;
    let soon = now().timestamp() + 600;
    let asked = async |payload: &Value| {
        ask(&app, "GET", "/v1/orders", &bearer(&jwt(&hs256(), payload, SECRET))).await
    };
    let times = json!({"sub": "42", "exp": soon as f64 + 0.25, "nbf": 1.5});
    assert_eq!(asked(&times).await.status, 200);
    for (claim, value) in
        [("aud", json!(1)), ("nbf", json!("now")), ("sub", json!(42)), ("exp", Value::Null)]
    {
        let mut payload = json!({"sub": "42", "exp": soon});
        payload[claim] = value;
        let refused = asked(&payload).await;
        assert_eq!(refused.refusal(), (401, "invalid_token"));
        assert!(refused.text("detail").contains(&format!("`{claim}`")), "{refused:?}");
    }
}

/// Tokens that look right but for one thing, with its name.
fn forged() -> Vec<(String, String)> {
    let header = hs256();
    let payload = payload("42");
    let good = jwt(&header, &payload, SECRET);
    let signature = good.rsplit_once('.').expect("three parts").1;
    let mut forged = vec![
        ("expired".into(), jwt(&header, &expired(), SECRET)),
        ("HS512 with our secret".into(), hs512(&payload)),
        ("to come".into(), jwt(&header, &with(&payload, "nbf", now().timestamp() + 600), SECRET)),
        ("endless".into(), jwt(&header, &with(&payload, "exp", i64::MAX), SECRET)),
        ("an extension".into(), jwt(&json!({"alg": "HS256", "crit": ["exp"]}), &payload, SECRET)),
    ];
    // Readers of JSON differ on which of two members counts.
    let exp = format!(r#""exp":{}"#, soon());
    for twice in [r#""sub":"43""#, r#""role":"admin","role":"user""#, &exp] {
        let payload = format!(r#"{{"sub":"42",{exp},{twice}}}"#);
        forged.push((payload.clone(), signed(&header.to_string(), &payload)));
    }
    let header_twice = r#"{"alg":"none","alg":"HS256"}"#;
    forged.push((header_twice.into(), signed(header_twice, &payload.to_string())));
    for secret in ["", "another secret", &SECRET[1..]] {
        forged.push((format!("signed with {secret:?}"), jwt(&header, &payload, secret)));
    }
    for bad in json_values(&BAD_PAYLOADS.replace("SOON", &soon().to_string())) {
        forged.push((bad.to_string(), jwt(&header, &bad, SECRET)));
    }
    for bad in json_values(BAD_HEADERS) {
        let unsigned = format!("{}.{}", base64(&bad), base64(&payload));
        forged.push((bad.to_string(), jwt(&bad, &payload, SECRET)));
        forged.push((format!("{bad}, unsigned"), unsigned.clone()));
        forged.push((format!("{bad}, empty signature"), format!("{unsigned}.")));
        let token = format!("{unsigned}.{signature}");
        forged.push((format!("{bad}, another signature"), token));
    }
    for (member, value) in [("sub", "43"), ("role", "admin")] {
        let mut tampered = payload.clone();
        tampered[member] = json!(value);
        let token = format!("{}.{}.{signature}", base64(&header), base64(&tampered));
        forged.push((format!("{member} replaced by {value}"), token));
    }
    forged
}

/// A token of these texts, signed with our secret.
fn signed(header: &str, payload: &str) -> String {
    let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part));
    let message = format!("{header}.{payload}");
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let signature = crypto::sign(message.as_bytes(), &key, Algorithm::HS256);
    format!("{message}.{}", signature.expect("HS256 signs any bytes"))
}

/// The payload with one more member.
fn with(payload: &Value, member: &str, value: i64) -> Value {
    let mut payload = payload.clone();
    payload[member] = value.into();
    payload
}

#[tokio::test]
async fn only_administrators_create_coupons() {
    let app = TestApp::start().await;
    for (what, role) in [
        ("no role", Value::Null),
        ("another role", json!("user")),
        ("capitals", json!("Admin")),
        ("admin and a blank", json!("admin ")),
    ] {
        let claims = json!({"sub": "42", "exp": soon(), "role": role});
        let token = jwt(&hs256(), &claims, SECRET);
        let reply = app.post("/v1/coupons", &token, &flash()).await;
        assert_eq!(reply.refusal(), (403, "forbidden"), "{what}");
    }
    assert_eq!(app.number("SELECT count(*) FROM coupons").await, 0);
}

#[tokio::test]
async fn nobody_claims_for_somebody_else() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(5).await;
    let path = format!("/v1/coupons/{coupon}/claims?user_id=7&sub=7");
    let body = json!({"user_id": "7", "sub": "7"});
    let claimed = app.post(&path, &app.token(42), &body).await;
    assert_eq!(claimed.status, 202, "{claimed:?}");
    let refusal = (404, "not_claimed");
    assert_eq!(app.my_claim(7, coupon).await.refusal(), refusal);
    app.write_orders().await;
    assert_eq!(app.number("SELECT sum(user_id)::bigint FROM orders").await, 42);
}

// ---- making the tokens ----

/// A good payload, until the year 2100.
fn payload(sub: &str) -> Value {
    json!({"sub": sub, "exp": soon()})
}

/// Time at which good tokens end.
fn soon() -> i64 {
    (now() + TimeDelta::hours(1)).timestamp()
}

fn expired() -> Value {
    let exp = (now() - TimeDelta::seconds(1)).timestamp();
    json!({"sub": "42", "exp": exp})
}

fn hs256() -> Value {
    json!({"alg": "HS256", "typ": "JWT"})
}

/// A token with any header, always signed with HS256.
fn jwt(header: &Value, payload: &Value, secret: &str) -> String {
    let signed = format!("{}.{}", base64(header), base64(payload));
    let key = EncodingKey::from_secret(secret.as_bytes());
    let signature = crypto::sign(signed.as_bytes(), &key, Algorithm::HS256);
    format!("{signed}.{}", signature.expect("HS256 signs any bytes"))
}

fn hs512(payload: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS512), payload, &key).expect("a token")
}

/// One part of a token, as base64url: taken from a token that carries it as its payload.
fn base64(part: &Value) -> String {
    let key = EncodingKey::from_secret(b"any");
    let token = jsonwebtoken::encode(&Header::default(), part, &key).expect("a token");
    token.split('.').nth(1).expect("three parts").to_owned()
}
