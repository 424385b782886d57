//! What passes have put aside.

use super::TestApp;

impl TestApp {
    /// What is postponed, one line each: pass, item, and how often it has failed.
    pub async fn postponed(&self) -> Vec<String> {
        let query = "SELECT concat_ws(' ', pass, item, tries) FROM postponed ORDER BY pass, item";
        sqlx::query_scalar(query).fetch_all(&self.app.stores.pool).await.expect("Postgres answers")
    }

    /// The pauses of everything that is postponed are over.
    pub async fn let_postponed_be_due(&self) {
        self.execute("UPDATE postponed SET next_try_at = now()").await;
    }

    /// However long the next steps take, nothing that is postponed now becomes due by itself.
    pub async fn let_postponed_wait(&self) {
        self.execute("UPDATE postponed SET next_try_at = now() + interval '1 hour'").await;
    }

    /// However long a pass takes, nothing that it postpones from now on becomes due within it.
    pub async fn let_newly_postponed_wait(&self) {
        self.execute(
            "CREATE FUNCTION wait_long() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN NEW.next_try_at := now() + interval '1 hour'; RETURN NEW; END $$;
             CREATE TRIGGER long BEFORE INSERT ON postponed FOR EACH ROW EXECUTE FUNCTION wait_long()",
        )
        .await;
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
