//! Log lines about a file of public keys that is read again.

use flash_sale::kit::jwt::Tokens;
use secrecy::SecretString;

use super::public_keys::{SECRET, folder};
use crate::support::lines::Lines;

/// A set with one key of this name.
pub fn set(name: &str) -> String {
    format!(
        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{name}","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}}]}}"#
    )
}

#[test]
fn a_key_file_that_changes_is_told_once_and_so_is_each_of_its_faults() {
    let folder = folder();
    let file = folder.join("keys.json");
    let [first, second] = ["a", "b"].map(set);
    std::fs::write(&file, &first).expect("the folder is there");
    let mut tokens = Tokens::new(&SecretString::from(SECRET));
    tokens.accept_keys_of(&file).expect("it has a key");
    let lines = Lines::heard();
    for (text, read, faults) in [
        (Some(first.as_str()), 0, 0),
        (Some("{"), 0, 1),
        (Some("{"), 0, 1),
        (Some(r#"{"keys":[]}"#), 0, 2),
        (None, 0, 3),
        (None, 0, 3),
        (Some(&second), 1, 3),
        (Some(&second), 1, 3),
        (Some(&first), 2, 3),
    ] {
        match text {
            Some(text) => std::fs::write(&file, text).expect("the folder is there"),
            None => drop(std::fs::remove_file(&file)),
        }
        tokens.read_keys_again();
        let told = ["has been read again", "can't be read; the last ones stay"];
        assert_eq!(told.map(|words| lines.count(words)), [read, faults], "{text:?}");
    }
    std::fs::remove_dir_all(folder).expect("it is ours");
}
