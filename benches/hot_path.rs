//! Requests through the whole router in this process, one after the other, for `scripts/instructions`, which counts
//! the instructions of [`measured`]. Not a load test; that is `flash-sale-bench`.
//!
//! Redis and Postgres are real, but their instructions are not counted, and neither are hyper's before the router
//! sees a request.

use anyhow::bail;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use chrono::TimeDelta;
use clap::{Parser, ValueEnum};
use flash_sale::app::App;
use flash_sale::base::clock::Clock;
use flash_sale::base::config::Config;
use flash_sale::base::limits;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::http::state::HttpState;
use flash_sale::http::{self, Door};
use flash_sale::kit::jwt::{Grants, Tokens};
use flash_sale::kit::postgres;
use flash_sale::kit::redis::Redis;
use flash_sale::sale::audit::Actor;
use flash_sale::sale::coupon::create::Creation;
use flash_sale::sale::coupon::input::{NewCoupon, NewSale};
use flash_sale::sale::coupon::model::CouponKind;
use flash_sale::sale::ids::{CouponId, UserId};
use flash_sale::sale::keys::Keys;
use flash_sale::sale::{Stores, schema};
use private_servers::{PrivateServers, Settings, Sync};
use secrecy::SecretString;
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Signs tokens that are only good for counting instructions.
const SECRET: &str = "a secret that is only good for counting instructions";

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    config: Config,
    #[arg(long)]
    scenario: Scenario,
    #[arg(long, default_value_t = 1_000)]
    requests: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    NoOp,
    Win,
    SoldOut,
    Duplicate,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // One thread, so that all work of a request happens within `measured`.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let folder = std::env::temp_dir().join(format!("flash-sale-hot-path-{}", std::process::id()));
    let servers = runtime.block_on(PrivateServers::start(&folder, &Settings::new(Sync::Off)))?;
    let counted = count(&runtime, &servers, arguments);
    runtime.block_on(servers.stop())?;
    std::fs::remove_dir_all(&folder)?;
    counted
}

fn count(runtime: &Runtime, servers: &PrivateServers, arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { config, scenario, requests } = arguments;
    let state = runtime.block_on(assemble(servers, config))?;
    let tokens = Tokens::new(&SecretString::from(SECRET));
    let expected = match scenario {
        Scenario::NoOp | Scenario::Win => StatusCode::ACCEPTED,
        Scenario::SoldOut => StatusCode::GONE,
        Scenario::Duplicate => StatusCode::CONFLICT,
    };
    let path = runtime.block_on(path(state.app(), scenario, requests))?;
    let token_of = |user| {
        // Every user of the list has bought, or will; a duplicate is always the same user.
        let subject = if scenario == Scenario::Duplicate { 1 } else { user };
        let expires_at = Clock::System.now() + TimeDelta::hours(1);
        tokens.issue(Grants::user(subject), expires_at)
    };
    let request = |user| {
        let bearer = format!("Bearer {}", token_of(user));
        Request::post(&path).header(header::AUTHORIZATION, bearer).body(Body::empty())
    };
    let requests: Vec<Request<Body>> = (2..requests + 2).map(request).collect::<Result<_, _>>()?;
    let door = http::api(&state, false);
    let others = measured(runtime, &door, requests, expected);
    anyhow::ensure!(others == 0, "{others} answers were not {expected}");
    Ok(())
}

/// Answers the requests; returns how many of the answers were unexpected.
#[inline(never)]
fn measured(
    runtime: &Runtime,
    door: &Door,
    requests: Vec<Request<Body>>,
    expected: StatusCode,
) -> usize {
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    runtime.block_on(async {
        let mut others = 0;
        for request in requests {
            let response = door.answer(client, request, || false).await;
            others += usize::from(response.status() != expected);
        }
        others
    })
}

async fn assemble(servers: &PrivateServers, mut config: Config) -> anyhow::Result<HttpState> {
    config.no_op_route = true;
    // A refused user is told "sold out" from memory, however slowly the requests come.
    config.sold_out_memory_ms = 3_600_000;
    let pool = postgres::pool(servers.database_url(), 2, limits::POSTGRES_TIMEOUT)?;
    schema::migrate(&pool).await?;
    let redis = Redis::new(servers.redis_url())?;
    let stores = Stores { pool, redis, keys: Keys::new("fs") };
    let app = App::assemble(&config, stores, Clock::System, Shutdown::default()).await?;
    let secret = SecretString::from(SECRET);
    Ok(HttpState::new(app, &config, Tokens::new(&secret)))
}

/// The path of the scenario's requests, with every store in a state in which the path can be claimed again and again.
async fn path(app: &App, scenario: Scenario, requests: i64) -> anyhow::Result<String> {
    if scenario == Scenario::NoOp {
        return Ok(http::no_op::PATH.to_owned());
    }
    let total = if scenario == Scenario::SoldOut { 1 } else { requests + 1 };
    let now = Clock::System.now();
    let sale =
        NewSale { total, opens_at: now, closes_at: now + TimeDelta::hours(1), durability: None };
    let new = NewCoupon {
        kind: CouponKind::Flash,
        title: "Counted".into(),
        sub_title: String::new(),
        rules: String::new(),
        pay_cents: 0,
        currency: "CNY".into(),
        value_cents: 0,
        sale: Some(sale),
    };
    let by = Actor::command_line();
    let coupon = app.coupons.create(new, &by);
    let Creation::Created(coupon) = coupon.await? else { bail!("no durability was asked for") };
    let coupon = coupon.id;
    app.claims.claim(coupon, UserId::new(1)?).await?;
    if scenario == Scenario::SoldOut {
        wait_until_remembered(app, coupon).await?;
    }
    Ok(format!("/v1/coupons/{coupon}/claims"))
}

/// Waits until the buyers of the sold-out sale have been read.
async fn wait_until_remembered(app: &App, coupon: CouponId) -> anyhow::Result<()> {
    let stranger = UserId::new(2)?;
    while !app.memories.sold_out.refuses(coupon, stranger) {
        app.claims.claim(coupon, stranger).await?;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    Ok(())
}
