//! Words of a process to all boards: its last one, its past of five minutes, and its end.

use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use flash_sale::base::limits;
use flash_sale::sale::board::presence::{Second, Word};

use crate::support::{TestApp, bounded, now, shared};

async fn names(app: &TestApp) -> Vec<String> {
    app.redis(&["ZRANGE", &app.keys().processes(), "0", "-1"]).await
}

/// A process tells its counts: its last word, its last second, and the time for which Redis keeps the word, in ms.
async fn tells(app: &TestApp, id: impl AsyncFn() -> String) -> (Word, Second, i64) {
    bounded("a word that Redis still has", async {
        loop {
            app.app.presence_pass().await;
            let id = id().await;
            let key = app.keys().process(&id);
            let kept_ms: i64 = app.redis(&["PTTL", &key]).await;
            let word: Option<String> = app.redis(&["GET", &key]).await;
            let second: String = app.redis(&["LINDEX", &app.keys().process_past(&id), "-1"]).await;
            if let Some(word) = word {
                let word = serde_json::from_str(&word).expect("a word");
                return (word, serde_json::from_str(&second).expect("a second"), kept_ms);
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_pass_of_presence_tells_a_word_and_keeps_the_past_of_three_hundred_seconds() {
    let clock = Clock::manual(now());
    let app = TestApp::on(shared(), &[], clock.clone()).await;
    let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).expect("a short time");
    let (heard, kept) = (ms(limits::BOARD_HEARD_MAX), ms(limits::BOARD_SILENT_KEPT));
    // Processes that have been silent for too long, and for almost as long.
    let began = clock.now().timestamp_millis();
    for (name, at) in [("gone", began - kept), ("silent", began - kept + 1)] {
        let names = app.keys().processes();
        let _: i64 = app.redis(&["ZADD", &names, &at.to_string(), name]).await;
    }
    app.app.metrics.count_claim("sold_out");
    let newest = async || names(&app).await.pop().expect("a name");
    let (word, second, word_ms) = tells(&app, newest).await;
    assert!((1..=heard).contains(&word_ms), "{word_ms} ms");
    let [silent, id] = names(&app).await.try_into().expect("two");
    assert_eq!(silent, "silent");
    let past = app.keys().process_past(&id);
    for key in [past.clone(), app.keys().processes()] {
        let kept_ms: i64 = app.redis(&["PTTL", &key]).await;
        assert!((heard + 1..=kept).contains(&kept_ms), "{key}: {kept_ms} ms");
    }
    assert_eq!((word.at_ms, word.started_ms, word.stopping), (began, began, false));
    assert_eq!((word.claims.sold_out, word.roles), (1, vec!["api".into(), "worker".into()]));
    assert_eq!((second.0, second.1, second.2, second.3), (began, word.claims, 0, 0));

    // More than is kept, of which the oldest go.
    let filled = ["RPUSH", &past].into_iter().chain(["x"; 400]).collect::<Vec<_>>();
    let _: i64 = app.redis(&filled).await;
    clock.set(clock.now() + TimeDelta::seconds(1));
    app.app.shutdown.announce();
    let (word, second, _) = tells(&app, newest).await;
    let length: i64 = app.redis(&["LLEN", &past]).await;
    assert_eq!(length, 300);
    assert_eq!((word.at_ms, word.stopping, second.0), (began + 1_000, true, began + 1_000));
    // A second later, the other one has been silent for too long.
    assert_eq!(names(&app).await, std::slice::from_ref(&id));

    app.app.presence.leave().await.expect("Redis answers");
    assert_eq!(names(&app).await, Vec::<String>::new());
    let there: i64 = app.redis(&["EXISTS", &app.keys().process(&id)]).await;
    assert_eq!(there, 0, "its word is gone at once");
}
