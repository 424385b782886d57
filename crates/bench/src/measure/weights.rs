//! Sizes of pages as they are sent: compressed, with all files that they name.

use std::collections::BTreeSet;

use anyhow::bail;
use hyper::header::{ACCEPT_ENCODING, HeaderValue};
use hyper::{Method, Uri};

use crate::load::connection::{Address, Connection};

/// Bytes of these pages together; a file that several pages name counts once.
pub async fn of(address: &Address, pages: &[&str]) -> anyhow::Result<u64> {
    let mut files: BTreeSet<String> = pages.iter().map(|page| (*page).to_owned()).collect();
    for page in pages {
        let text = get(address, page, "identity").await?;
        let text = String::from_utf8(text)?;
        let named = text.split('"').filter(|word| word.starts_with("/assets/"));
        files.extend(named.map(str::to_owned));
    }
    let mut bytes = 0;
    for file in &files {
        bytes += get(address, file, "gzip").await?.len() as u64;
    }
    Ok(bytes)
}

async fn get(address: &Address, path: &str, encoding: &'static str) -> anyhow::Result<Vec<u8>> {
    let path: Uri = path.parse()?;
    let mut request = address.request(&Method::GET, &path, None);
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    let mut body = Vec::new();
    let answer = Connection::open(address).await?.exchange(request, &mut body).await?;
    if answer.status != 200 {
        bail!("{path} was answered {}", answer.status);
    }
    Ok(body)
}
