//! The one line that installs missing programs on this machine.

use std::fs;

/// The systems with known package names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Debian,
    Fedora,
    MacOs,
    Other,
}

/// A server whose programs are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Redis,
    Postgres,
}

/// Facts about a machine that an install line depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    system: System,
    is_root: bool,
}

impl Machine {
    /// The machine that this process runs on.
    pub(crate) fn this() -> Self {
        let system = if cfg!(target_os = "macos") {
            System::MacOs
        } else {
            // Without the file (see os-release(5)) the system has no known name.
            System::of_os_release(&fs::read_to_string("/etc/os-release").unwrap_or_default())
        };
        Self { system, is_root: nix::unistd::geteuid().is_root() }
    }

    /// The remedy for `missing`, as a clause: "run `…`".
    pub(crate) fn install_clause(self, missing: &[Missing]) -> String {
        let Some(command) = self.system.command() else {
            return "install Redis (or Valkey) 7 and the PostgreSQL server with this system's package manager".to_owned();
        };
        // Homebrew refuses to run under sudo.
        let sudo = if self.is_root || self.system == System::MacOs { "" } else { "sudo " };
        let packages: Vec<_> =
            missing.iter().map(|missing| self.system.package(*missing)).collect();
        format!("run `{sudo}{command} {}`", packages.join(" "))
    }
}

impl System {
    /// Reads `ID` and, for derivatives, `ID_LIKE`.
    fn of_os_release(text: &str) -> Self {
        let words = |key: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            value.trim_matches(['"', '\'']).to_owned()
        };
        let ids = format!("{} {}", words("ID="), words("ID_LIKE="));
        for id in ids.split_whitespace() {
            match id {
                "debian" | "ubuntu" => return Self::Debian,
                "fedora" | "rhel" | "centos" => return Self::Fedora,
                _ => {}
            }
        }
        Self::Other
    }

    fn command(self) -> Option<&'static str> {
        match self {
            Self::Debian => Some("apt-get install -y"),
            Self::Fedora => Some("dnf install -y"),
            Self::MacOs => Some("brew install"),
            Self::Other => None,
        }
    }

    /// The package with the programs. Fedora's successor of the package `redis` is Valkey, and the package `redis` of
    /// RHEL 9 is 6.2, which is too old.
    fn package(self, missing: Missing) -> &'static str {
        match (self, missing) {
            (Self::Debian, Missing::Redis) => "redis-server",
            (Self::Fedora, Missing::Redis) => "valkey",
            (Self::Fedora, Missing::Postgres) => "postgresql-server",
            (Self::MacOs, Missing::Postgres) => "postgresql@17",
            (_, Missing::Redis) => "redis",
            (_, Missing::Postgres) => "postgresql",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(system: System, is_root: bool, missing: &[Missing]) -> String {
        Machine { system, is_root }.install_clause(missing)
    }

    #[test]
    fn the_system_is_read_from_id_and_id_like() {
        assert_eq!(System::of_os_release("NAME=x\nID=debian\n"), System::Debian);
        assert_eq!(
            System::of_os_release("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"),
            System::Debian
        );
        assert_eq!(
            System::of_os_release("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"),
            System::Fedora
        );
        assert_eq!(System::of_os_release("VERSION_ID=\"debian\"\nID=alpine\n"), System::Other);
        assert_eq!(System::of_os_release(""), System::Other);
    }

    #[test]
    fn the_line_names_only_what_is_missing() {
        let both = [Missing::Redis, Missing::Postgres];
        assert_eq!(
            clause(System::Debian, true, &both),
            "run `apt-get install -y redis-server postgresql`"
        );
        assert_eq!(
            clause(System::Debian, false, &both[1..]),
            "run `sudo apt-get install -y postgresql`"
        );
        assert_eq!(
            clause(System::Fedora, false, &both),
            "run `sudo dnf install -y valkey postgresql-server`"
        );
        assert_eq!(clause(System::MacOs, false, &both), "run `brew install redis postgresql@17`");
        assert!(clause(System::Other, false, &both).starts_with("install Redis"));
    }
}
