//! Watchers of a sale: open streams of events, which are read and thrown away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::load::connection::Address;
use flash_sale::sale::ids::CouponId;

/// Tasks that open streams: a service accepts connections one after the other in any case.
const OPENERS: usize = 64;
/// An event is smaller.
const READ_BYTES: usize = 2_048;

/// Streams that are open until this is dropped, or the service ends them.
pub struct Watchers {
    readers: JoinSet<()>,
    events: Arc<AtomicU64>,
}

impl Watchers {
    /// Opens so many. Each has had its first event.
    pub async fn open(address: &Address, coupon: CouponId, count: usize) -> anyhow::Result<Self> {
        let mut opening = JoinSet::new();
        for opener in 0..OPENERS {
            let (address, mine) = (address.clone(), (opener..count).step_by(OPENERS).len());
            opening.spawn(async move {
                let mut streams = Vec::with_capacity(mine);
                for _ in 0..mine {
                    streams.push(open(&address, coupon).await?);
                }
                anyhow::Ok(streams)
            });
        }
        let events = Arc::new(AtomicU64::new(0));
        let mut readers = JoinSet::new();
        while let Some(opened) = opening.join_next().await {
            for stream in opened?? {
                readers.spawn(read(stream, events.clone()));
            }
        }
        Ok(Self { readers, events })
    }

    /// Events that they have had so far, beside the first one of each.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Number of streams that the service has not ended.
    pub fn open_streams(&mut self) -> usize {
        while self.readers.try_join_next().is_some() {}
        self.readers.len()
    }

    /// Waits until the service has ended all of them.
    pub async fn ended(mut self) {
        while self.readers.join_next().await.is_some() {}
    }
}

/// A stream behind its first event.
async fn open(address: &Address, coupon: CouponId) -> anyhow::Result<TcpStream> {
    let mut stream = address.connect().await?;
    let host = address.host();
    let request = format!("GET /v1/coupons/{coupon}/live HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !contains(&head, b"data:") {
        let read = stream.read_buf(&mut head).await.context("a stream was cut")?;
        let begins = String::from_utf8_lossy(&head);
        if read == 0 || head.len() >= 12 && !begins.starts_with("HTTP/1.1 200") {
            bail!("a watcher was refused: {begins}");
        }
    }
    Ok(stream)
}

async fn read(mut stream: TcpStream, events: Arc<AtomicU64>) {
    let mut buffer = [0; READ_BYTES];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        if contains(&buffer[..read], b"event: sale") || contains(&buffer[..read], b"event:sale") {
            events.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
