//! What jobs have put aside, and what waits for a person.

use serde_json::Value;

use super::TestApp;

impl TestApp {
    /// What is postponed, one line each: job, item, and how often it has failed.
    pub async fn postponed(&self) -> Vec<String> {
        let query = "SELECT concat_ws(' ', job, item, tries) FROM postponed ORDER BY job, item";
        sqlx::query_scalar(query).fetch_all(&self.app.stores.pool).await.expect("Postgres answers")
    }

    /// What waits for a person, of this kind, newest first.
    pub async fn waiting(&self, kind: &str) -> Vec<Value> {
        let path = format!("/v1/operations?kind={kind}&limit=100");
        let reply = self.get(&path, &self.admin_token()).await;
        reply.body["items"].as_array().unwrap_or_else(|| panic!("{reply:?}")).clone()
    }

    /// The pauses of everything that is postponed are over.
    pub async fn let_postponed_be_due(&self) {
        self.execute("UPDATE postponed SET next_try_at = now()").await;
    }

    /// However long the next steps take, nothing that is postponed now becomes due by itself.
    pub async fn let_postponed_wait(&self) {
        self.execute("UPDATE postponed SET next_try_at = now() + interval '1 hour'").await;
    }

    /// The number behind a line of the page of metrics.
    pub async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics", "").await;
        let lines = page.body.as_str().expect("a page").lines();
        let found = lines.filter_map(|line| line.rsplit_once(' ')).find(|(is, _)| *is == name);
        let (_, number) = found.unwrap_or_else(|| panic!("{name} isn't on the page"));
        number.parse().expect("a number")
    }
}
