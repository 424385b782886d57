//! A NATS server or a broker of Kafka or RocketMQ that a test kills and starts again.

use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use private_servers::testing::{DataFolder, Process, run_within};
use rskafka::BackoffConfig;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;
use serde_json::{Value, json};

use crate::deliveries::Delivery;
use crate::rocketmq::{self, RocketMq};

/// Stream or topic.
pub const NAME: &str = "sales";
/// Time for Go and Maven to download and build.
pub const INSTALL_TIME: Duration = Duration::from_secs(1_200);

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Nats,
    Kafka,
    RocketMq,
}

impl Kind {
    /// Its name for `engines`.
    fn name(self) -> &'static str {
        match self {
            Kind::Nats => "nats",
            Kind::Kafka => "kafka",
            Kind::RocketMq => "rocketmq",
        }
    }
}

pub struct Engine {
    kind: Kind,
    address: String,
    process: Process,
    /// What stands around the broker of RocketMQ, and isn't killed with it.
    rocketmq: Option<RocketMq>,
    /// The last, so that it is removed when nothing writes there.
    folder: DataFolder,
}

/// What `engines` installs under this name; none, with the reason printed, if it can't be had.
pub async fn installed(what: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("engines");
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("engines"));
    command.arg(&folder).arg(what).stdin(Stdio::null());
    let finished = run_within(command, INSTALL_TIME).await;
    if finished.code == Some(0) {
        return Some(folder);
    }
    println!("skipped: {what} can't be installed: {}{}", finished.stdout, finished.stderr);
    None
}

impl Engine {
    /// A new one without data; none if it can't be had.
    pub async fn start(kind: Kind) -> Option<Self> {
        let installed = installed(kind.name()).await?;
        let folder = DataFolder::made(0o700);
        let address = format!("127.0.0.1:{}", free_port());
        if kind == Kind::Kafka {
            format_kafka(&installed, folder.path(), &address).await;
        }
        let rocketmq =
            (kind == Kind::RocketMq).then(|| RocketMq::start(&installed, folder.path(), &address));
        let process = Process::spawn(command(kind, &installed, folder.path(), &address));
        if let Some(rocketmq) = &rocketmq {
            rocketmq.create_topic().await;
        }
        Some(Self { kind, address, process, rocketmq, folder })
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it with what it had written.
    pub async fn start_again(&mut self) {
        let installed = installed(self.kind.name()).await.expect("it was installed");
        let command = command(self.kind, &installed, self.folder.path(), &self.address);
        self.process = Process::spawn(command);
    }

    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// What the relay is told about it.
    pub fn arguments(&self) -> Vec<String> {
        let words = match self.kind {
            Kind::Nats => ["--nats", &self.url(), "--stream", NAME],
            Kind::Kafka => ["--kafka", &self.address, "--topic", NAME],
            Kind::RocketMq => ["--name-servers", &self.rocketmq().name_servers, "--topic", NAME],
        };
        words.map(str::to_owned).to_vec()
    }

    /// The program that relays to it.
    pub fn relay(&self) -> PathBuf {
        match self.kind {
            Kind::Nats | Kind::Kafka => env!("CARGO_BIN_EXE_flash-sale-relay").into(),
            Kind::RocketMq => rocketmq::relay(),
        }
    }

    fn rocketmq(&self) -> &RocketMq {
        self.rocketmq.as_ref().expect("it is RocketMQ")
    }

    /// Number of messages; none while it doesn't answer.
    pub async fn count(&self) -> Option<u64> {
        if TcpStream::connect(&self.address).is_err() {
            return None;
        }
        match self.kind {
            Kind::Nats => {
                let mut stream = self.stream().await?;
                Some(stream.info().await.ok()?.state.messages)
            }
            Kind::Kafka => {
                let mut count = 0;
                for partition in self.partitions().await? {
                    count += partition.get_offset(OffsetAt::Latest).await.ok()?;
                }
                u64::try_from(count).ok()
            }
            Kind::RocketMq => self.rocketmq().count(),
        }
    }

    /// All messages: in the order of the stream, or of one partition behind the other.
    pub async fn deliveries(&self) -> Vec<Delivery> {
        match self.kind {
            Kind::Nats => self.nats_deliveries().await,
            Kind::Kafka => self.kafka_deliveries().await,
            Kind::RocketMq => self.rocketmq().deliveries().await,
        }
    }

    async fn stream(&self) -> Option<async_nats::jetstream::stream::Stream> {
        let client = async_nats::connect(self.url()).await.ok()?;
        async_nats::jetstream::new(client).get_stream(NAME).await.ok()
    }

    async fn nats_deliveries(&self) -> Vec<Delivery> {
        let mut stream = self.stream().await.expect("the stream is there");
        let last = stream.info().await.expect("NATS answers").state.last_sequence;
        let mut deliveries = Vec::new();
        for sequence in 1..=last {
            let message = stream.get_raw_message(sequence).await.expect("nothing is deleted");
            let event: Value = serde_json::from_slice(&message.payload).expect("JSON");
            let id = message.headers.get("Nats-Msg-Id").expect("each has an id").to_string();
            assert_eq!(event["id"], id);
            let kind = event["type"].as_str().expect("a type");
            let subject = match event["data"]["coupon_id"].as_str() {
                Some(coupon) => format!("flash-sale.{kind}.{coupon}"),
                None => format!("flash-sale.{kind}"),
            };
            assert_eq!(message.subject.as_str(), subject);
            deliveries.push(Delivery { id, event, partition: 0 });
        }
        deliveries
    }

    async fn kafka_client(&self) -> Option<Client> {
        // The client doesn't find a leader that was elected after its start, and would wait for it for ever.
        let backoff =
            BackoffConfig { deadline: Some(Duration::from_secs(5)), ..Default::default() };
        let client = ClientBuilder::new(vec![self.address.clone()]).backoff_config(backoff);
        client.build().await.ok()
    }

    async fn partitions(&self) -> Option<Vec<PartitionClient>> {
        let client = self.kafka_client().await?;
        let topics = client.list_topics().await.ok()?;
        let topic = topics.into_iter().find(|topic| topic.name == NAME)?;
        let mut partitions = Vec::new();
        for partition in topic.partitions {
            let client = client.partition_client(NAME, partition, UnknownTopicHandling::Error);
            partitions.push(client.await.ok()?);
        }
        Some(partitions)
    }

    async fn kafka_deliveries(&self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        for partition in self.partitions().await.expect("the topic is there") {
            let mut offset = 0;
            let end = partition.get_offset(OffsetAt::Latest).await.expect("Kafka answers");
            while offset < end {
                let fetched = partition.fetch_records(offset, 1..1_000_000, 1_000).await;
                for found in fetched.expect("Kafka answers").0 {
                    offset = found.offset + 1;
                    deliveries.push(of_record(&found.record, partition.partition()));
                }
            }
        }
        deliveries
    }
}

/// A record in the binary mode of CloudEvents.
fn of_record(record: &Record, partition: i32) -> Delivery {
    let header = |name: &str| {
        let value = record.headers.get(name)?;
        Some(String::from_utf8(value.clone()).expect("headers are text"))
    };
    let value = record.value.as_deref().expect("each has a value");
    let data: Value = serde_json::from_slice(value).expect("JSON");
    let key = data["order_id"].as_str().or(data["coupon_id"].as_str());
    assert_eq!(record.key.as_deref(), key.map(str::as_bytes));
    assert_eq!(header("ce_specversion").as_deref(), Some("1.0"));
    let id = header("ce_id").expect("each has an id");
    let event = json!({
        "id": id, "type": header("ce_type"), "source": header("ce_source"),
        "subject": header("ce_subject"), "data": data,
    });
    Delivery { id, event, partition }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

fn command(kind: Kind, installed: &Path, folder: &Path, address: &str) -> Command {
    let mut command = match kind {
        Kind::Nats => {
            let (host, port) = address.split_once(':').expect("host and port");
            let mut command = Command::new(installed.join("nats-server"));
            command.args(["-a", host, "-p", port, "-js", "-sd"]).arg(folder);
            command
        }
        Kind::Kafka => {
            let mut command = java(installed, kind.name(), "kafka.Kafka");
            command.arg(folder.join("settings"));
            command
        }
        Kind::RocketMq => rocketmq::broker(installed, folder),
    };
    command.stdin(Stdio::null());
    command
}

/// A program of an engine that came by Maven.
fn java(installed: &Path, engine: &str, class: &str) -> Command {
    let mut command = Command::new("java");
    command.arg("-Xmx512m").arg("-cp").arg(classes(installed, engine)).arg(class);
    command
}

pub fn classes(installed: &Path, engine: &str) -> OsString {
    let mut classes = OsString::from(installed.join(engine));
    classes.push("/*");
    classes
}

/// The settings of a broker that is its own controller, and its empty log.
async fn format_kafka(installed: &Path, folder: &Path, address: &str) {
    let controller = free_port();
    let log = folder.join("log");
    let settings = format!(
        "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={}
num.partitions=3
offsets.topic.replication.factor=1
broker.session.timeout.ms=2000
",
        log.display()
    );
    fs::write(folder.join("settings"), settings).expect("the folder is new");
    let mut format = java(installed, "kafka", "kafka.tools.StorageTool");
    format.args(["format", "-t", "MDEyMzQ1Njc4OWFiY2RlZg", "-c"]).arg(folder.join("settings"));
    let finished = run_within(format, INSTALL_TIME).await;
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
}
