//! Each operator on a snippet.

use super::*;

fn of(text: &str, dropped: &HashMap<Key, u64>) -> (Instrumented, String) {
    let source = Source { path: "src/sale/a.rs".into(), text: text.into() };
    let constants = BTreeSet::from(["LIMIT".to_owned()]);
    let known = Known { constants: &constants, dropped };
    let mut next = 1;
    let found = instrument(&source, &known, &mut next).expect("it is Rust");
    let spliced = found.splices.apply(text).text;
    syn::parse_file(&spliced).unwrap_or_else(|error| panic!("{error} in\n{spliced}"));
    (found, spliced)
}

/// The body of a function without a result, with its mutants in: all but those of its whole body.
fn body(body: &str) -> (Vec<(String, String, String)>, String) {
    let text = format!("fn f() -> X {{ {body} }}");
    let (found, spliced) = of(&text, &HashMap::new());
    let keys = found.mutants.into_iter().map(|mutant| mutant.key);
    let mutants = keys.map(|key| (key.operator, key.original, key.mutation)).collect();
    let inside = spliced.trim_start_matches("fn f() -> X {").trim_end_matches('}').trim();
    (mutants, inside.to_owned())
}

#[track_caller]
fn assert_mutants(code: &str, expected: &[(&str, &str, &str)], spliced: &str) {
    let (found, text) = body(code);
    let found: Vec<_> =
        found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(found, expected);
    assert_eq!(text.replace("crate::mutants::", ""), spliced);
}

#[test]
fn a_condition_is_taken_for_true_and_for_false() {
    assert_mutants(
        "if a.b() { c }",
        &[("condition", "a.b()", "true"), ("condition", "a.b()", "false")],
        "if f(a.b(), 1, 2) { c }",
    );
    assert_mutants("while a { }", &[("condition", "a", "false")], "while f(a, 0, 1) { }");
    assert_mutants(
        "if let A(b) = c && d { e }",
        &[("condition", "let A(b) = c && d", "false"), ("condition", "d", "true")],
        "if let A(b) = c && f(d, 2, 0) && !m(1) { e }",
    );
    assert_mutants(
        "x(!a)",
        &[("condition", "a", "true"), ("condition", "a", "false")],
        "x(!f(a, 1, 2))",
    );
}

#[test]
fn each_part_of_a_condition_is_dropped() {
    assert_mutants(
        "let x = a && b == c;",
        &[
            ("condition", "a && b == c", "false"),
            ("condition", "a", "true"),
            ("condition", "b == c", "true"),
        ],
        "let x = f(f(a, 2, 0) && f(b == c, 3, 0), 0, 1);",
    );
    assert_mutants(
        "if a || (b && c) { }",
        &[
            ("condition", "a || (b && c)", "true"),
            ("condition", "a", "false"),
            ("condition", "b && c", "false"),
            ("condition", "b", "true"),
            ("condition", "c", "true"),
        ],
        "if f(f(a, 0, 2) || (f(f(b, 4, 0) && f(c, 5, 0), 0, 3)), 1, 0) { }",
    );
}

#[test]
fn comparisons_have_boundaries_and_limits_are_off_by_one() {
    assert_mutants(
        "if a < 7 { }",
        &[
            ("condition", "a < 7", "true"),
            ("condition", "a < 7", "false"),
            ("boundary", "a < 7", "a <= 7"),
            ("number", "7", "6"),
        ],
        "if f((if m(3) { a <= 7 } else { a < (if m(4) { 6 } else { 7 }) }), 1, 2) { }",
    );
    let (found, _) = body("if a.elapsed() > b { }");
    assert!(found.iter().all(|(operator, ..)| operator != "boundary"), "{found:?}");
    let (found, _) = body("if a > x::LIMIT { }");
    assert_eq!(found[3].2, "x::LIMIT + 1");
    let (found, _) = body("for i in 0..LIMIT { }");
    let changes: Vec<&str> = found.iter().map(|(_, _, to)| to.as_str()).collect();
    assert_eq!(changes, ["1", "LIMIT + 1"]);
    let (found, _) = body("a.take(3); b.push(3); c(LIMIT); d.min(OTHER)");
    let numbers = found.iter().filter(|(operator, ..)| operator == "number");
    let numbers: Vec<&str> = numbers.map(|(_, _, to)| to.as_str()).collect();
    assert_eq!(numbers, ["4", "LIMIT + 1"]);
}

#[test]
fn arithmetic_and_methods_are_turned_round() {
    assert_mutants(
        "a + b * c",
        &[("arithmetic", "a + b * c", "a - b * c"), ("arithmetic", "b * c", "b / c")],
        "(if m(1) { a - b * c } else { a + (if m(2) { b / c } else { b * c }) })",
    );
    assert_mutants(
        "a(-b.min(c))",
        &[("arithmetic", "-b.min(c)", "b.min(c)"), ("method", "b.min(c)", "b.max(c)")],
        "a((if m(1) { b.min(c) } else { -(if m(2) { b.max(c) } else { b.min(c) }) }))",
    );
    assert_mutants(
        "A { b: true }",
        &[("literal", "true", "false")],
        "A { b: (if m(1) { false } else { true }) }",
    );
}

#[test]
fn statements_are_left_out() {
    assert_mutants(
        "a.b().await?; c = d(); e += 1; let f = g(); h",
        &[
            ("statement", "a.b().await?;", ""),
            ("statement", "c = d();", ""),
            ("statement", "e += 1;", ""),
        ],
        "if !m(1) { a.b().await?; } if !m(2) { c = d(); } if !m(3) { e += 1; } let f = g(); h",
    );
    assert_mutants(
        "for a in b { c(a) } Ok(d)",
        &[("statement", "c(a)", "")],
        "for a in b { if !m(1) { c(a) } } Ok(d)",
    );
}

#[test]
fn arms_are_left_out_where_another_one_takes_over() {
    assert_mutants(
        "match a { 1 => b, c if c > d => e, _ => g }",
        &[
            ("arm", "1", ""),
            ("condition", "c > d", "true"),
            ("condition", "c > d", "false"),
            ("boundary", "c > d", "c >= d"),
        ],
        "match a { 1 if !m(1) => b, c if f((if m(4) { c >= d } else { c > d }), 2, 3) => e, _ => g }",
    );
    assert_mutants("match a { B => c, D => e }", &[], "match a { B => c, D => e }");
}

#[test]
fn closures_that_decide_are_conditions() {
    assert_mutants(
        "a.filter(|b| c(b)).map(|d| e(d))",
        &[("condition", "c(b)", "true"), ("condition", "c(b)", "false")],
        "a.filter(|b| f(c(b), 1, 2)).map(|d| e(d))",
    );
    let (found, _) = body("a.then(|| b)");
    assert_eq!(found.len(), 2);
}

#[test]
fn functions_return_constants_and_leave_out_their_last_step() {
    let text = "impl A<'_> { async fn f(self) -> sqlx::Result<()> { g().await?; h().await } }";
    let (found, spliced) = of(text, &HashMap::new());
    let keys: Vec<_> = found.mutants.iter().map(|mutant| mutant.key.clone()).collect();
    let changes: Vec<&str> = keys.iter().map(|key| key.mutation.as_str()).collect();
    assert_eq!(changes, ["return Ok(())", "", "Ok(())"]);
    assert_eq!(keys[0].function, "A::f");
    assert_eq!(
        spliced.replace("crate::mutants::", ""),
        "impl A<'_> { async fn f(self) -> sqlx::Result<()> { if m(1) { return Ok(()); } \
         if !m(2) { g().await?; } (if m(3) { Ok(()) } else { h().await }) } }"
    );
}

#[test]
fn tests_constants_and_what_is_shown_are_left_alone() {
    for text in [
        "#[cfg(test)] mod tests { fn f() -> bool { a < b } }",
        "#[tokio::test] async fn f() { a(); }",
        "const A: i64 = 1 + 2;",
        "const fn f() -> bool { a < b }",
        "impl fmt::Display for A { fn fmt(&self) -> fmt::Result { a() } }",
        "enum A { B = 1 + 2 }",
        "fn f() -> A { warn!(\"{}\", a + b); [0; 2 * 3] }",
        "fn f() -> A { let b = None; c }",
    ] {
        let (found, spliced) = of(text, &HashMap::new());
        assert!(found.mutants.is_empty(), "{:?}", found.mutants);
        assert_eq!(spliced, text);
    }
}

#[test]
fn arms_of_select_are_left_out() {
    assert_mutants(
        "tokio::select! { biased; () = a.b() => { c(); } d = e(1), if f => g(d), else => h }",
        &[
            ("arm", "a.b()", ""),
            ("statement", "c();", ""),
            ("condition", "f", "true"),
            ("condition", "f", "false"),
        ],
        "tokio::select! { biased; () = a.b(), if !m(1) => { if !m(2) { c(); } } \
         d = e(1), if f(f, 3, 4) => g(d), else => h }",
    );
}

#[test]
fn queries_and_scripts_have_numbers() {
    let text = "impl A { fn f(&self) -> Y {\n let x = sqlx::query!(r#\"SELECT 1\"#, a - b).fetch_one(&mut *tx);\
        \n Script::new(include_str!(\"../../lua/b.lua\")) } }";
    let (found, spliced) = of(text, &HashMap::new());
    let query = &found.queries[0];
    assert_eq!((query.text.as_str(), query.line, query.function.as_str()), ("SELECT 1", 2, "A::f"));
    assert_eq!(found.scripts[0].path, "lua/b.lua");
    let (query, script) = (query.number, found.scripts[0].number);
    assert!(spliced.contains(&format!(".fetch_one(crate::mutants::Sql::new({query}, &mut *tx))")));
    assert!(spliced.contains(&format!("crate::mutants::lua({script}, include_str!(")));
    assert!(spliced.contains("{ a + b } else { a - b }"), "{spliced}");
}

#[test]
fn what_does_not_compile_is_not_put_in() {
    let text = "fn f() -> X { a - b }";
    let (found, _) = of(text, &HashMap::new());
    let mutant = &found.mutants[0];
    let dropped = HashMap::from([(mutant.key.clone(), mutant.context)]);
    let (found, spliced) = of(text, &dropped);
    assert_eq!((found.mutants.len(), spliced.as_str()), (1, text));
    // In another function of the same name it may.
    let (_, spliced) = of("fn f() -> X { let c; a - b }", &dropped);
    assert!(spliced.contains("a + b"));
}

#[test]
fn modules_for_tests_are_told_from_others() {
    let text = "#[cfg(test)] mod a; #[cfg(test)] pub mod b; mod c; #[cfg(feature = \"x\")] mod d;"
        .to_owned();
    let of = |path: &str| {
        let source = Source { path: path.into(), text: text.clone() };
        modules_of_tests(&source).expect("it is Rust")
    };
    assert_eq!(of("src/kit/mod.rs"), ["src/kit/a.", "src/kit/a/", "src/kit/b.", "src/kit/b/"]);
    assert_eq!(of("src/lib.rs"), ["src/a.", "src/a/", "src/b.", "src/b/"]);
    assert_eq!(
        of("src/kit/id.rs"),
        ["src/kit/id/a.", "src/kit/id/a/", "src/kit/id/b.", "src/kit/id/b/"]
    );
}
