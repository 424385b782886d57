//! The board as a stream: the past once, as soon as it is known, and each board behind it.

use axum::body::BodyDataStream;
use flash_sale::http::{self, Door};
use futures_util::StreamExt;

use super::{CLIENT, door, request};
use crate::support::{TestApp, admin_token, bounded, http_state, proxy_before};

/// Names of events, as they come.
struct Names {
    stream: BodyDataStream,
    text: String,
}

impl Names {
    async fn of(door: &Door) -> Self {
        let asked = request("GET", "/v1/board/live", &admin_token());
        let reply = door.answer(CLIENT.parse().expect("an address"), asked, || false);
        let reply = bounded("the reply", reply).await;
        assert_eq!(reply.status(), 200);
        Self { stream: reply.into_body().into_data_stream(), text: String::new() }
    }

    async fn next(&mut self) -> String {
        bounded("an event", async {
            loop {
                if let Some((event, rest)) = self.text.split_once("\n\n") {
                    let name = event.lines().find_map(|line| line.strip_prefix("event:"));
                    let name = name.expect("an event has a name").trim().to_owned();
                    self.text = rest.to_owned();
                    return name;
                }
                let bytes = self.stream.next().await.expect("the stream goes on").expect("bytes");
                self.text.push_str(std::str::from_utf8(&bytes).expect("UTF-8"));
            }
        })
        .await
    }

    async fn come_to(&mut self, name: &str) {
        bounded(name, async { while self.next().await != name {} }).await;
    }
}

#[tokio::test]
async fn the_past_comes_once_and_then_boards_alone() {
    let app = TestApp::start().await;
    let door = door(&app, |_| {});
    let mut names = Names::of(&door).await;
    // As a rule the past comes first. Redis may be late on a busy machine.
    names.come_to("past").await;
    for _ in 0..4 {
        assert_eq!(names.next().await, "board");
    }
}

/// Boards come without the past while Redis tells none, and the past before the first board that knows it.
#[tokio::test]
async fn a_past_that_is_known_late_comes_all_the_same_and_once() {
    let app = TestApp::start().await;
    let proxy = proxy_before(&app, "ZRANGE").await;
    let watched = app.another_instance_behind(&proxy).await;
    proxy.cut().await;
    let door = http::api(&http_state(watched, &app.config), true);
    let mut names = Names::of(&door).await;
    for _ in 0..2 {
        assert_eq!(names.next().await, "board", "Redis has told nothing");
    }
    proxy.heal();
    names.come_to("past").await;
    for _ in 0..3 {
        assert_eq!(names.next().await, "board");
    }
}
