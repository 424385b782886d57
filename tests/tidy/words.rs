//! `kit` and `base` have never heard of what is sold; and each sentence has a subject that the glossary knows.

use std::collections::BTreeSet;

use super::source::{
    File, Rust, assert_complaints, files_of, no_complaints, occurrences, place, read, rust,
};

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

/// Beginnings that hide the subject of a sentence, or lean on the item above.
const HIDING: &[&str] = &["Who ", "Whoever ", "And ", "For how long ", "Nobody ", "Somebody "];

/// Further such beginnings, outside of [`ELSEWHERE`].
const HIDING_HERE: &[&str] = &["Whom ", "Whose ", "What ", "It ", "But ", "How long "];

/// Words for a person or a process that the glossary doesn't know.
const UNKNOWN_SUBJECTS: &[&str] = &["somebody", "someone", "nobody", "everybody", "whoever"];

/// Where such a word is a name: the user `nobody` of a machine.
const NAMED: &[(&str, &str)] = &[("crates/private-servers/src/folder/postgres_home.rs", "nobody")];

/// Helpers of tests and laws: these laws hold there only in part.
const ELSEWHERE: &[&str] = &["tests/it/support/", "tests/tidy/"];

fn is_elsewhere(file: &File) -> bool {
    ELSEWHERE.iter().any(|path| file.path.starts_with(path))
}

#[test]
fn sentences_have_subjects_of_the_glossary() {
    let starts = ["src/", "crates/", "lua/", "tests/it/", "benches/hot_path.rs", "build.rs"];
    let mut files = files_of(&starts, "rs");
    files.extend(files_of(&starts, "lua"));
    files.extend(files_of(&["tests/planted/"], "patch"));
    files.retain(|file| !is_elsewhere(file));
    no_complaints(files.iter().flat_map(unknown_subjects).collect());
}

/// Names of code may hold such a word: `_` belongs to a word here.
fn unknown_subjects(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let text = file.text.to_ascii_lowercase();
    for subject in UNKNOWN_SUBJECTS {
        if NAMED.contains(&(file.path.as_str(), *subject)) {
            continue;
        }
        let found = occurrences(&text, subject);
        complaints.extend(found.map(|at| {
            let place = place(&file.path, &file.text, at);
            format!("{place}: `{subject}`: name the user, process, caller or operator")
        }));
    }
    complaints
}

#[test]
fn the_checker_sees_unknown_subjects() {
    let text = "// Nobody waits.\nfn nobody_waits() { log(\"ask whoever runs it\") }\n";
    let file = File { path: "src/a.rs".to_owned(), text: text.to_owned() };
    let found = ["src/a.rs:1: `nobody`", "src/a.rs:2: `whoever`"];
    assert_complaints(&unknown_subjects(&file), &found);
}

#[test]
fn documentation_begins_with_its_subject() {
    let files = files_of(&["src/", "crates/", "tests/", "benches/"], "rs");
    no_complaints(files.iter().flat_map(hidden_subjects).collect());
}

fn hidden_subjects(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_first = true;
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        let here = HIDING_HERE.iter().filter(|_| !is_elsewhere(file));
        let mut hidings = HIDING.iter().chain(here);
        let hiding = hidings.find(|hiding| text.is_some_and(|text| text.starts_with(**hiding)));
        if let (true, Some(hiding)) = (is_first, hiding) {
            let place = format!("{}:{}", file.path, number + 1);
            complaints.push(format!(
                "{place}: `{}` begins a documentation: name the subject",
                hiding.trim_end()
            ));
        }
        is_first = text.is_none();
    }
    complaints
}

#[test]
fn the_checker_sees_hidden_subjects() {
    let text = "//! Who asks.\n\n/// A lock.\n/// Who holds it.\nstruct A;\n    /// And more.\n// Who\n/// What it is.";
    let file = File { path: "src/a.rs".to_owned(), text: text.to_owned() };
    let found = ["src/a.rs:1: `Who`", "src/a.rs:6: `And`", "src/a.rs:8: `What`"];
    assert_complaints(&hidden_subjects(&file), &found);
    let file = File { path: "tests/it/support/a.rs".to_owned(), ..file };
    assert_complaints(&hidden_subjects(&file), &["a.rs:1: `Who`", "a.rs:6: `And`"]);
}

/// Terms that have been given up, each for one that says the same thing everywhere (ARCHITECTURE.md, Words): the former
/// one in lower case, a word that has to stand in the same sentence (or none), the present one.
const FORMER: &[(&str, &str, &str)] = &[
    ("warm up", "", "load"),
    ("warm-up", "", "load"),
    ("warmed up", "", "loaded"),
    ("count of returns", "", "count of additions"),
    ("give back", "lock", "release"),
    ("gives back", "lock", "releases"),
    ("given back", "lock", "released"),
    ("give back", "money", "refund"),
    ("gives back", "money", "refunds"),
    ("given back", "money", "refunded"),
    ("give back", "payment", "refund"),
    ("given back", "payment", "refunded"),
    ("`sale.stock`", "", "`sale.total`"),
];

/// Where a former term is the name of something else, or is spoken of as a former one.
const FORMER_EXCUSED: &[(&str, &str)] = &[
    ("docs/api.md", "`sale.stock`"),
    ("docs/api.zh.md", "`sale.stock`"),
    ("docs/operate.md", "`sale.stock`"),
    ("docs/operate.zh.md", "`sale.stock`"),
    ("tests/it/coupon/life.rs", "`sale.stock`"),
];

#[test]
fn a_term_has_one_meaning_and_a_meaning_one_term() {
    let mut files = files_of(&["src/", "tests/it/"], "rs");
    files.extend(files_of(&["lua/"], "lua"));
    files.extend(files_of(&["", "docs/"], "md"));
    no_complaints(files.iter().flat_map(former_terms).collect());
}

/// Former terms in comments, documents and messages; code has none of them, because it has no spaces or dots there.
fn former_terms(file: &File) -> Vec<String> {
    let text = file.text.to_lowercase();
    let prose = text.replace("--warm-up-", "--").replace(".\n", ";").replace(". ", ";");
    let mut complaints = BTreeSet::new();
    for sentence in prose.split([';', '|', '"']).map(str::trim) {
        let sentence: String = sentence
            .lines()
            .map(|line| line.trim_start().trim_start_matches(['/', '!', '-', '*', ' ']))
            .collect::<Vec<_>>()
            .join(" ");
        for (former, beside, present) in FORMER {
            let is_there = sentence.contains(former)
                && words(&sentence).any(|(_, word)| beside.is_empty() || word == *beside);
            if is_there && !FORMER_EXCUSED.contains(&(file.path.as_str(), *former)) {
                complaints
                    .insert(format!("{}: `{former}` is `{present}` here: {sentence}", file.path));
            }
        }
    }
    complaints.into_iter().collect()
}

#[test]
fn the_checker_sees_former_terms() {
    let file = |text: &str| File { path: "src/a.rs".to_owned(), text: text.to_owned() };
    let text =
        "/// A unit is given back.\n/// The lock is given\n/// back. To warm up is `load`.\n";
    assert_complaints(
        &former_terms(&file(text)),
        &["`given back` is `released`", "`warm up` is `load`"],
    );
}
