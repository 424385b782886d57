//! RocketMQ: a broker that can be killed, its name server, and what the broker's own tool reads of it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use private_servers::testing::{Process, run_within};
use serde_json::Value;

use crate::deliveries::Delivery;
use crate::engine::{INSTALL_TIME, NAME, classes, free_port};
use crate::service::until;

/// Bytes of an entry in the index that a broker keeps of each queue.
const ENTRY_BYTES: usize = 20;

/// What a test needs beside the broker.
pub struct RocketMq {
    installed: PathBuf,
    folder: PathBuf,
    broker: String,
    pub name_servers: String,
    _name_server: Process,
}

/// The relay: of the environment, or where `make relay-engines` builds it.
pub fn relay() -> PathBuf {
    let built = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../relay-rocketmq/target/release/flash-sale-relay-rocketmq"
    );
    let named = std::env::var_os("FLASH_SALE_RELAY_ROCKETMQ_BINARY");
    let path = named.map_or_else(|| built.into(), PathBuf::from);
    assert!(
        path.exists(),
        "run `cargo build --release` in crates/relay-rocketmq first: {} is missing",
        path.display()
    );
    path
}

/// The broker, whose settings `RocketMq::start` has written.
pub fn broker(installed: &Path, folder: &Path) -> Command {
    let mut command = java(installed, folder, "broker.BrokerStartup");
    command.arg("-c").arg(folder.join("broker"));
    command
}

/// Its programs take `user.home` for their logs, and ask for the folder of their installation.
fn java(installed: &Path, folder: &Path, class: &str) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xmx512m", "-cp"]).arg(classes(installed, "rocketmq"));
    // It frees its buffers by Java's internals.
    for package in ["java.nio", "jdk.internal.ref", "sun.nio.ch"] {
        command.arg(format!("--add-opens=java.base/{package}=ALL-UNNAMED"));
    }
    for property in ["user.home", "rocketmq.home.dir"] {
        command.arg(format!("-D{property}={}", folder.display()));
    }
    command.arg(format!("org.apache.rocketmq.{class}")).stdin(Stdio::null());
    command
}

impl RocketMq {
    /// A name server, and the settings of a broker.
    pub fn start(installed: &Path, folder: &Path, broker: &str) -> Self {
        let name_servers = format!("127.0.0.1:{}", free_port());
        write_settings(folder, broker, &name_servers);
        let mut name_server = java(installed, folder, "namesrv.NamesrvStartup");
        name_server.arg("-c").arg(folder.join("name_server"));
        Self {
            installed: installed.to_owned(),
            folder: folder.to_owned(),
            broker: broker.to_owned(),
            name_servers,
            _name_server: Process::spawn(name_server),
        }
    }

    /// Makes the topic as soon as the broker answers.
    pub async fn create_topic(&self) {
        until("the topic is made", async || {
            let topic = ["updateTopic", "-t", NAME, "-r", "4", "-w", "4", "-o", "true"];
            let topic = [&topic[..], &["-b", &self.broker]].concat();
            TcpStream::connect(&self.broker).is_ok() && self.admin(&topic).await.contains("success")
        })
        .await;
    }

    /// What `mqadmin` prints. It ends with 0 whatever happens.
    async fn admin(&self, arguments: &[&str]) -> String {
        let class = "tools.command.MQAdminStartup";
        let mut command = java(&self.installed, &self.folder, class);
        command.args(arguments).args(["-n", &self.name_servers]);
        run_within(command, INSTALL_TIME).await.stdout
    }

    /// Number of messages that the broker has put into queues.
    pub fn count(&self) -> Option<u64> {
        let mut count = 0;
        for queue in fs::read_dir(self.folder.join("store/consumequeue").join(NAME)).ok()? {
            for file in fs::read_dir(queue.ok()?.path()).ok()? {
                let bytes = fs::read(file.ok()?.path()).ok()?;
                let entries = bytes.chunks(ENTRY_BYTES);
                // Files are as long as they will be; what isn't used yet is zero.
                count += entries.filter(|entry| entry.iter().any(|&byte| byte != 0)).count();
            }
        }
        u64::try_from(count).ok()
    }

    /// All messages, one queue behind the other.
    pub async fn deliveries(&self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        // It leaves out the rest of a queue if a busy broker is slow.
        until("mqadmin prints all messages", async || {
            let printed = self.admin(&["printMsg", "-t", NAME, "-d", "true"]).await;
            deliveries = printed.lines().filter_map(of_line).collect();
            u64::try_from(deliveries.len()).ok() == self.count()
        })
        .await;
        deliveries
    }
}

fn write_settings(folder: &Path, broker: &str, name_servers: &str) {
    let port = |address: &str| address.rsplit_once(':').expect("host and port").1.to_owned();
    let store = folder.join("store");
    // Small files, and time-outs for a machine however busy.
    let broker = format!(
        "brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort={}
fastListenPort={}
haListenPort={}
namesrvAddr={name_servers}
storePathRootDir={}
storePathCommitLog={}
mappedFileSizeCommitLog=16777216
mappedFileSizeConsumeQueue=120000
diskMaxUsedSpaceRatio=99
waitTimeMillsInSendQueue=10000
osPageCacheBusyTimeOutMills=10000
",
        port(broker),
        free_port(),
        free_port(),
        store.display(),
        store.join("commitlog").display()
    );
    fs::write(folder.join("broker"), broker).expect("the folder is new");
    let name_server = format!("bindAddress=127.0.0.1\nlistenPort={}\n", port(name_servers));
    fs::write(folder.join("name_server"), name_server).expect("the folder is new");
}

/// `MSGID: ... MessageExt [... queueId=1, ... properties={KEYS=..., ...} ...] BODY: {...}`; none for other lines.
fn of_line(line: &str) -> Option<Delivery> {
    let (about, body) = line.split_once(" BODY: ")?;
    let word = |name: &str| {
        let (_, value) = about.split_once(name)?;
        value.split([',', '}']).next()
    };
    let event: Value = serde_json::from_str(body).expect("JSON");
    let id = event["id"].as_str().expect("each has an id").to_owned();
    assert_eq!(word("KEYS="), Some(id.as_str()));
    assert_eq!(word("TAGS="), event["type"].as_str());
    let key = event["data"]["order_id"].as_str().or(event["data"]["coupon_id"].as_str());
    assert_eq!(word("__SHARDINGKEY="), key);
    let partition = word("queueId=").and_then(|queue| queue.parse().ok()).expect("a number");
    Some(Delivery { id, event, partition })
}
