//! The page of a sale as it is sent: it has title, price and state before any script runs, for slow connections and for
//! previews of links. The page's script then replaces them.

use chrono::{DateTime, Utc};
use serde::Deserialize;

/// Currencies without a minor unit, and those whose minor unit is a thousandth (ISO 4217).
const WHOLE: &str = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF";
const THOUSANDTHS: &str = "BHD IQD JOD KWD LYD OMR TND";

/// What the page shows of a coupon, read from the JSON of the API.
#[derive(Deserialize)]
struct Shown {
    title: String,
    sub_title: String,
    pay_cents: u64,
    currency: String,
    state: String,
    sale: Sale,
}

#[derive(Deserialize)]
struct Sale {
    left: Option<i64>,
    opens_at: DateTime<Utc>,
    closes_at: DateTime<Utc>,
}

/// The page with this coupon filled in; `None` for a coupon without a sale.
pub fn painted(page: &str, coupon: &[u8], now: DateTime<Utc>, in_chinese: bool) -> Option<String> {
    let coupon: Shown = serde_json::from_slice(coupon).ok()?;
    let [title, sub_title] = [&coupon.title, &coupon.sub_title].map(|text| escaped(text));
    let price = price(coupon.pay_cents, &coupon.currency);
    let state = state(&coupon, now, in_chinese);
    let head = format!(
        "<title>{title} · flash-sale</title>\n  <meta property=\"og:title\" content=\"{title}\">\n  \
         <meta property=\"og:description\" content=\"{price} · {state} · {sub_title}\">"
    );
    let body = format!(
        "<div id=\"page\"><header><a class=\"brand\" href=\"/\">flash-sale</a></header><main><section class=\"card\">\
         <div class=\"picture\"></div><h1>{title}</h1><p class=\"sub\">{sub_title}</p><p class=\"price\"><b>{price}</b></p>\
         <p class=\"slot\"><button class=\"go\" type=\"button\" aria-disabled=\"true\">{state}</button></p></section></main></div>"
    );
    let page = page.replace("<title>flash-sale</title>", &head);
    Some(page.replace("<div id=\"page\"></div>", &body))
}

fn state(coupon: &Shown, now: DateTime<Utc>, in_chinese: bool) -> String {
    let Sale { left, opens_at, closes_at } = coupon.sale;
    let (english, chinese) = if coupon.state == "ended" || now >= closes_at {
        ("Sale ended", "活动已结束")
    } else if coupon.state == "paused" {
        ("Paused", "已暂停")
    } else if now < opens_at {
        let opens = if in_chinese { "开始时间" } else { "Opens" };
        return format!("{opens} {}", opens_at.format("%Y-%m-%d %H:%M UTC"));
    } else if left == Some(0) {
        ("Sold out", "已抢光")
    } else {
        ("On sale now", "正在抢购")
    };
    (if in_chinese { chinese } else { english }).to_owned()
}

/// A price in a form that no reader can mistake. The script replaces it with the form of the reader's country.
fn price(minor: u64, currency: &str) -> String {
    let decimals = if WHOLE.contains(currency) {
        0
    } else if THOUSANDTHS.contains(currency) {
        3
    } else {
        2
    };
    let digits = format!("{minor:0>width$}", width = decimals + 1);
    let (whole, part) = digits.split_at(digits.len() - decimals);
    let point = if part.is_empty() { "" } else { "." };
    format!("{whole}{point}{part} {currency}")
}

/// A text as HTML, in an element or an attribute.
fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PAGE: &str = "<title>flash-sale</title><div id=\"page\"></div>";

    fn painted_with(change: &Value, in_chinese: bool) -> String {
        let mut coupon = json!({
            "title": "Tea", "sub_title": "", "pay_cents": 5, "currency": "EUR", "state": "active",
            "sale": {"total": 2, "left": 1, "opens_at": "2026-01-01T10:00:00Z", "closes_at": "2026-01-02T00:00:00Z"},
        });
        let parts = change.as_object().expect("members");
        parts.iter().for_each(|(name, value)| coupon[name] = value.clone());
        let now = "2026-01-01T12:00:00Z".parse().expect("a time");
        painted(PAGE, coupon.to_string().as_bytes(), now, in_chinese).expect("it has a sale")
    }

    #[test]
    fn a_page_tells_title_price_and_state_and_takes_no_markup() {
        let sale = |opens: &str, left: i64| json!({"left": left, "opens_at": opens, "closes_at": "2026-01-02T00:00:00Z"});
        let began = "2026-01-01T10:00:00Z";
        for (change, expected) in [
            (json!({}), "<b>0.05 EUR</b>"),
            (json!({"pay_cents": 1_980, "currency": "JPY"}), "<b>1980 JPY</b>"),
            (json!({"pay_cents": 1_980, "currency": "KWD"}), "<b>1.980 KWD</b>"),
            (json!({"title": "<i>\"&"}), "<h1>&lt;i&gt;&quot;&amp;</h1>"),
            (json!({}), ">On sale now</button>"),
            (json!({"state": "paused"}), ">Paused</button>"),
            (json!({"state": "ended"}), ">Sale ended</button>"),
            (json!({"sale": sale(began, 0)}), ">Sold out</button>"),
            (
                json!({"sale": sale("2026-01-01T13:30:00Z", 1)}),
                ">Opens 2026-01-01 13:30 UTC</button>",
            ),
        ] {
            let page = painted_with(&change, false);
            assert!(page.contains(expected), "{change}: {page}");
        }
        assert!(painted_with(&json!({}), true).contains("正在抢购"));
    }

    #[test]
    fn a_coupon_without_a_sale_has_the_page_of_any() {
        let now = "2026-01-01T12:00:00Z".parse().expect("a time");
        let regular = json!({"title": "", "sub_title": "", "pay_cents": 5, "currency": "EUR", "state": "active"});
        assert_eq!(painted(PAGE, regular.to_string().as_bytes(), now, false), None);
    }
}
