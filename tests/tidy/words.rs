//! `kit` and `base` have never heard of what is sold.

use std::collections::BTreeSet;

use super::source::{Rust, assert_complaints, no_complaints, read, rust};

/// Words of what is sold; `order` is one in code and messages, but also ordinary English.
const SOLD: &[&str] = &[
    "buyer",
    "buyers",
    "claim",
    "claimed",
    "claiming",
    "claims",
    "coupon",
    "coupons",
    "orders",
    "purchase",
    "redeemed",
    "refund",
    "refunded",
    "refunding",
    "refunds",
    "sale",
    "sales",
    "sold",
    "stock",
    "unpaid",
];

/// Where such a word means something else: file, word, what it means there.
const EXCUSED: &[(&str, &str, &str)] = &[
    ("src/kit/mod.rs", "coupon", "says what `kit` has never heard of"),
    ("src/base/mod.rs", "sold", "says what `base` doesn't know"),
    ("src/kit/jwt/mod.rs", "claims", "what the crate calls the contents of a token"),
];

/// Names in `base` that are values for the business: settings, limits and metrics. They may be called
/// after what they bound or count, but they take no type of it.
const NAMED_AFTER_BUSINESS: &[&str] =
    &["src/base/config.rs", "src/base/limits.rs", "src/base/telemetry.rs"];

#[test]
fn kit_and_base_speak_of_nothing_that_is_sold() {
    let files = rust(&["src/kit/", "src/base/", "crates/redisson-locks/src/"]);
    no_complaints(files.iter().flat_map(words_of_the_business).collect());
}

/// Packages that know nothing of the service, not even its name.
const STRANGERS: &[&str] = &["crates/private-servers/"];

#[test]
fn crates_for_strangers_know_nothing_of_the_service() {
    let mut complaints = Vec::new();
    for file in super::source::files() {
        let is_strange = STRANGERS.iter().any(|start| file.path.starts_with(start));
        // Licences have an extension of none, and words of their own.
        if !is_strange || !file.path.contains('.') {
            continue;
        }
        let file = Rust::new(&file.path, &file.text);
        complaints.extend(words_of_the_business(&file));
        complaints.extend(names_of_the_service(&file));
    }
    no_complaints(complaints);
}

fn names_of_the_service(file: &Rust) -> Vec<String> {
    let text = file.text.to_ascii_lowercase().replace('_', "-");
    let found = text.match_indices("flash-sale");
    let complaint = |(at, _)| format!("{}: strangers know no flash-sale", file.place(at));
    found.map(complaint).collect()
}

#[test]
fn the_checker_hears_the_name_of_the_service() {
    let file = Rust::new("crates/a/src/lib.rs", "//! x\nconst A: &str = \"FLASH_SALE_X\";");
    assert_complaints(&names_of_the_service(&file), &["lib.rs:2: strangers"]);
}

#[test]
fn every_excuse_is_needed() {
    for (path, word, _) in EXCUSED {
        let there = words(&read(path).text).any(|(_, found)| found == *word);
        assert!(there, "{path} doesn't say `{word}` any more: take it off EXCUSED");
    }
}

fn words_of_the_business(file: &Rust) -> Vec<String> {
    let mut found: BTreeSet<(usize, String)> = BTreeSet::new();
    if NAMED_AFTER_BUSINESS.contains(&file.path.as_str()) {
        let types = names(&file.code).filter(|(_, name)| name.starts_with(char::is_uppercase));
        let types = types.filter(|(_, name)| name.contains(char::is_lowercase));
        for (at, name) in types {
            let of_business = |(_, word): (usize, String)| is_sold(&word) || word == "order";
            if words(name).any(of_business) {
                found.insert((at, name.to_owned()));
            }
        }
    } else {
        found.extend(words(&file.text).filter(|(_, word)| is_sold(word)));
        let texts = file
            .strings
            .iter()
            .flat_map(|(at, text)| words(text).map(move |(offset, word)| (at + 1 + offset, word)));
        found.extend(words(&file.code).chain(texts).filter(|(_, word)| word == "order"));
    }
    let excused =
        |word: &str| EXCUSED.iter().any(|(path, of, _)| file.path == *path && word == *of);
    let found = found.iter().filter(|(_, word)| !excused(word));
    let complaint = |(at, word): &(usize, String)| {
        let place = file.place(*at);
        format!(
            "{place}: `{word}` is a word of the business; say it in general terms, or move it to `sale`"
        )
    };
    found.map(complaint).collect()
}

fn is_sold(word: &str) -> bool {
    SOLD.contains(&word)
}

/// Names as they stand in code.
fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let parts = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    parts.map(|part| (part.as_ptr() as usize - text.as_ptr() as usize, part))
}

/// Words in lower case; `OrderId`, `order_id` and `ORDER_ID` are two each. The product's name is none.
fn words(text: &str) -> impl Iterator<Item = (usize, String)> {
    let plain = text
        .to_ascii_lowercase()
        .replace("flash-sale", "product-is")
        .replace("flash_sale", "product_is");
    let mut words = Vec::new();
    let mut word = String::new();
    let mut last = ' ';
    for ((at, c), plain) in text.char_indices().zip(plain.chars()).chain([((text.len(), ' '), ' ')])
    {
        let new_part = c.is_ascii_uppercase() && last.is_ascii_lowercase();
        if (!plain.is_ascii_alphabetic() || new_part) && !word.is_empty() {
            words.push((at - word.len(), std::mem::take(&mut word)));
        }
        if plain.is_ascii_alphabetic() {
            word.push(plain);
        }
        last = c;
    }
    words.into_iter()
}

#[test]
fn the_checker_hears_words_of_the_business() {
    let complaints = |path, text| words_of_the_business(&Rust::new(path, text));
    let text = "//! In order, for the flash-sale.\nfn of(order_id: i64, c: SoldCoupon) {}\n";
    assert_complaints(
        &complaints("src/kit/id.rs", text),
        &["id.rs:2: `order`", "id.rs:2: `sold`", "id.rs:2: `coupon`"],
    );
    assert_complaints(&complaints("src/kit/id.rs", "f(\"no order\", XAUTOCLAIM)"), &["`order`"]);
    assert_complaints(&complaints("src/base/clock.rs", "// of a sale"), &["`sale`"]);
    let limits = "/// A buyer's lock.\nconst TOTAL_MAX: OrderId = f();";
    assert_complaints(&complaints("src/base/limits.rs", limits), &["limits.rs:2: `OrderId`"]);
}
