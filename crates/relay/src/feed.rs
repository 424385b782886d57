//! The feed of events: `GET /v1/events`.

use anyhow::bail;
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;

use crate::event::CloudEvent;
use crate::lease::Cursor;
use crate::settings::{Secret, Settings};

pub struct Feed {
    client: Client,
    url: Url,
    token: Secret,
}

impl Feed {
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let mut url = settings.url.clone();
        url.set_path(&format!("{}/v1/events", url.path().trim_end_matches('/')));
        Ok(Self { client: Client::builder().build()?, url, token: settings.token.clone() })
    }

    /// The events behind the cursor, oldest first. Waits up to 10 s for the first. The inner error is one that asking
    /// again doesn't cure.
    pub async fn read(&self, after: &Cursor) -> anyhow::Result<Result<Vec<CloudEvent>, String>> {
        let request = self.client.get(self.url.clone()).query(&[("limit", "100")]);
        let request = request.query(&after.as_ref().map(|id| [("after", id)]));
        let request = request.bearer_auth(self.token.text()?).header("prefer", "wait=10");
        let reply = request.send().await?;
        let status = reply.status();
        if status == StatusCode::OK {
            return Ok(Ok(reply.json().await?));
        }
        let detail = &reply.json::<Value>().await.unwrap_or_default()["detail"];
        let cure = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "make a token with `flash-sale token --user 1 --scope integrator`, and give it as FLASH_SALE_RELAY_TOKEN"
            }
            StatusCode::GONE => {
                "events are missing; start once with --from-oldest, and let the consumers read an export"
            }
            _ if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS => {
                "--url has to be the address of a service that runs with --events"
            }
            _ => bail!("{status}: {detail}"),
        };
        Ok(Err(format!("the service refuses to tell events: {status}: {detail}; {cure}")))
    }
}
