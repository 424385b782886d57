//! The API of one process, older or present; each reply has to be one that the process itself documents.

use flash_sale::kit::signature::Signatures;
use private_servers::testing::bounded;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::support::{Reply, SECRET, admin_token, token};

/// Price of each coupon, in minor units.
pub const PAY_CENTS: i64 = 1;

/// The API of one process.
pub struct Api {
    url: String,
    client: reqwest::Client,
    /// Its `/openapi.json`.
    document: Value,
}

impl Api {
    /// The API at this URL.
    pub async fn at(url: &str, client: &reqwest::Client) -> Self {
        let document = client.get(format!("{url}/openapi.json")).send().await;
        let document = document.expect("the document is served").json().await;
        let document = document.expect("the document is JSON");
        Self { url: url.to_owned(), client: client.clone(), document }
    }

    /// `user` claims `coupon`.
    pub async fn claim(&self, user: i64, coupon: i64) -> Reply {
        let path = format!("/v1/coupons/{coupon}/claims");
        self.send(
            self.client.post(self.url.clone() + &path).bearer_auth(token(user)),
            "POST",
            &path,
        )
        .await
    }

    /// The claim of `user`, as `claims/me` has it.
    pub async fn my_claim(&self, user: i64, coupon: i64) -> Reply {
        self.get(&format!("/v1/coupons/{coupon}/claims/me"), token(user)).await
    }

    /// The order of `user`.
    pub async fn order(&self, user: i64, order: i64) -> Reply {
        self.get(&format!("/v1/orders/{order}"), token(user)).await
    }

    /// `user` pays, cancels or refunds an order.
    pub async fn act(&self, user: i64, order: i64, action: &str) -> Reply {
        let path = format!("/v1/orders/{order}/{action}");
        let request = self.client.post(self.url.clone() + &path).bearer_auth(token(user));
        let request = match action {
            "pay" => request.json(&json!({"method": "balance"})),
            _ => request,
        };
        self.send(request, "POST", &path).await
    }

    /// A gateway confirms that `order` is paid.
    pub async fn confirm_payment(&self, order: i64) -> Reply {
        self.confirm(&json!({
            "kind": "payment", "payment_id": payment_id(order), "order_id": order.to_string(),
            "method": 3, "amount_cents": PAY_CENTS,
        }))
        .await
    }

    /// A gateway confirms that the money of `order` is back.
    pub async fn confirm_refund(&self, order: i64) -> Reply {
        self.confirm(&json!({"kind": "refund", "payment_id": payment_id(order)})).await
    }

    async fn confirm(&self, notice: &Value) -> Reply {
        let body = notice.to_string();
        let signature = Signatures::new(&SecretString::from(SECRET)).sign(body.as_bytes());
        let path = "/v1/payments/callback";
        let request = self.client.post(self.url.clone() + path).body(body);
        self.send(request.header("x-signature", signature), "POST", path).await
    }

    /// An administrator creates a coupon. Returns its id.
    pub async fn create(&self, coupon: &Value) -> i64 {
        let reply = self.administrate("/v1/coupons", Some(coupon)).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.text("id").parse().expect("a coupon id")
    }

    /// An administrator posts to this path.
    pub async fn administrate(&self, path: &str, body: Option<&Value>) -> Reply {
        let request = self.client.post(self.url.clone() + path).bearer_auth(admin_token());
        let request = body.into_iter().fold(request, reqwest::RequestBuilder::json);
        self.send(request, "POST", path).await
    }

    /// Units of a sale: the total, and those that are left.
    pub async fn units(&self, coupon: i64) -> (i64, i64) {
        let reply = self.get(&format!("/v1/coupons/{coupon}"), String::new()).await;
        let sale = &reply.body["sale"];
        let units = |name: &str| sale[name].as_i64().unwrap_or_else(|| panic!("{reply:?}"));
        (units("total"), units("left"))
    }

    /// Number of open dead letters, at most 100.
    pub async fn dead_letters(&self) -> usize {
        let reply = self.get("/v1/dead-letters?limit=100", admin_token()).await;
        reply.body["dead_letters"].as_array().unwrap_or_else(|| panic!("{reply:?}")).len()
    }

    async fn get(&self, path: &str, token: String) -> Reply {
        let request = self.client.get(self.url.clone() + path);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        self.send(request, "GET", path).await
    }

    async fn send(&self, request: reqwest::RequestBuilder, method: &str, path: &str) -> Reply {
        let response = bounded("a reply", request.send()).await.expect("the process answers");
        bounded("its body", Reply::read(response, method, path, &self.document)).await
    }
}

/// The gateway's id of the payment for an order.
fn payment_id(order: i64) -> String {
    format!("gateway-{order}")
}
