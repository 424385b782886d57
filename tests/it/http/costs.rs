//! What replies that nobody reads cost in memory.

use std::fs;

use flash_sale::base::limits;
use flash_sale::kit::open_files;
use reqwest::StatusCode;
use tokio::net::TcpStream;
use tokio::time::{Duration, sleep};

use super::hoarders::send_to;
use crate::support::TestApp;
use crate::support::process::Process;

/// The largest replies: a document of 290 KB, and a page of 60 KB.
const LARGE: [&str; 2] = ["/openapi.json", "/docs/problems"];
const MIB: u64 = 1024 * 1024;

#[tokio::test]
async fn forty_connections_that_read_nothing_keep_little() {
    let more = memory_of_unread(40).await;
    assert!(more <= 40 * MIB, "{} MiB more", more / MIB);
}

#[tokio::test]
#[ignore = "long: make faults"]
async fn long_four_hundred_connections_that_read_nothing_keep_150_mib_at_most() {
    let more = memory_of_unread(400).await;
    assert!(more <= 150 * MIB, "{} MiB more", more / MIB);
}

/// Memory that a service takes for so many connections, half of them of HTTP/2 with a window of 0.
async fn memory_of_unread(connections: usize) -> u64 {
    open_files::raise_limit().expect("the system lets us");
    let app = TestApp::start().await;
    let service = Process::serve(&app, &["--anonymous-requests-per-second", "0"]);
    let url = service.url().await;
    // Made once, for all.
    for path in LARGE {
        let reply = app.client().get(format!("{url}{path}")).send().await.expect("a reply");
        assert_eq!(reply.status(), StatusCode::OK);
        reply.bytes().await.expect("the body");
    }
    let before = resident(service.pid());
    let pipelined = format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", LARGE[0]).repeat(50);
    let mut hoarded: Vec<TcpStream> = Vec::new();
    for number in 0..connections {
        let bytes = match number % 2 {
            0 => streams(&LARGE, limits::HTTP2_STREAMS_MAX),
            _ => pipelined.clone().into(),
        };
        hoarded.push(send_to(&url, &bytes).await);
    }
    let mut most = before;
    for _ in 0..20 {
        sleep(Duration::from_millis(100)).await;
        most = most.max(resident(service.pid()));
    }
    println!(
        "{connections} connections that read nothing: {} MiB before, {} MiB with them",
        before / MIB,
        most / MIB
    );
    drop(hoarded);
    most - before
}

/// A connection of HTTP/2 with a window of 0 and so many GETs of these paths, by turns.
fn streams(paths: &[&str], count: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // The windows of all streams are 0.
    bytes.extend([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
    for (number, path) in (0..count).zip(paths.iter().cycle()) {
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).expect("a short text");
        // HPACK: GET, http, the path, and the authority `x`.
        let path = path.as_bytes();
        let block = [&[0x82, 0x86, 0x04, length(path)], path, &[0x01, 1, b'x']].concat();
        bytes.extend([0, 0, length(&block), 1, 5]);
        bytes.extend((2 * number + 1).to_be_bytes());
        bytes.extend(block);
    }
    bytes
}

/// Bytes of memory that a process has.
fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    let kib = line.trim().trim_end_matches(" kB").trim().parse::<u64>();
    kib.expect("a number") * 1024
}
