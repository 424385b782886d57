//! A page for each kind of problem, under the address that is the `type` of its bodies; and one that lists them all.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::get;

use super::Problem;
use super::kinds::{GROUPS, Kind, PAGES};

/// Path of the list.
const LIST: &str = "/docs/problems";

/// The pages and their list.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/docs/problems/{code}", get(page)).route(LIST, get(list))
}

/// The page of a kind.
async fn page(Path(code): Path<String>) -> Result<Html<String>, Problem> {
    let detail = "there is no kind of problem with this code; /docs/problems lists them all";
    let kind = Kind::of(&code).ok_or_else(|| Problem::not_found("not_found", detail))?;
    let Kind { code, status, title, meaning, remedy, .. } = kind;
    let reason = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
    let reason = reason.unwrap_or_default();
    let (meaning, remedy) = (html(meaning), html(remedy));
    let body = format!(
        "<h1>{title}</h1>\n<p>Code <code>{code}</code>, status {status} {reason}.</p>\n\
         <h2>Meaning</h2>\n<p>{meaning}</p>\n<h2>What a client does</h2>\n<p>{remedy}</p>\n\
         <p><a href=\"{LIST}\">All problems</a>, <a href=\"/docs/\">all operations</a></p>\n"
    );
    Ok(document(title, &body))
}

/// The list of all kinds.
async fn list() -> Html<String> {
    let mut body = String::from("<h1>Problems</h1>\n");
    for group in GROUPS {
        body += &format!("<h2>{}</h2>\n<dl>\n", group.name);
        for Kind { code, title, .. } in group.kinds {
            body += &format!(
                "<dt><a href=\"{PAGES}{code}\"><code>{code}</code></a></dt><dd>{title}</dd>\n"
            );
        }
        body += "</dl>\n";
    }
    document("Problems", &body)
}

fn document(title: &str, body: &str) -> Html<String> {
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} - flash-sale</title>\n{body}</html>\n"
    ))
}

/// The text with its backticks as code.
fn html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let parts = text.split('`').enumerate();
    parts
        .map(
            |(at, part)| if at % 2 == 0 { part.to_owned() } else { format!("<code>{part}</code>") },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use private_servers::testing::bound_this_test;

    use super::*;

    #[test]
    fn code_is_marked_and_angles_are_escaped() {
        assert_eq!(html("a < `b` & c"), "a &lt; <code>b</code> &amp; c");
        assert_eq!(html("`a` > `b`"), "<code>a</code> &gt; <code>b</code>");
    }

    #[tokio::test]
    async fn the_list_has_each_group_with_its_kinds() {
        bound_this_test();
        let Html(page) = list().await;
        let mut expected = String::from("<h1>Problems</h1>\n");
        for group in GROUPS {
            let kinds = group.kinds.iter().map(|Kind { code, title, .. }| {
                format!("<dt><a href=\"/docs/problems/{code}\"><code>{code}</code></a></dt><dd>{title}</dd>\n")
            });
            expected +=
                &format!("<h2>{}</h2>\n<dl>\n{}</dl>\n", group.name, kinds.collect::<String>());
        }
        assert!(page.contains(&expected), "{page}");
        assert!(page.ends_with(&format!("{expected}</html>\n")), "{page}");
    }
}
