//! The operator: sales are created, edited, paused and restocked over HTTP.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use chrono::TimeDelta;
use flash_sale::base::clock::Clock;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::http::{Answer, Http};
use crate::facts::Change;
use crate::plan::{APIS, Deed, DeedAt, Plan};
use crate::world::Installation;

/// Pause before the operator asks again.
const RETRY: Duration = Duration::from_millis(150);
/// Times that the operator asks again.
const RETRIES: usize = 200;

/// A sale that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    pub coupon: i64,
    /// Units on offer at first.
    pub total: i64,
}

/// Changes sales.
pub struct Operator {
    installation: Arc<Installation>,
    http: Http,
    changes: Vec<Change>,
}

impl Operator {
    /// An operator who has changed nothing yet.
    pub fn new(installation: &Arc<Installation>, http: &Http) -> Self {
        Self { installation: installation.clone(), http: http.clone(), changes: Vec::new() }
    }

    /// Creates a sale that is open, an hour's step of any clock included.
    pub async fn create(&self, total: i64) -> anyhow::Result<Created> {
        let now = Clock::System.now();
        let sale = json!({
            "total": total, "opens_at": now - TimeDelta::hours(3), "closes_at": now + TimeDelta::days(2),
        });
        let body = json!({
            "kind": "flash", "title": "Explored", "pay_cents": 1, "value_cents": 2, "sale": sale,
        });
        let answer = self.send(Method::POST, "/v1/coupons", Some(&body)).await?;
        let coupon = answer.body["id"].as_str().and_then(|id| id.parse().ok());
        match (answer.status, coupon) {
            (201, Some(coupon)) => Ok(Created { coupon, total }),
            _ => bail!("a coupon could not be created: {} {}", answer.status, answer.body),
        }
    }

    /// Does the deeds of a plan, each at its time, and returns the changes of totals that Redis was told.
    pub async fn work(mut self, plan: Plan, sales: Vec<Created>) -> anyhow::Result<Vec<Change>> {
        for DeedAt { at_ms, sale, deed } in plan.deeds {
            self.installation.time.reaches(at_ms).await;
            let coupon = sales[sale].coupon;
            match deed {
                Deed::Restock(units) => {
                    let body = json!({"key": format!("{at_ms}-{units}"), "units": units});
                    self.change(coupon, Method::POST, "/restock", Some(body)).await?;
                }
                Deed::Raise(units) => {
                    let now = self.total(coupon).await?;
                    let body = json!({"sale": {"total": now + units}});
                    self.change(coupon, Method::PATCH, "", Some(body)).await?;
                }
                Deed::Title => {
                    let body = json!({"title": format!("Explored at {at_ms}")});
                    self.change(coupon, Method::PATCH, "", Some(body)).await?;
                }
                Deed::Pause(ms) => {
                    self.change(coupon, Method::POST, "/pause", None).await?;
                    sleep(Duration::from_millis(u64::from(ms))).await;
                    self.change(coupon, Method::POST, "/resume", None).await?;
                }
            }
        }
        Ok(self.changes)
    }

    /// Has all open dead letters tried again.
    pub async fn retry_letters(&self) -> anyhow::Result<()> {
        let answer = self.send(Method::POST, "/v1/dead-letters/retry", Some(&json!({}))).await?;
        match answer.status {
            200 => Ok(()),
            status => bail!("dead letters can't be tried again: {status} {}", answer.body),
        }
    }

    async fn total(&self, coupon: i64) -> anyhow::Result<i64> {
        let path = format!("/v1/coupons/{coupon}");
        let answer = self.send(Method::GET, &path, None).await?;
        Ok(answer.body["sale"]["total"].as_i64().unwrap_or(0))
    }

    async fn change(
        &mut self,
        coupon: i64,
        method: Method,
        action: &str,
        body: Option<Value>,
    ) -> anyhow::Result<()> {
        let path = format!("/v1/coupons/{coupon}{action}");
        let answer = self.send(method, &path, body.as_ref()).await?;
        // 202: decided, and Redis is told later.
        if answer.status == 200
            && let Some(total) = answer.body["sale"]["total"].as_i64()
        {
            let applied = self.installation.time.now();
            self.changes.push(Change { coupon, total, applied });
        }
        Ok(())
    }

    /// Sends a request until its outcome is known.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let token = self.http.signer.admin();
        for door in (0..APIS).cycle().take(RETRIES) {
            if let Some((url, _)) = self.installation.doors()[door].address() {
                let sent = self.http.send(method.clone(), url + path, &token, body).await;
                if let Some(answer) = sent.filter(|answer| answer.status < 500) {
                    return Ok(answer);
                }
            }
            sleep(RETRY).await;
        }
        bail!("{method} {path} was never answered")
    }
}
