//! Sessions of Postgres that answer and can't do their work: they are closed, and the cause is named.

use std::str::FromStr;

use private_servers::testing::Finished;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection};
use uuid::Uuid;

use crate::support::process::{Process, flash_sale, run, try_claim};
use crate::support::{TestApp, eventually};

/// A session that settings of the app's database don't reach.
async fn beside(app: &TestApp) -> PgConnection {
    let url = app.database_url();
    let options = PgConnectOptions::from_str(&url).expect("a valid URL").database("postgres");
    options.connect().await.expect("Postgres answers")
}

async fn execute(connection: &mut PgConnection, statement: &str) {
    let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
    statement.execute(connection).await.expect("Postgres does it");
}

async fn name_of_database(app: &TestApp) -> String {
    let name = sqlx::query_scalar("SELECT current_database()::text");
    name.fetch_one(&app.app.stores.pool).await.expect("Postgres answers")
}

/// A setting for the sessions of this database that begin from now on, and the end of all others.
async fn set_for_all(beside: &mut PgConnection, name: &str, setting: &str) {
    let end = format!(
        "ALTER DATABASE {name} {setting};
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    );
    execute(beside, &end).await;
}

async fn postgres_is(url: &str) -> String {
    let reply = reqwest::get(format!("{url}/readyz")).await.expect("it runs");
    let body: serde_json::Value = reply.json().await.expect("JSON");
    body["postgres"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_read_only_are_closed_and_named() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    let service = Process::serve(&app, &[]);
    let url = service.url().await;
    let mut beside = beside(&app).await;
    let name = name_of_database(&app).await;
    set_for_all(&mut beside, &name, "SET default_transaction_read_only = on").await;
    eventually("the cause is named", async || {
        postgres_is(&url).await.contains("default_transaction_read_only is on")
    })
    .await;
    assert_eq!(try_claim(&app, &url, 1, coupon).await.expect("it runs").0, 202);
    execute(&mut beside, &format!("ALTER DATABASE {name} RESET ALL")).await;
    // Sessions of this process were ended, too.
    eventually("the order is written", async || {
        let rows = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM orders");
        rows.fetch_one(&app.app.stores.pool).await.is_ok_and(|rows| rows == 1)
    })
    .await;
    eventually("Postgres is as it should be", async || postgres_is(&url).await == "ok").await;
}

#[tokio::test]
async fn what_the_code_relies_on_is_set_in_each_session() {
    let app = TestApp::start().await;
    let mut beside = beside(&app).await;
    let name = name_of_database(&app).await;
    for setting in [
        "default_transaction_isolation = serializable",
        "timezone = 'Asia/Shanghai'",
        "search_path = 'elsewhere'",
        "standard_conforming_strings = off",
        "statement_timeout = 0",
        "lock_timeout = 0",
        "idle_in_transaction_session_timeout = 0",
    ] {
        execute(&mut beside, &format!("ALTER DATABASE {name} SET {setting}")).await;
    }
    set_for_all(&mut beside, &name, "SET client_encoding = 'LATIN1'").await;
    let found = "SELECT array_to_string(ARRAY[
        current_setting('transaction_isolation'), current_setting('timezone'),
        current_setting('search_path'), current_setting('standard_conforming_strings'),
        current_setting('statement_timeout'), current_setting('lock_timeout'),
        current_setting('idle_in_transaction_session_timeout'),
        current_setting('client_encoding')], ' ')";
    eventually("the new sessions have them", async || {
        let found: sqlx::Result<String> =
            sqlx::query_scalar(found).fetch_one(&app.app.stores.pool).await;
        found.is_ok_and(|found| found == "read committed UTC public on 10s 5s 10s UTF8")
    })
    .await;
}

/// The arguments for the stores of the app, with another value behind this flag.
fn replaced(app: &TestApp, flag: &str, value: &str) -> Vec<String> {
    let mut words = app.store_arguments();
    let at = words.iter().position(|word| word == flag).expect("it is there");
    value.clone_into(&mut words[at + 1]);
    words
}

/// `flash-sale COMMAND` on this database.
async fn on_database(app: &TestApp, url: &str, command: &[&str]) -> Finished {
    let mut process = flash_sale(command);
    process.args(replaced(app, "--database-url", url));
    run(process).await
}

#[tokio::test]
async fn a_database_of_another_encoding_is_refused() {
    let app = TestApp::start().await;
    let mut beside = beside(&app).await;
    let name = format!("l{}", Uuid::new_v4().simple());
    let made = format!(
        "CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    );
    execute(&mut beside, &made).await;
    let url = app.database_url().replace(&name_of_database(&app).await, &name);
    for (command, code) in [(["migrate", "--log=info"], 1), (["doctor", "--log=info"], 5)] {
        let refused = on_database(&app, &url, &command).await;
        assert_eq!(refused.code, Some(code), "{refused:?}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        assert!(said.contains("the encoding LATIN1") && said.contains("UTF8"), "{said}");
    }
    execute(&mut beside, &format!("DROP DATABASE {name}")).await;
}

#[tokio::test]
async fn a_transaction_that_was_rolled_back_for_another_is_repeated() {
    let app = TestApp::start().await;
    let coupon = app.create_flash(10).await;
    for (user, state) in [(1, "40P01"), (2, "40001")] {
        assert_eq!(app.claim(user, coupon).await.status, 202);
        app.write_orders().await;
        let order = app.number(&format!("SELECT id FROM orders WHERE user_id = {user}")).await;
        // A sequence counts on where a transaction is rolled back.
        app.execute(&format!(
            "CREATE SEQUENCE tries_{user};
             CREATE FUNCTION roll_back_{user}() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN IF nextval('tries_{user}') < 4 THEN
                 RAISE EXCEPTION 'in favour of another' USING ERRCODE = '{state}'; END IF;
             RETURN NEW; END $$;
             CREATE TRIGGER roll_back_{user} BEFORE UPDATE ON orders FOR EACH ROW
             WHEN (NEW.user_id = {user}) EXECUTE FUNCTION roll_back_{user}()"
        ))
        .await;
        let path = format!("/v1/orders/{order}/pay");
        let paid = app.post(&path, &app.token(user), &json!({"method": "wechat"})).await;
        assert_eq!(paid.status, 200, "{state}: {paid:?}");
        assert_eq!(app.number(&format!("SELECT last_value FROM tries_{user}")).await, 4);
    }
}

#[tokio::test]
async fn a_value_that_postgres_will_never_take_is_no_reason_to_ask_again() {
    let app = TestApp::start().await;
    app.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION 'no such letter' USING ERRCODE = '22P05'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON coupons FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let new = json!({"kind": "regular", "title": "t", "pay_cents": 1, "value_cents": 2});
    let refused = app.post("/v1/coupons", &app.admin_token(), &new).await;
    assert_eq!((refused.status, refused.text("code")), (500, "internal"), "{refused:?}");
}
