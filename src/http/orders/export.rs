//! Exports of orders. All of them are exported, with only one page in memory at a time.
//!
//! An order is exported as it is when its page is read. A reply that breaks off lacks the last chunk, which tells its
//! reader that orders are missing.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, TryStreamExt};
use serde_json::{Map, Value};

use super::Asked;
use crate::app::App;
use crate::base::limits;
use crate::http::auth::Integrator;
use crate::http::extract::Params;
use crate::http::problem::Problem;
use crate::order::model::Order;

/// Orders as CSV (RFC 4180).
///
/// The newest claim comes first. The first line names the fields, which are all of an order but its redemption code. A
/// text that a spreadsheet would run as a formula begins with an apostrophe.
#[utoipa::path(
    get, path = "/v1/orders.csv", operation_id = "exportOrdersAsCsv", tag = "orders", params(Asked), security(("integrator" = [])),
    responses(
        (status = 200, description = "All orders that the filter lets through", body = String, content_type = "text/csv"),
    ),
)]
pub async fn csv(
    State(app): State<Arc<App>>,
    _: Integrator,
    Params(asked): Params<Asked>,
) -> Result<Response, Problem> {
    let head = COLUMNS.to_owned() + "\r\n";
    Ok(reply(app, &asked, "text/csv; charset=utf-8; header=present", head, csv_line))
}

/// Orders, one JSON object per line.
///
/// The newest claim comes first. Redemption codes are left out.
#[utoipa::path(
    get, path = "/v1/orders.ndjson", operation_id = "exportOrders", tag = "orders", params(Asked), security(("integrator" = [])),
    responses(
        (status = 200, description = "All orders that the filter lets through", body = Order, content_type = "application/x-ndjson"),
    ),
)]
pub async fn ndjson(
    State(app): State<Arc<App>>,
    _: Integrator,
    Params(asked): Params<Asked>,
) -> Result<Response, Problem> {
    Ok(reply(app, &asked, "application/x-ndjson", String::new(), |order| {
        Value::Object(order).to_string() + "\n"
    }))
}

type Fields = Map<String, Value>;

fn reply(
    app: Arc<App>,
    asked: &Asked,
    kind: &'static str,
    head: String,
    line: fn(Fields) -> String,
) -> Response {
    let filter = asked.search().unwrap_or_default();
    // The order after which the next page begins; `None` after the last page.
    let pages = stream::try_unfold(Some(None), move |behind| {
        let app = app.clone();
        async move {
            let Some(behind) = behind else { return Ok(None) };
            let page = app.orders.export(&filter, behind, limits::EXPORT_PAGE).await?;
            let lines: String = page.orders.iter().map(|order| line(fields(order))).collect();
            Ok::<_, sqlx::Error>(Some((Bytes::from(lines), page.next.map(Some))))
        }
    });
    let pages = pages.inspect_err(|error| tracing::warn!(%error, "an export breaks off"));
    let head = stream::iter((!head.is_empty()).then(|| Ok(Bytes::from(head))));
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(stream::StreamExt::chain(head, pages)))
        .into_response()
}

fn fields(order: &Order) -> Fields {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(order) else {
        unreachable!("an order is an object");
    };
    fields.remove("redemption_code");
    fields
}

const COLUMNS: &str = "order_id,coupon_id,user_id,status,pay_method,pay_cents,currency,pay_by,claimed_at,paid_at,redeemed_at,cancelled_at,cancel_reason,expired_at,refunding_at,refunded_at";

fn csv_line(order: Fields) -> String {
    let cells: Vec<String> = COLUMNS.split(',').map(|column| csv_cell(&order[column])).collect();
    cells.join(",") + "\r\n"
}

/// Excel, LibreOffice and Google Sheets run a cell that begins like a formula, even if it is quoted.
fn csv_cell(value: &Value) -> String {
    let text = match value {
        Value::Null => return String::new(),
        Value::String(text) => text,
        other => return other.to_string(),
    };
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    let apostrophe = if is_formula { "'" } else { "" };
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{apostrophe}{}\"", text.replace('"', "\"\"")),
        false => format!("{apostrophe}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_text_whatever_is_in_it() {
        for (text, cell) in [
            ("plain", "plain"),
            ("=1+1", "'=1+1"),
            ("@x,\"y\"", "\"'@x,\"\"y\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
            ("\tx", "'\tx"),
            ("", ""),
        ] {
            assert_eq!(csv_cell(&text.into()), cell);
        }
        assert_eq!(csv_cell(&Value::Null), "");
        assert_eq!(csv_cell(&(-5).into()), "-5");
    }
}
