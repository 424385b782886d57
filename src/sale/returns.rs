//! Hears of units that come back, so that a sale that was sold out is asked about again at once.
//!
//! # Model
//!
//! Whoever brings units back to a sale publishes its id in the same step (`lua/give_back.lua`,
//! `lua/apply_coupon.lua`). Each process listens on a connection of its own, and forgets what it believed of that sale.
//!
//! # What is not promised
//!
//! That a message is heard: nothing rests on it. A belief ends by itself after `--sold-out-memory-ms`, with or without
//! this. What was published while nobody listened is made up for by forgetting everything when listening begins.

use std::sync::Arc;

use redis::aio::SendError;
use redis::{PushInfo, PushKind, RedisResult, Value};
use tokio_util::sync::CancellationToken;

use super::keys::Keys;
use super::sold_out::SoldOutSales;
use crate::base::limits;
use crate::base::shutdown::Shutdown;
use crate::kit::redis::Redis;

/// Listens as a task of the service, until it stops.
pub fn listen(redis: Redis, keys: &Keys, sold_out: Arc<SoldOutSales>, shutdown: &Shutdown) {
    let (channel, stop) = (keys.returns_channel(), shutdown.stop_token().clone());
    shutdown.spawn(async move {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                heard = listen_once(&redis, &channel, &sold_out) => if let Err(error) = heard {
                    tracing::debug!(%error, "nobody tells of units that come back");
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(limits::RETURNS_LISTEN_PAUSE) => {}
            }
        }
    });
}

/// Until the connection ends.
async fn listen_once(
    redis: &Redis,
    channel: &str,
    sold_out: &Arc<SoldOutSales>,
) -> RedisResult<()> {
    let ended = CancellationToken::new();
    let heard = {
        let (sold_out, ended) = (sold_out.clone(), ended.clone());
        move |push: PushInfo| {
            match push.kind {
                PushKind::Message => forget(&sold_out, push.data.get(1)),
                PushKind::Disconnection => ended.cancel(),
                _ => {}
            }
            Ok::<_, SendError>(())
        }
    };
    let mut connection = redis.listening_connection(heard).await?;
    connection.subscribe(channel).await?;
    sold_out.forget_all();
    ended.cancelled().await;
    Ok(())
}

/// The message is a coupon's id; others are none of ours.
fn forget(sold_out: &SoldOutSales, message: Option<&Value>) {
    if let Some(Value::BulkString(id)) = message
        && let Ok(id) = std::str::from_utf8(id)
        && let Ok(coupon) = id.parse()
    {
        sold_out.forget(coupon);
    }
}
