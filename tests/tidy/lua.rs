//! A Lua script's header (purpose, KEYS, ARGV, replies, cost) is read by people and by these tests.

use std::collections::BTreeSet;

use super::source::{File, assert_complaints, files_of, no_complaints, read};

/// The scripts of the service and of its libraries.
pub const SCRIPTS: &[&str] = &["lua/", "crates/redisson-locks/lua/"];

/// What stands below the header; more is two decisions.
const BODY_LINES_MAX: usize = 100;

/// Commands without a key, and commands whose key comes after a sub-command.
const KEYLESS: &[&str] = &["INFO", "PUBLISH", "PUBSUB", "TIME"];
const WITH_SUB_COMMAND: &[&str] = &["OBJECT", "XGROUP", "XINFO"];

#[test]
fn every_header_agrees_with_its_body() {
    let scripts = files_of(SCRIPTS, "lua");
    no_complaints(scripts.iter().flat_map(disagreements).collect());
}

/// KEYS or ARGV: the numbers in brackets, and whether any number more may follow.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inputs {
    numbers: BTreeSet<usize>,
    any_more: bool,
}

fn disagreements(script: &File) -> Vec<String> {
    let (header, body) = split(&script.text);
    let code = without_comments(body);
    let mut found = Vec::new();
    if header.first().is_none_or(|purpose| purpose.is_empty()) {
        found.push("it has to begin with a comment that says what the script is for".to_owned());
    }
    for title in ["KEYS", "ARGV", "Replies", "Cost:"] {
        if !header.iter().any(|line| line.starts_with(title)) {
            found.push(format!("the header has no section {title}"));
        }
    }
    for name in ["KEYS", "ARGV"] {
        let told = told(&header, name);
        let used = used(&code, name);
        if told != used {
            found.push(format!("{name}: the header tells of {told:?}, the body uses {used:?}"));
        }
    }
    for (number, name) in told_names(&header) {
        if !locals(&code, &format!("KEYS[{number}]")).contains(&name) {
            found.push(format!(
                "the header calls KEYS[{number}] `{name}`; bind it to a local of that name"
            ));
        }
    }
    let told = told_codes(&header);
    let used = codes(&code);
    if told != used {
        found.push(format!("the header replies {told:?}, the body {used:?}"));
    }
    found.extend(built_keys(&code));
    if code.contains("MAXLEN") {
        found.push("MAXLEN drops unread entries; trim by MINID".to_owned());
    }
    let lines = body.lines().count();
    if lines > BODY_LINES_MAX {
        found.push(format!(
            "its body has {lines} lines; {BODY_LINES_MAX} are enough for one decision"
        ));
    }
    let path = &script.path;
    found.iter().map(|what| format!("{path}: {what}")).collect()
}

/// The lines of the header without their dashes, and the rest.
fn split(text: &str) -> (Vec<&str>, &str) {
    let mut rest = text;
    if rest.starts_with("#!lua") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    let mut header = Vec::new();
    while let Some(comment) = rest.strip_prefix("--") {
        let (line, after) = comment.split_once('\n').unwrap_or((comment, ""));
        header.push(line.strip_prefix(' ').unwrap_or(line));
        rest = after;
    }
    (header, rest.trim_start())
}

/// The code below the header; every text in it stands in single quotes.
fn without_comments(body: &str) -> String {
    let lines = body.lines().map(|line| line.split("--").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n").replace('"', "'")
}

/// `KEYS[1]` is one; `ARGV[3..]` or `KEYS  the locks` is any number; `ARGV  none` is none.
fn told(header: &[&str], name: &str) -> Inputs {
    let mut told = Inputs::default();
    for line in header.iter().filter_map(|line| line.strip_prefix(name)) {
        match line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            Some((number, _)) => match number.parse() {
                Ok(number) => drop(told.numbers.insert(number)),
                Err(_) => told.any_more = true,
            },
            None => told.any_more |= line.trim() != "none",
        }
    }
    told
}

fn used(code: &str, name: &str) -> Inputs {
    let mut used = Inputs::default();
    for after in code.split(&format!("{name}[")).skip(1) {
        match after.split(']').next().unwrap_or_default().parse() {
            Ok(number) => drop(used.numbers.insert(number)),
            Err(_) => used.any_more = true,
        }
    }
    let all_at_once = [format!("#{name}"), format!("({name})")];
    used.any_more |= all_at_once.iter().any(|all| code.contains(all));
    used
}

/// `KEYS[2]  buyers  HASH ...` calls the second key `buyers`.
fn told_names<'a>(header: &[&'a str]) -> Vec<(usize, &'a str)> {
    let keys = header.iter().filter_map(|line| line.strip_prefix("KEYS[")?.split_once(']'));
    let named = keys
        .filter_map(|(number, rest)| Some((number.parse().ok()?, rest.split_whitespace().next()?)));
    named.collect()
}

/// The locals that are bound to `value` and nothing else.
fn locals<'a>(code: &'a str, value: &str) -> Vec<&'a str> {
    let bindings =
        code.lines().filter_map(|line| line.trim().strip_prefix("local ")?.split_once(" = "));
    let pairs = bindings.flat_map(|(names, values)| names.split(", ").zip(values.split(", ")));
    pairs.filter(|(_, bound)| *bound == value).map(|(name, _)| name).collect()
}

/// Codes stand first in a line of the section Replies, which ends with an empty line.
fn told_codes(header: &[&str]) -> BTreeSet<String> {
    let section = header.iter().skip_while(|line| !line.starts_with("Replies"));
    let lines = section.take_while(|line| !line.is_empty());
    let first =
        lines.filter_map(|line| line.trim_start_matches("Replies").split_whitespace().next());
    first.filter(|word| is_code(word)).map(str::to_owned).collect()
}

/// The codes in the body: words in capitals that are no commands.
fn codes(code: &str) -> BTreeSet<String> {
    let mut own = code.to_owned();
    for (at, arguments) in calls(code).into_iter().rev() {
        own.replace_range(at..at + arguments.len(), "");
    }
    let texts = own.split('\'').skip(1).step_by(2);
    texts.filter(|text| is_code(text)).map(str::to_owned).collect()
}

fn is_code(text: &str) -> bool {
    let capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.starts_with(|c: char| c.is_ascii_uppercase()) && text.chars().all(capital)
}

/// The arguments of each call of Redis, each with its place.
fn calls(code: &str) -> Vec<(usize, &str)> {
    let starts = ["redis.call(", "redis.pcall("]
        .into_iter()
        .flat_map(|call| code.match_indices(call).map(|(at, call)| at + call.len()));
    let mut calls: Vec<_> = starts.map(|at| (at, &code[at..at + closing(&code[at..])])).collect();
    calls.sort_unstable();
    calls
}

fn closing(code: &str) -> usize {
    let mut depth = 1;
    let end = code.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    end.unwrap_or(code.len())
}

fn built_keys(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    if code.contains("..") {
        found.push("`..` puts texts together; no key is built inside a script".to_owned());
    }
    for (_, arguments) in calls(code) {
        let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
        let command = arguments[0].trim_matches('\'');
        if KEYLESS.contains(&command) {
            continue;
        }
        let key = arguments.get(1 + usize::from(WITH_SUB_COMMAND.contains(&command)));
        if !key.is_some_and(|key| is_given_key(code, key)) {
            let key = key.unwrap_or(&"nothing");
            found.push(format!(
                "the key of {command} is {key}, which isn't bound from KEYS; declare it there"
            ));
        }
    }
    found
}

/// Whether `key` is KEYS[n], a local that is bound to that once, or the variable of a loop over KEYS.
fn is_given_key(code: &str, key: &str) -> bool {
    if key.starts_with("KEYS[") {
        return true;
    }
    let bound = (1..10).any(|n| locals(code, &format!("KEYS[{n}]")).contains(&key));
    let looped = code.contains(&format!(", {key} in ipairs(KEYS)"));
    let assigned = code.lines().any(|line| line.trim().starts_with(&format!("{key} =")));
    (bound || looped) && !assigned
}

/// The file that calls `lua/claim.lua`.
const CALLS: &str = "src/claim/calls.rs";

#[test]
fn the_reply_codes_of_claim_lua_are_those_that_are_decoded() {
    let script = codes(&without_comments(split(&read("lua/claim.lua").text).1));
    let decoded = decoded_codes(&read(CALLS).text);
    assert_eq!(
        script, decoded,
        "lua/claim.lua replies the left ones, `decode` in {CALLS} knows the right ones"
    );
}

/// The letters that the functions of the decoder match.
fn decoded_codes(text: &str) -> BTreeSet<String> {
    let from = text.find("fn decode(").expect("the function that decodes a reply");
    let to = text[from..].find("#[cfg(test)]").map_or(text.len(), |to| from + to);
    let letters = text[from..to].split("b'").skip(1);
    letters.filter_map(|after| Some(after.split_once('\'')?.0.to_owned())).collect()
}

#[test]
fn the_checker_reads_the_decoder() {
    let text = "f(b'X');\nfn decode(c: u8) -> R {\n  match c { b'A' => a(\"no\"), b'P' => b }\n}\n#[cfg(test)] f(b'Z')";
    let codes = decoded_codes(text);
    assert_eq!(codes.into_iter().collect::<Vec<_>>(), ["A", "P"]);
}

const GOOD: &str = "\
#!lua flags=allow-oom
-- Counts.
--
-- KEYS[1]  log    STREAM  the log
-- KEYS[2]  coupon HASH    the sale
-- ARGV[1]  name
-- ARGV[2..] more
--
-- Replies  TAKEN  it was free
--          HELD   it wasn't
--
-- Cost: O(1), NOT_MORE.

local log, coupon = KEYS[1], KEYS[2]
local name = ARGV[1]
for i = 2, #ARGV do redis.call('SET', coupon, tonumber(ARGV[i])) end -- 'NOT_THIS'
if redis.call('XINFO', 'GROUPS', log) == name then return 'HELD' end
return redis.call('TIME') and 'TAKEN'
";

fn broken(from: &str, to: &str) -> Vec<String> {
    assert!(from.is_empty() || GOOD.contains(from), "{from}");
    let text = if from.is_empty() { GOOD.to_owned() } else { GOOD.replacen(from, to, 1) };
    disagreements(&File { path: "lua/a.lua".to_owned(), text })
}

#[test]
fn the_checker_finds_every_way_to_disagree() {
    assert_complaints(&broken("", ""), &[]);
    let long = format!("{}return redis", "\n".repeat(100));
    for (from, to, complaint) in [
        ("-- Counts.\n", "", "lua/a.lua: it has to begin with a comment"),
        ("-- Cost:", "-- Price:", "no section Cost:"),
        ("-- ARGV[2..] more\n", "", "ARGV: the header tells of"),
        ("= ARGV[1]", "= ARGV[3]", "ARGV: the header tells of"),
        ("-- KEYS[2]  coupon HASH    the sale\n", "", "KEYS: the header tells of"),
        ("KEYS[1]  log ", "KEYS[1]  entries", "calls KEYS[1] `entries`"),
        ("'HELD'", "'BUSY'", "the header replies {\"HELD\", \"TAKEN\"}, the body {\"BUSY\""),
        ("--          HELD   it wasn't\n", "", "the header replies {\"TAKEN\"}"),
        ("'SET', coupon", "'SET', name", "the key of SET is name"),
        ("'SET', coupon", "'SET', #coupon .. name, coupon", "`..`"),
        ("local name", "coupon = f()\nlocal name", "the key of SET is coupon"),
        ("'SET', coupon", "'XTRIM', log, 'MAXLEN'", "MAXLEN drops unread"),
        ("return redis", &long, "its body has 105 lines"),
    ] {
        let found = broken(from, to);
        assert!(found.iter().any(|found| found.contains(complaint)), "{complaint}: {found:?}");
    }
}

#[test]
fn any_number_of_keys_is_told_without_a_number() {
    let header = ["KEYS     the locks", "ARGV     none"];
    let none = Inputs::default();
    let any = Inputs { any_more: true, ..Inputs::default() };
    assert_eq!((told(&header, "KEYS"), told(&header, "ARGV")), (any, none));
    let code = "for _, lock in ipairs(KEYS) do redis.call('GET', lock) end";
    assert_eq!(used(code, "KEYS"), told(&header, "KEYS"));
    assert_eq!(built_keys(code), Vec::<String>::new());
}
