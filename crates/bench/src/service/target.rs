//! The service under test: started for the measurement, or running already.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use chrono::TimeDelta;
use hyper::{Method, Uri};
use private_servers::PrivateServers;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::load::connection::Address;
use crate::load::crowd::{Crowd, FIRST_USER, admin_header};
use crate::load::scenario::{Book, Paths, REPEATING_BUYERS, Scenario, Senders, Workload};
use crate::service::cpu::Processes;
use crate::service::keeper::Kept;
use crate::service::verdict::{Judge, Reconciler, Verdict};
use flash_sale::base::clock::Clock;
use flash_sale::base::config::{InvalidConfig, StoreConfig, validate_secret};
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::jwt::Tokens;
use flash_sale::sale::ids::CouponId;

/// Path of the routes that do nothing: the service's, and the bare one of the bench.
pub const NO_OP: &str = "/v1/no-op";

/// A service that can be measured.
pub struct Target {
    pub name: String,
    pub address: Address,
    pub processes: Processes,
    /// None: its stores were not named.
    pub judge: Option<Judge>,
    /// Possible sales of its slices.
    pub books: Vec<Book>,
    /// Whether a worker writes what is sold while it is being sold.
    pub writes: bool,
    /// Sales that a win is spread over; their lanes follow one another.
    pub sales: usize,
    /// Further addresses that the load goes to, beside [`Target::address`].
    pub further: Vec<Address>,
    kept: Option<Kept>,
    /// Another process of the service, on the same stores.
    worker: Option<Kept>,
    /// Processes of the service that answer requests, where the first one only writes.
    doors: Vec<Kept>,
    /// The private servers, as a guest.
    pub servers: Option<PrivateServers>,
    secret: SecretString,
    tokens: Arc<Tokens>,
    next_user: i64,
}

impl Target {
    /// Starts `binary serve` on private servers of its own.
    pub async fn start(
        name: &str,
        binary: &Path,
        service_args: &str,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Self> {
        let secret = SecretString::from(format!("{}{}", Uuid::new_v4(), Uuid::new_v4()));
        let service_args: Vec<String> =
            service_args.split_whitespace().map(str::to_owned).collect();
        let kept = Kept::start(binary, &service_args, &secret, shutdown).await?;
        let servers = PrivateServers::join(&kept.folder).await?;
        let servers = servers.context("the service under test has no private servers")?;
        let (redis_url, database_url) = (servers.redis_url(), servers.database_url());
        let reconciler = Reconciler::Binary {
            path: binary.to_owned(),
            redis_url: redis_url.to_owned(),
            database_url: database_url.to_owned(),
        };
        let judge = Judge::connect(redis_url, database_url, "fs", reconciler).await?;
        let ids = servers.process_ids();
        let processes = Processes {
            service: vec![kept.pid],
            redis: Some(ids.redis),
            postgres: Some(ids.postgres),
            not_counted: vec![judge.backend],
        };
        Ok(Self {
            address: Address::of(&kept.url).await?,
            kept: Some(kept),
            processes,
            judge: Some(judge),
            servers: Some(servers),
            ..Self::at_url(name, "http://127.0.0.1:1", &secret).await?
        })
    }

    /// Starts the bare route, a process of the bench.
    pub async fn bare_route(shutdown: &Shutdown) -> anyhow::Result<Self> {
        let secret = SecretString::from(format!("{}{}", Uuid::new_v4(), Uuid::new_v4()));
        let kept = Kept::start_bare_route(shutdown).await?;
        let processes = Processes { service: vec![kept.pid], ..Processes::default() };
        let url = kept.url.clone();
        Ok(Self {
            processes,
            writes: false,
            kept: Some(kept),
            ..Self::at_url("", &url, &secret).await?
        })
    }

    /// Uses a service that runs already; with its stores, if the settings name them.
    pub async fn at(name: &str, url: &str, stores: &StoreConfig) -> anyhow::Result<Self> {
        let Some(secret) = &stores.token_secret else {
            return Err(InvalidConfig::new(
                "--url needs --token-secret: the bench signs tokens that the service accepts",
            )
            .into());
        };
        validate_secret(secret)?;
        if stores.sentinels()?.is_some() {
            return Err(InvalidConfig::new(
                "the bench asks no sentinels: leave --redis-sentinels away, and let --redis-url name the master itself",
            )
            .into());
        }
        let secret = SecretString::from(secret.expose_secret());
        let mut target = Self::at_url(name, url, &secret).await?;
        if let (Some(redis), Some(database)) = (&stores.redis_url, &stores.database_url) {
            let redis = redis.expose_secret();
            let database = database.expose_secret();
            target.judge =
                Some(Judge::connect(redis, database, &stores.key_prefix, Reconciler::Own).await?);
        }
        Ok(target)
    }

    async fn at_url(name: &str, url: &str, secret: &SecretString) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            address: Address::of(url).await?,
            processes: Processes::default(),
            judge: None,
            books: Vec::new(),
            writes: true,
            sales: 1,
            further: Vec::new(),
            kept: None,
            worker: None,
            doors: Vec::new(),
            servers: None,
            secret: secret.clone(),
            tokens: Arc::new(Tokens::new(secret)),
            next_user: FIRST_USER,
        })
    }

    /// Waits until everything that was sold is written, and judges it.
    pub async fn judge(&self) -> anyhow::Result<Verdict> {
        let Some(judge) = &self.judge else { return Ok(Verdict::default()) };
        judge.drain().await?;
        judge.judge(&self.books).await
    }

    /// Starts another process on its private servers, which does nothing but write. Returns its id.
    pub async fn start_worker(
        &mut self,
        binary: &Path,
        arguments: &[String],
        shutdown: &Shutdown,
    ) -> anyhow::Result<u32> {
        let servers = self.servers.as_ref().context("only private servers get a worker")?;
        let urls = ["--redis-url", servers.redis_url(), "--database-url", servers.database_url()];
        let role = ["--roles", "worker", "--admin-listen", "127.0.0.1:0"];
        let arguments: Vec<String> = role
            .iter()
            .chain(&urls)
            .map(|argument| (*argument).to_owned())
            .chain(arguments.iter().cloned())
            .collect();
        let worker = Kept::start(binary, &arguments, &self.secret, shutdown).await?;
        Ok(self.worker.insert(worker).pid)
    }

    /// Starts a process on its private servers that answers requests, with further arguments, and returns its address.
    pub async fn start_door(
        &mut self,
        binary: &Path,
        further: &[&str],
        shutdown: &Shutdown,
    ) -> anyhow::Result<Address> {
        let servers = self.servers.as_ref().context("only private servers get a door")?;
        let arguments = [
            "--roles",
            "api",
            "--redis-url",
            servers.redis_url(),
            "--database-url",
            servers.database_url(),
        ];
        let arguments: Vec<String> =
            arguments.iter().chain(further).map(|argument| (*argument).to_owned()).collect();
        let door = Kept::start(binary, &arguments, &self.secret, shutdown).await?;
        let address = Address::of(&door.url).await?;
        self.processes.service.push(door.pid);
        self.doors.push(door);
        Ok(address)
    }

    /// The folder of the service's data; none if the bench has not started it.
    pub fn folder(&self) -> Option<PathBuf> {
        self.kept.as_ref().map(|kept| kept.folder.clone())
    }

    /// Ends that worker, and waits for its end.
    pub async fn stop_worker(&mut self) -> anyhow::Result<()> {
        match self.worker.take() {
            Some(worker) => worker.stop().await,
            None => Ok(()),
        }
    }

    /// Ends what was started for it.
    pub async fn close(mut self) -> anyhow::Result<()> {
        let mut stopped = self.stop_worker().await;
        for door in self.doors {
            stopped = door.stop().await.and(stopped);
        }
        if let Some(judge) = self.judge {
            judge.pool.close().await;
        }
        match self.kept {
            Some(kept) => kept.stop().await.and(stopped),
            None => stopped,
        }
    }

    /// The cheapest workload, to learn how many users a slice could need at most.
    pub fn cheapest(&self) -> anyhow::Result<Workload> {
        let paths = Paths::InTurn(vec![Uri::from_static("/livez")]);
        let addresses = std::iter::once(&self.address).chain(&self.further).cloned().collect();
        Ok(Workload { addresses, method: Method::GET, paths, who: Senders::None, hoped: &[200] })
    }

    /// A fresh coupon and fresh users for so many requests.
    pub async fn prepare(
        &mut self,
        scenario: Scenario,
        requests: u64,
    ) -> anyhow::Result<(Workload, Book)> {
        let mut book = Book { scenario: scenario.name(), ..Book::default() };
        let mut workload = Workload { hoped: scenario.hoped(), ..self.cheapest()? };
        if let Scenario::NoOp | Scenario::Bare = scenario {
            workload.paths = Paths::InTurn(vec![Uri::from_static(NO_OP)]);
        } else {
            let stock = scenario.stock(requests);
            let coupon = self.create_sale(stock, &mut book).await?;
            workload.paths = Paths::InTurn(vec![claims_of(coupon)?]);
            match scenario {
                Scenario::Read => {
                    let coupon = format!("/v1/coupons/{coupon}").parse()?;
                    workload.paths = Paths::InTurn(vec![coupon]);
                }
                Scenario::SoldOut => drop(self.claim_all(coupon, 1, &mut book).await?),
                Scenario::Mixed => {
                    let sold_out = self.create_sale(1, &mut book).await?;
                    self.claim_all(sold_out, 1, &mut book).await?;
                    let win = claims_of(coupon)?;
                    workload.paths = Paths::Mixed { win, refusal: claims_of(sold_out)? };
                }
                Scenario::Duplicate => {
                    let crowd = self.claim_all(coupon, REPEATING_BUYERS, &mut book).await?;
                    workload.who = Senders::Few(crowd);
                }
                Scenario::Win => {
                    for _ in 1..self.sales {
                        self.create_sale(stock, &mut book).await?;
                    }
                    let coupons = book.coupons.iter().map(|coupon| claims_of(*coupon));
                    workload.paths = Paths::InTurn(coupons.collect::<anyhow::Result<_>>()?);
                }
                _ => {}
            }
        }
        if scenario == Scenario::Read {
            return Ok((workload, book));
        }
        workload.method = Method::POST;
        if let Senders::None = workload.who {
            workload.who = Senders::All(self.sign(usize::try_from(requests)?).await?);
        }
        self.try_out(scenario).await?;
        Ok((workload, book))
    }

    /// New users.
    async fn sign(&mut self, count: usize) -> anyhow::Result<Arc<Crowd>> {
        let tokens = self.tokens.clone();
        let first = self.next_user;
        self.next_user += i64::try_from(count)?;
        let sign = move || Arc::new(Crowd::sign(&tokens, first, count));
        Ok(tokio::task::spawn_blocking(sign).await?)
    }

    async fn create_sale(&self, stock: i64, book: &mut Book) -> anyhow::Result<CouponId> {
        let now = Clock::System.now();
        let opens_at = now - TimeDelta::minutes(1);
        let closes_at = now + TimeDelta::days(1);
        let sale = json!({"total": stock, "opens_at": opens_at, "closes_at": closes_at});
        let coupon = json!({"kind": "flash", "title": "Bench", "pay_cents": 1, "value_cents": 2, "sale": sale});
        let token = admin_header(&self.tokens);
        let path = Uri::from_static("/v1/coupons");
        let (status, answer) = self.address.ask(&Method::POST, &path, token, Some(&coupon)).await?;
        let id = answer["id"].as_str().and_then(|id| id.parse().ok());
        let Some(id) = id.filter(|_| status == 201) else {
            bail!("a coupon could not be created ({status}): {}", reason(&answer));
        };
        book.coupons.push(id);
        book.total += stock;
        Ok(id)
    }

    /// Makes claims of new users before the clock starts.
    async fn claim_all(
        &mut self,
        coupon: CouponId,
        users: usize,
        book: &mut Book,
    ) -> anyhow::Result<Arc<Crowd>> {
        let crowd = self.sign(users).await?;
        let path = claims_of(coupon)?;
        for index in 0..users {
            let token = crowd.header(index).context("they have been signed above")?;
            let (status, answer) = self.address.ask(&Method::POST, &path, token, None).await?;
            if status != 202 {
                bail!("a claim was not accepted ({status}): {}", reason(&answer));
            }
            book.accepted += 1;
        }
        Ok(crowd)
    }

    /// Finds a wrong secret or a missing route before the clock starts.
    async fn try_out(&mut self, scenario: Scenario) -> anyhow::Result<()> {
        if scenario != Scenario::NoOp {
            return Ok(());
        }
        let crowd = self.sign(1).await?;
        let token = crowd.header(0).context("there is one")?;
        let path = Uri::from_static(NO_OP);
        let (status, answer) = self.address.ask(&Method::POST, &path, token, None).await?;
        if status != 202 {
            bail!(
                "{path} was answered {status} ({}): start the service with --no-op-route",
                reason(&answer)
            );
        }
        Ok(())
    }
}

fn claims_of(coupon: CouponId) -> anyhow::Result<Uri> {
    Ok(format!("/v1/coupons/{coupon}/claims").parse()?)
}

fn reason(answer: &Value) -> &str {
    answer["detail"].as_str().or(answer["code"].as_str()).unwrap_or("no reason given")
}
