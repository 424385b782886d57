//! The rungs, in the order of the climb: each file is one design, and reads in the way that breaks it.

mod aside;
mod avalanche;
mod bloom;
mod hot_key;
mod logical;
mod mutex;
mod none;
mod null_values;
mod order;
mod two_levels;

use crate::shelf::{Facts, Figures, Shelf};

#[derive(Clone, Copy, Debug)]
pub struct Rung {
    pub number: &'static str,
    key: &'static str,
    pub title: &'static str,
    pub term: &'static str,
}

const fn rung(
    number: &'static str,
    key: &'static str,
    title: &'static str,
    term: &'static str,
) -> Rung {
    Rung { number, key, title, term }
}

pub const RUNGS: [Rung; 14] = [
    rung("1", "none", "no cache", "无缓存"),
    rung("2", "aside", "cache-aside, ids that are made up", "旁路缓存, 缓存穿透"),
    rung("3", "null", "null values", "缓存空值"),
    rung("4", "bloom", "a Bloom filter", "布隆过滤器"),
    rung("5", "hot", "a hot key expires", "缓存击穿, 热点 key"),
    rung("6", "mutex", "a lock for the one that rebuilds", "互斥锁"),
    rung("7", "logical", "logical expiry", "逻辑过期"),
    rung("8a", "avalanche", "one expiry for all", "缓存雪崩"),
    rung("8b", "jitter", "expiry with jitter", "随机过期时间"),
    rung("9a", "delete-first", "delete, then write", "先删缓存再写库"),
    rung("9b", "write-first", "write, then delete", "先写库再删缓存"),
    rung("9c", "versions", "write, then delete; a copy names its version", "版本号"),
    rung("10a", "two-levels", "two levels, none tells the other", "二级缓存"),
    rung("10b", "told", "two levels, and a message", "Pub/Sub 失效通知"),
];

/// Plays a rung.
pub async fn climb(rung: &Rung, shelf: &Shelf) -> anyhow::Result<(Facts, Figures)> {
    match rung.key {
        "none" => none::play(shelf).await?,
        "aside" => aside::play(shelf).await?,
        "null" => null_values::play(shelf).await?,
        "bloom" => bloom::play(shelf).await?,
        "hot" => hot_key::play(shelf).await?,
        "mutex" => mutex::play(shelf).await?,
        "logical" => logical::play(shelf).await?,
        "avalanche" => avalanche::play(shelf, 0).await?,
        "jitter" => avalanche::play(shelf, 1_000).await?,
        // A coupon is changed while it is read.
        "delete-first" => order::delete_first(shelf, 1).await?,
        "write-first" => order::write_first(shelf, 1).await?,
        "versions" => order::versions(shelf, 1).await?,
        "two-levels" => two_levels::play(shelf, 1, false).await?,
        _ => two_levels::play(shelf, 1, true).await?,
    }
    shelf.outcome().await
}
