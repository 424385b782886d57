//! `.env.example` has the fields of `base/config.rs`, in the same words.

use super::source::{Rust, assert_complaints, no_complaints, read, rust};

const CONFIG: &str = "src/base/config.rs";

/// One field of a clap struct.
#[derive(Debug, PartialEq, Eq)]
struct Setting {
    name: String,
    /// The line above: the field's documentation.
    doc: String,
    /// `None` for a setting without a default, or for a secret.
    default: Option<String>,
}

#[test]
fn env_example_says_what_the_settings_say() {
    let config = Rust::new(CONFIG, &read(CONFIG).text);
    let settings = settings(&config);
    assert!(settings.len() > 5, "only {} settings were found in {CONFIG}", settings.len());
    no_complaints(differences(&settings, &read(".env.example").text));
}

#[test]
fn every_setting_is_a_field_of_the_config() {
    let mut complaints = Vec::new();
    for file in rust(&["src/"]).iter().filter(|file| file.path != CONFIG) {
        let variables = file.strings.iter().filter(|(at, _)| file.code[..*at].ends_with("env = "));
        complaints.extend(variables.map(|(at, name)| {
            format!(
                "{}: {name} is a setting of its own; make it a field in {CONFIG}",
                file.place(*at)
            )
        }));
    }
    no_complaints(complaints);
}

fn settings(config: &Rust) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (at, name) in &config.strings {
        if !config.code[..*at].ends_with("env = ") {
            continue;
        }
        let from = config.code[..*at].rfind("#[arg(").expect("it stands in an attribute");
        let to = *at + config.code[*at..].find(")]").expect("the attribute ends");
        let above = config.text[..from].trim_end().lines().next_back().unwrap_or_default();
        let default = default(&config.text[from..to]);
        settings.push(Setting {
            name: name.clone(),
            doc: above.trim().trim_start_matches("/// ").to_owned(),
            default: default.filter(|_| !config.code[from..to].contains("hide_env_values")),
        });
    }
    settings
}

/// `default_value = "text"` or `default_value_t = 1_000`.
fn default(attribute: &str) -> Option<String> {
    let (_, value) = attribute.split_once("default_value")?;
    let (_, value) = value.split_once("= ")?;
    if let Some(text) = value.strip_prefix('"') {
        return Some(text.split('"').next()?.to_owned());
    }
    let number = value.split([',', ')', '\n']).next()?;
    Some(number.replace('_', ""))
}

fn differences(settings: &[Setting], example: &str) -> Vec<String> {
    let lines: Vec<&str> = example.lines().collect();
    let mut written = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let assignment = line.trim_start_matches("# ").split_once('=');
        let Some((name, value)) = assignment.filter(|(name, _)| name.starts_with("FLASH_SALE_"))
        else {
            continue;
        };
        let above = lines[at.saturating_sub(1)].trim_start_matches("# ");
        written.push(Setting {
            name: name.to_owned(),
            doc: above.to_owned(),
            default: (!line.starts_with('#')).then(|| value.to_owned()),
        });
    }
    let mut complaints = Vec::new();
    for setting in settings.iter().filter(|setting| !written.contains(setting)) {
        complaints.push(format!(
            ".env.example lacks this setting of {CONFIG}, or says something else: {setting:?}"
        ));
    }
    for setting in written.iter().filter(|setting| !settings.contains(setting)) {
        complaints.push(format!(".env.example has what {CONFIG} hasn't: {setting:?}"));
    }
    let names = |settings: &[Setting]| settings.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    if complaints.is_empty() && names(&written) != names(settings) {
        complaints
            .push(format!(".env.example names a setting twice, or in another order than {CONFIG}"));
    }
    complaints
}

#[test]
fn the_checker_sees_differences() {
    let config = "struct C {\n    /// Secret\n    #[arg(long, env = \"FLASH_SALE_A\", hide_env_values = true)]\n    a: String,\n\
        /// Number\n    #[arg(\n        env = \"FLASH_SALE_B\",\n        default_value_t = 1_000,\n        value_parser = p(2..=3))]\n    b: u8,\n\
        /// Text\n    #[arg(env = \"FLASH_SALE_C\", default_value = \"x,y\")]\n    c: String,\n}";
    let settings = settings(&Rust::new(CONFIG, config));
    let example =
        "# Secret\n# FLASH_SALE_A=\n\n# Number\nFLASH_SALE_B=1000\n# Text\nFLASH_SALE_C=x,y\n";
    assert_complaints(&differences(&settings, example), &[]);
    for (from, to) in [
        ("=1000", "=1001"),
        ("# FLASH_SALE_A", "FLASH_SALE_A"),
        ("# Text", "# Texts"),
        ("SALE_C", "SALE_D"),
    ] {
        let changed = example.replace(from, to);
        assert_complaints(&differences(&settings, &changed), &["lacks", "hasn't"]);
    }
    let twice = format!("{example}# Text\nFLASH_SALE_C=x,y\n");
    assert_complaints(&differences(&settings, &twice), &["twice"]);
}
