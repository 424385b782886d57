//! The service under test, started for the measurement.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use chrono::TimeDelta;
use hyper::{Method, Uri};
use private_servers::PrivateServers;
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::load::connection::Address;
use crate::load::crowd::{Crowd, FIRST_USER, admin_header};
use crate::load::scenario::{Book, REPEATING_BUYERS, Scenario, Senders, Workload};
use crate::service::cpu::Processes;
use crate::service::keeper::Kept;
use crate::service::verdict::{Judge, Verdict};
use flash_sale::base::clock::Clock;
use flash_sale::base::shutdown::Shutdown;
use flash_sale::kit::jwt::Tokens;
use flash_sale::store::ids::CouponId;

/// Path of the routes that do nothing: the service's, and the bare one of the bench.
pub const NO_OP: &str = "/v1/no-op";

/// A service that can be measured.
pub struct Target {
    pub name: String,
    pub address: Address,
    pub processes: Processes,
    /// None: it has no stores.
    judge: Option<Judge>,
    /// Possible sales of its slices.
    pub books: Vec<Book>,
    /// Whether a worker writes what is sold while it is being sold.
    pub writes: bool,
    kept: Kept,
    /// Another process of the service, on the same stores.
    worker: Option<Kept>,
    /// Another process of the service that answers requests, on the same stores.
    door: Option<Kept>,
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
        let kept = Kept::start(binary, &words(service_args), &secret, shutdown).await?;
        let servers = PrivateServers::join(&kept.folder).await?;
        let servers = servers.context("the service under test has no private servers")?;
        let judge = Judge::connect(binary, servers.redis_url(), servers.database_url()).await?;
        let ids = servers.process_ids();
        let processes = Processes {
            service: vec![kept.pid],
            redis: Some(ids.redis),
            postgres: Some(ids.postgres),
            not_counted: vec![judge.backend],
        };
        let target = Self::of(name, kept, secret).await?;
        Ok(Self { processes, judge: Some(judge), writes: true, servers: Some(servers), ..target })
    }

    /// Starts the bare route, a process of the bench.
    pub async fn bare_route(shutdown: &Shutdown) -> anyhow::Result<Self> {
        let secret = SecretString::from(format!("{}{}", Uuid::new_v4(), Uuid::new_v4()));
        Self::of("", Kept::start_bare_route(shutdown).await?, secret).await
    }

    /// A process without stores.
    async fn of(name: &str, kept: Kept, secret: SecretString) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            address: Address::of(&kept.url).await?,
            processes: Processes { service: vec![kept.pid], ..Processes::default() },
            judge: None,
            books: Vec::new(),
            writes: false,
            kept,
            worker: None,
            door: None,
            servers: None,
            tokens: Arc::new(Tokens::new(&secret)),
            secret,
            next_user: FIRST_USER,
        })
    }

    /// Looks into its stores.
    pub fn judge(&self) -> anyhow::Result<&Judge> {
        self.judge.as_ref().context("a bare route has no stores")
    }

    /// Waits until everything that was sold is written, and judges it.
    pub async fn verdict(&self) -> anyhow::Result<Verdict> {
        self.judge()?.drain().await?;
        self.judge()?.judge(&self.books).await
    }

    /// Starts another process on its private servers, which does nothing but write. Returns its id.
    pub async fn start_worker(
        &mut self,
        binary: &Path,
        service_args: &str,
        shutdown: &Shutdown,
    ) -> anyhow::Result<u32> {
        let role = ["--roles", "worker", "--admin-listen", "127.0.0.1:0"];
        let arguments = [role.map(str::to_owned).to_vec(), words(service_args)].concat();
        let worker = self.start_beside(binary, arguments, shutdown).await?;
        Ok(self.worker.insert(worker).pid)
    }

    /// Starts a process on its private servers that answers requests, with further arguments, and returns its address.
    pub async fn start_door(
        &mut self,
        binary: &Path,
        further: &[&str],
        shutdown: &Shutdown,
    ) -> anyhow::Result<Address> {
        let arguments = ["--roles", "api"].iter().chain(further).map(ToString::to_string);
        let door = self.start_beside(binary, arguments.collect(), shutdown).await?;
        self.processes.service.push(door.pid);
        Address::of(&self.door.insert(door).url).await
    }

    async fn start_beside(
        &self,
        binary: &Path,
        arguments: Vec<String>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Kept> {
        let servers = self.servers.as_ref().context("a bare route has no servers")?;
        let urls = ["--redis-url", servers.redis_url(), "--database-url", servers.database_url()];
        let arguments = [urls.map(str::to_owned).to_vec(), arguments].concat();
        Kept::start(binary, &arguments, &self.secret, shutdown).await
    }

    /// The folder of the service's data, if it has any.
    pub fn folder(&self) -> Option<PathBuf> {
        self.servers.as_ref().map(|_| self.kept.folder.clone())
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
        if let Some(door) = self.door {
            stopped = door.stop().await.and(stopped);
        }
        if let Some(judge) = self.judge {
            judge.pool.close().await;
        }
        self.kept.stop().await.and(stopped)
    }

    /// The cheapest workload, to learn how many users a slice could need at most.
    pub fn cheapest(&self) -> Workload {
        let path = Uri::from_static("/livez");
        let address = self.address.clone();
        Workload { address, method: Method::GET, path, who: Senders::None, hoped: &[200] }
    }

    /// A fresh coupon and fresh users for so many requests.
    pub async fn prepare(
        &mut self,
        scenario: Scenario,
        requests: u64,
    ) -> anyhow::Result<(Workload, Book)> {
        let mut book = Book { scenario: scenario.name(), ..Book::default() };
        let hoped = scenario.hoped();
        let mut workload = Workload { hoped, method: Method::POST, ..self.cheapest() };
        workload.path = if scenario.sells() {
            let coupon = self.create_sale(scenario.stock(requests), &mut book).await?;
            format!("/v1/coupons/{coupon}/claims").parse()?
        } else {
            Uri::from_static(NO_OP)
        };
        let path = &workload.path;
        workload.who = match scenario {
            Scenario::Duplicate => {
                Senders::Few(self.claim_all(path, REPEATING_BUYERS, &mut book).await?)
            }
            Scenario::SoldOut => {
                self.claim_all(path, 1, &mut book).await?;
                Senders::All(self.sign(usize::try_from(requests)?).await?)
            }
            _ => Senders::All(self.sign(usize::try_from(requests)?).await?),
        };
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
        book.coupon = Some(id);
        book.total = stock;
        Ok(id)
    }

    /// Makes claims of new users before the clock starts.
    async fn claim_all(
        &mut self,
        path: &Uri,
        users: usize,
        book: &mut Book,
    ) -> anyhow::Result<Arc<Crowd>> {
        let crowd = self.sign(users).await?;
        for index in 0..users {
            let token = crowd.header(index).context("they have been signed above")?;
            let (status, answer) = self.address.ask(&Method::POST, path, token, None).await?;
            if status != 202 {
                bail!("a claim was not accepted ({status}): {}", reason(&answer));
            }
            book.accepted += 1;
        }
        Ok(crowd)
    }
}

fn words(arguments: &str) -> Vec<String> {
    arguments.split_whitespace().map(str::to_owned).collect()
}

fn reason(answer: &Value) -> &str {
    answer["detail"].as_str().or(answer["code"].as_str()).unwrap_or("no reason given")
}
