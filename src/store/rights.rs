//! The rights in Redis that the service needs: each kind of key and channel, and each command.
//!
//! A missing right shows only when a command is run, which may be months later. So `serve` and `doctor` try all of them
//! once, without an effect.

use redis::{Cmd, RedisResult};
use redisson_locks::{channel, latch_key};

use crate::store::ids::{CouponId, Lane, UserId};
use crate::store::keys::Keys;
use crate::store::redis::Redis;

/// Each command with its required arguments; `K` stands for a key.
const COMMANDS: [&str; 38] = [
    "DEL K",
    "EVALSHA 0 1 K",
    "EXISTS K",
    "EXPIRE K 1",
    "GET K",
    "HDEL K f",
    "HEXISTS K f",
    "HGET K f",
    "HINCRBY K f 1",
    "HLEN K",
    "HMGET K f",
    "HSCAN K 0",
    "HSET K f v",
    "HSETNX K f v",
    "INFO",
    "MGET K",
    "PEXPIRE K 1",
    "PING",
    "PTTL K",
    "RENAME K K",
    "SET K v",
    "TIME",
    "TYPE K",
    "UNLINK K",
    "WAIT 0 1",
    "XACK K g 1-1",
    "XADD K * f v",
    "XGROUP CREATE K g 0",
    "XINFO GROUPS K",
    "XINFO STREAM K",
    "XPENDING K g",
    "XRANGE K - +",
    "XREADGROUP GROUP g c STREAMS K >",
    "XTRIM K MINID 0",
    "ZADD K 1 m",
    "ZRANGE K 0 1",
    "ZREM K m",
    "ZREMRANGEBYSCORE K 0 1",
];

/// The rights that the service needs and Redis denies, each in words.
///
/// # Errors
///
/// When Redis can't be reached.
pub async fn missing(redis: &Redis, keys: &Keys) -> RedisResult<Vec<String>> {
    let lane = Lane::numbered(0);
    let coupon = CouponId::compose(1, 1);
    let user = UserId::new(1).expect("a positive number");
    let lock = keys.order_lock(lane, user);
    let kinds = [
        keys.lane(lane),
        keys.coupon(coupon),
        keys.buyers(coupon, 0),
        keys.log(lane),
        keys.unpaid(lane),
        keys.processes(),
        keys.process("a"),
        latch_key(&lock, "a"),
        lock.clone(),
    ];
    let mut commands: Vec<Cmd> = COMMANDS.map(|words| command(words, &kinds[0])).into();
    commands.extend(kinds.iter().map(|key| command("EVAL return(0) 1 K", key)));
    let channels = [keys.restocks_channel(), channel(&lock)];
    commands.extend(channels.iter().map(|channel| command("PUBLISH K m", channel)));
    redis.refused(&commands, &channels).await
}

fn command(words: &str, key: &str) -> Cmd {
    let mut words = words.split(' ').map(|word| if word == "K" { key } else { word });
    let mut command = redis::cmd(words.next().unwrap_or_default());
    command.arg(words.collect::<Vec<_>>());
    command
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Collects the names of the commands that scripts run.
    fn of_scripts(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in folder.read_dir().expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                of_scripts(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(path).expect("it can be read");
            for call in ["redis.call('", "redis.pcall('"] {
                let names = text.split(call).skip(1).filter_map(|rest| rest.split('\'').next());
                found.extend(names.map(str::to_uppercase));
            }
        }
    }

    #[test]
    fn each_command_of_a_script_is_tried() {
        let mut found = BTreeSet::new();
        of_scripts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("lua"), &mut found);
        assert!(found.len() > 10, "{found:?}");
        found.remove("PUBLISH");
        let tried: BTreeSet<_> =
            COMMANDS.iter().filter_map(|words| words.split(' ').next()).collect();
        let untried: Vec<_> = found.iter().filter(|name| !tried.contains(name.as_str())).collect();
        assert!(untried.is_empty(), "{untried:?}");
    }
}
