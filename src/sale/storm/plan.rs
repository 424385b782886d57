//! A storm as it is asked for, and the program that is its crowd.

use std::path::PathBuf;
use std::process::Stdio;

use garde::Validate;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::process::{Child, Command};
use utoipa::ToSchema;

use crate::base::limits;

/// A storm as it is asked for.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema, Validate)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Shoppers, each a user of their own.
    #[garde(range(min = 1, max = limits::STORM_SHOPPERS_MAX))]
    #[schema(minimum = 1, maximum = 100_000)]
    pub shoppers: u32,
    /// Units on sale.
    #[garde(range(min = 1, max = limits::STORM_SHOPPERS_MAX))]
    #[schema(minimum = 1, maximum = 100_000)]
    pub stock: u32,
    /// Seconds in which the shoppers arrive, evenly.
    #[garde(range(max = limits::STORM_SECONDS_MAX))]
    #[schema(maximum = 60)]
    pub over_s: u32,
    /// Shoppers of a hundred that ask once more after their answer.
    #[garde(range(max = 100))]
    #[schema(maximum = 100)]
    pub twice_percent: u32,
}

/// The program that is a crowd, and how it finds the service.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// All variables of its environment: those by which it signs tokens.
    pub variables: Vec<(&'static str, SecretString)>,
    /// Where the service answers.
    pub url: String,
}

impl Program {
    /// Starts the crowd. It ends with its handle.
    pub fn start(&self, plan: Plan) -> std::io::Result<Child> {
        let mut command = Command::new(&self.path);
        command.args(["storm", "--url", &self.url]);
        for (flag, number) in [
            ("--shoppers", plan.shoppers),
            ("--stock", plan.stock),
            ("--over", plan.over_s),
            ("--twice", plan.twice_percent),
        ] {
            command.args([flag, &number.to_string()]);
        }
        // Our own environment may hold other secrets, and the crowd's can be read for as long as it lives.
        command.env_clear();
        let variables = self.variables.iter();
        command.envs(variables.map(|(name, value)| (*name, value.expose_secret())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command.spawn()
    }
}
