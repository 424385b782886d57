//! The output of `flash-sale demo`: reachable addresses, and lines that work when they are pasted into a terminal, in
//! bash and in zsh.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use private_servers::testing::DataFolder;
use serde_json::{Value, json};

use crate::support::process::{Process, flash_sale, run};
use crate::support::{client, eventually};

/// The lines between which the lines to paste stand.
const PASTE: [&str; 2] = ["Paste these lines", "An administrator's token"];

#[tokio::test]
async fn the_lines_work_when_they_are_pasted_into_bash_and_into_zsh() {
    let folder = DataFolder::new();
    let mut demo = start(&folder, &["--listen", "127.0.0.1:0"]).await;
    let block = block(&demo).await;
    let token = block.lines().find_map(|line| line.trim().strip_prefix("TOKEN="));
    let token = token.expect("there is a token to paste").to_owned();
    for (user, shell) in [("501", "bash --norc -i"), ("502", "zsh -f -i")] {
        let (name, _) = shell.split_once(' ').expect("a program and its flags");
        if let Some(missing) = ["script", "curl", name].into_iter().find(|name| !is_installed(name))
        {
            println!("SKIPPED: {name}, because {missing} is not installed");
            continue;
        }
        // Another user for each shell, so that the first claim is always the first.
        let arguments = ["token", "--user", user, "--data-dir", folder.text()];
        let other = run(flash_sale(&arguments)).await.stdout;
        paste(shell, &block.replace(&token, other.trim())).await;
        pay(&block, other.trim()).await;
    }
    stop(&mut demo).await;
}

/// Words of a line that an interactive zsh takes for something else than bash does: comments and, outside of quotes,
/// signs of patterns and of its history.
fn zsh_stumbles_over(line: &str) -> Option<char> {
    let mut quote = None;
    line.chars().find(|&sign| match quote {
        Some(end) => {
            if sign == end {
                quote = None;
            }
            sign == '!' && end == '"'
        }
        None => {
            if sign == '"' || sign == '\'' {
                quote = Some(sign);
            }
            "#?*[!".contains(sign)
        }
    })
}

#[tokio::test]
async fn no_line_to_be_pasted_has_a_comment_or_a_pattern() {
    let folder = DataFolder::new();
    let mut demo = start(&folder, &["--listen", "127.0.0.1:0"]).await;
    let mut blocks = vec![block(&demo).await];
    for readme in [include_str!("../../../README.md"), include_str!("../../../README.zh.md")] {
        blocks.extend(blocks_of(readme, "http://127.0.0.1:8080/v1", &folder));
    }
    for line in blocks.iter().flat_map(|block| block.lines()) {
        assert_eq!(zsh_stumbles_over(line), None, "{line}");
    }
    for line in ["pay # as a buyer; do it", "curl http://x/orders?limit=1", "echo \"done!\""] {
        assert!(zsh_stumbles_over(line).is_some(), "{line}");
    }
    stop(&mut demo).await;
}

/// The blocks to paste in both READMEs, for this service.
fn blocks_of(readme: &str, api: &str, folder: &DataFolder) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_flash-sale");
    let token = format!("{program} token --data-dir {}", folder.text());
    let blocks = readme.split("```sh\n").skip(1).take(4);
    let blocks = blocks.map(|block| block.split("```").next().expect("a block ends"));
    let here = |block: &str| {
        block
            .replace("target/debug/flash-sale token", &token)
            .replace("http://127.0.0.1:8080/v1", api)
    };
    blocks.map(here).collect()
}

#[tokio::test]
async fn the_blocks_of_the_readme_work_in_bash_and_in_zsh() {
    let folder = DataFolder::new();
    let mut demo = start(&folder, &["--listen", "127.0.0.1:0"]).await;
    let api = demo.printed("  API ").await;
    let api = api.split_whitespace().last().and_then(|url| url.strip_suffix("/coupons"));
    let api = api.expect("a URL");
    for readme in [include_str!("../../../README.md"), include_str!("../../../README.zh.md")] {
        let blocks = blocks_of(readme, api, &folder);
        assert!(blocks[0].contains(api) && blocks[3].contains("/claims/me"), "{blocks:?}");
        for shell in ["bash", "zsh"] {
            if let Some(missing) = ["curl", shell].into_iter().find(|name| !is_installed(name)) {
                println!("SKIPPED: {shell}, because {missing} is not installed");
                continue;
            }
            let sh = async |script: String| {
                let mut command = Command::new(shell);
                command.args(["-c", &script]);
                let done = run(command).await;
                assert_eq!(done.code, Some(0), "{done:?}");
                done
            };
            let done = sh(blocks.join("\n")).await;
            assert!(done.stdout.contains("HTTP/1.1 202 "), "{done:?}");
            // Replies end their lines, so none runs into the next one.
            let replies = done.stdout.lines().filter(|line| line.starts_with('{'));
            let replies: Vec<Value> =
                replies.map(|reply| serde_json::from_str(reply).expect("a whole reply")).collect();
            assert_eq!(replies.len(), 4, "{done:?}");
            assert!(replies[3]["coupons"].is_array(), "{done:?}");
            assert!(done.stderr.contains("Dinner for two"), "the coupon is shown: {done:?}");
            // A refusal of the first step is shown, and is no id.
            let refused = [&*blocks[0], "ADMIN_TOKEN=x", &*blocks[1], "echo \"<$COUPON>\""];
            let done = sh(refused.join("\n")).await;
            assert_eq!(done.stdout.trim(), "<>", "{done:?}");
            assert!(done.stderr.contains("invalid_token"), "{done:?}");
        }
    }
    stop(&mut demo).await;
}

/// README's tokens are those of the demo's own secret.
#[tokio::test]
async fn a_token_of_another_secret_is_told_its_fault() {
    let folder = DataFolder::new();
    let mut demo = start(&folder, &["--listen", "127.0.0.1:0"]).await;
    let api = demo.printed("  API ").await;
    let coupons = api.split_whitespace().last().expect("a URL");
    let orders = coupons.replace("/coupons", "/orders");
    let other = ["token", "--user", "501", "--token-secret", "a secret that is none of the demo's"];
    let own = ["token", "--user", "501", "--data-dir", folder.text()];
    for (arguments, status) in [(&other[..], 401), (&own, 200)] {
        let token = run(flash_sale(arguments)).await.stdout;
        let request = client().get(&orders).bearer_auth(token.trim());
        let reply = request.send().await.expect("it answers");
        assert_eq!(reply.status(), status, "{arguments:?}");
        if status == 200 {
            continue;
        }
        let challenge = reply.headers()["www-authenticate"].to_str().expect("text").to_owned();
        let problem: Value = reply.json().await.expect("a problem");
        let cause = "it has to be signed by this service's issuer";
        assert!(problem["detail"].as_str().is_some_and(|it| it.contains(cause)), "{problem}");
        assert!(challenge.contains(cause), "{challenge}");
        let page = problem["type"].as_str().expect("a path");
        let page = client().get(coupons.replace("/v1/coupons", page)).send().await.expect("a page");
        let page = page.text().await.expect("text");
        assert!(page.contains("get a new one from the issuer that the service trusts"), "{page}");
    }
    stop(&mut demo).await;
}

#[tokio::test]
async fn every_address_that_is_printed_can_be_connected_to() {
    let folder = DataFolder::new();
    for (listen, printed) in [
        ("127.0.0.1:0", "http://127.0.0.1:"),
        ("0.0.0.0:0", "http://127.0.0.1:"),
        ("[::]:0", "http://localhost:"),
        ("[::1]:0", "http://[::1]:"),
    ] {
        if TcpListener::bind(listen).is_err() {
            println!("SKIPPED: {listen}, because this machine has no IPv6");
            continue;
        }
        // Operations have a listener of their own.
        let arguments = ["--listen", listen, "--admin-listen", "127.0.0.1:0"];
        let mut demo = start(&folder, &arguments).await;
        // The page comes first. Tokens are given away on this machine alone.
        let shop = demo.printed("  shop ").await;
        let words: Vec<&str> = shop.split_whitespace().collect();
        assert!(words[1].starts_with(printed) && words[1].contains("/sale/"), "{shop}");
        let page = client().get(words[1]).send().await.expect("it can be connected to");
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
        let (origin, _) = words[1].split_once("/sale/").expect("the page of a sale");
        let entered = client().post(format!("{origin}/demo/shoppers")).send().await;
        let on_loopback = listen != "0.0.0.0:0" && listen != "[::]:0";
        let expected = if on_loopback { (200, 2) } else { (404, words.len()) };
        assert_eq!(
            (entered.expect("it answers").status().as_u16(), words.len()),
            expected,
            "{shop}"
        );
        let storm = demo.printed_so_far().into_iter().find(|line| line.starts_with("  storm "));
        assert_eq!(storm.is_some(), on_loopback, "{storm:?}");
        if let Some(storm) = storm {
            enters_once(&storm).await;
        }
        for (line, path) in
            [("  API ", "/v1/coupons"), ("  docs ", "/docs"), ("  metrics ", "/metrics")]
        {
            let line = demo.printed(line).await;
            let url = line.split_whitespace().last().expect("a URL");
            assert!(url.ends_with(path), "{line}");
            assert!(path == "/metrics" || url.starts_with(printed), "{listen}: {line}");
            let reply = client().get(url).send().await.expect("it can be connected to");
            assert_eq!(reply.status().as_u16(), 200, "{line}");
        }
        assert!(block(&demo).await.contains(&format!("\"{printed}")), "{listen}");
        if on_loopback {
            links_come_first(&demo).await;
        }
        stop(&mut demo).await;
    }
}

#[tokio::test]
async fn a_demo_that_would_answer_nothing_is_refused() {
    let folder = DataFolder::new();
    let refused =
        run(flash_sale(&["demo", "--roles", "worker", "--data-dir", folder.text()])).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.last_words().contains("leave --roles away"), "{refused:?}");
    assert!(!folder.path().exists(), "it made its folder");
}

// ---- steps of these tests ----

/// The links of the pages stand before all else, and that of the board leads to the board.
async fn links_come_first(demo: &Process) {
    let lines = demo.printed_so_far();
    let place = |begin: &str| lines.iter().position(|line| line.starts_with(begin));
    let order = ["  shop ", "  board ", "  storm ", "  API ", PASTE[0]].map(place);
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{lines:?}");
    let board = lines.iter().find(|line| line.starts_with("  board ")).expect("it has a place");
    let link = board.split_whitespace().nth(1).expect("a link");
    let page = client().get(link).send().await.expect("it can be connected to");
    assert_eq!(page.status().as_u16(), 200, "{link}");
    let text = page.text().await.expect("a page");
    assert!(text.contains("board/main.js"), "{link}: {text}");
}

async fn start(folder: &DataFolder, arguments: &[&str]) -> Process {
    let mut command = flash_sale(&["demo", "--data-dir", folder.text()]);
    command.args(arguments);
    let demo = Process::spawn(command);
    demo.printed("Ctrl-C stops everything").await;
    demo
}

async fn stop(demo: &mut Process) {
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.ended().await.code(), Some(0));
}

/// The part that a user marks with the mouse: whole lines, with their indentation.
async fn block(demo: &Process) -> String {
    let lines = demo.printed_so_far();
    let [first, last] =
        PASTE.map(|text| lines.iter().position(|line| line.contains(text)).expect("it is printed"));
    let lines = lines[first..last].iter().filter(|line| line.starts_with("  "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The link of the storm leads to a page, and its code lets one administrator in.
async fn enters_once(line: &str) {
    let link = line.split_whitespace().last().expect("a link");
    let (page, code) = link.split_once("#code=").expect("a code");
    let (origin, _) = page.split_once("/storm").expect("the page of storms");
    let client = client();
    assert_eq!(client.get(page).send().await.expect("it answers").status().as_u16(), 200);
    for status in [200, 403] {
        let request = client.post(format!("{origin}/demo/sessions")).json(&json!({"code": code}));
        assert_eq!(request.send().await.expect("it answers").status().as_u16(), status, "{line}");
    }
}

fn is_installed(program: &str) -> bool {
    let mut check = Command::new("sh");
    check.args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null());
    check.status().is_ok_and(|status| status.success())
}

/// Pays the only order of the user with this token: the demo is its own gateway.
async fn pay(block: &str, token: &str) {
    let url = block.lines().last().and_then(|line| line.split('"').rev().nth(1));
    let url = url.expect("the last line lists the orders");
    let client = client();
    let mut paid = String::new();
    eventually("the order is written and paid", async || {
        let listed = client.get(url).bearer_auth(token).send().await.expect("it answers");
        let orders: Value = listed.json().await.expect("JSON");
        let Some(order) = orders["orders"][0]["order_id"].as_str() else { return false };
        let request = client.post(format!("{url}/{order}/pay")).bearer_auth(token);
        let reply = request.json(&json!({"method": "balance"})).send().await.expect("it answers");
        paid = reply.text().await.expect("a body");
        true
    })
    .await;
    assert!(paid.contains("\"status\":\"paid\""), "{paid}");
}

/// Pastes the lines into a shell in a terminal, as terminals do: marked as pasted, and all at once.
async fn paste(shell: &str, lines: &str) {
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", shell, "/dev/null"]).stdin(Stdio::piped());
    command.envs([("TERM", "xterm"), ("HISTFILE", "/dev/null"), ("no_proxy", "*")]);
    let mut terminal = Process::spawn(command);
    terminal.type_in("echo ready-$((1 + 1))\r");
    terminal.printed("ready-2").await;
    let pasted = lines.trim_end().replace('\n', "\r");
    terminal.type_in(&format!("\x1b[200~{pasted}\x1b[201~\r"));
    for answer in ["HTTP/1.1 202 ", "HTTP/1.1 409 ", "\"already_claimed\"", "\"next_cursor\""] {
        terminal.printed(answer).await;
    }
    terminal.type_in("exit\r");
    assert_eq!(terminal.ended().await.code(), Some(0), "{shell}");
    println!("{shell}: the lines work");
}
