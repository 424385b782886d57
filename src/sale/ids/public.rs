//! Order ids outside: to users, the staff and gateways, an order has another number than here.
//!
//! # Model
//!
//! Ids of orders are handed out in sequence, so two of them tell a competitor a bound of the sales between. Where an
//! installation has a key, ids outside are the images of those inside under a permutation of that key
//! (`src/kit/id/permutation.rs`). The two forms are two types: an [`OrderId`] can't be read from JSON or a path, and a
//! [`PublicOrderId`] names no row.
//!
//! # The edge
//!
//! * Out: all JSON that leaves is written through [`PublicIds::outside`], which translates each order id that it meets, and
//!   those in sentences ([`sentence`]). `clippy.toml` bans the other ways to a JSON reply.
//! * In: paths are read by [`InPath`]; queries and bodies have members of the type [`PublicOrderId`].
//!
//! Stores, log lines, metrics and commands have the inner form; `flash-sale id` translates.
//!
//! # Authority
//!
//! Postgres (`installation.rs`): whether an installation has a key is decided at its first start, and a check value tells a
//! wrong key. Without a key both forms are equal.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    AuditId, CouponId, DeadLetterId, Digits, InvalidId, JobId, OrderId, PaymentId, PostponedId,
    RecoveryId, RunId, SubjectId, UserId,
};
use crate::kit::id::permutation::Permutation;

/// Id of an order outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicOrderId(i64);

/// The way between the two forms of order ids. Clones share the key.
#[derive(Clone, Default)]
pub struct PublicIds(Option<Arc<Permutation>>);

/// Value by which a key is told from others. Tells nothing of the key.
pub type CheckValue = [u8; 32];

impl PublicIds {
    /// Ids by this key.
    pub fn keyed(key: &SecretString) -> Self {
        let of_permutation = derive(key, b"flash-sale: the permutation of order ids, 1");
        Self(Some(Arc::new(Permutation::new(&of_permutation))))
    }

    /// Ids that are the same outside.
    pub fn plain() -> Self {
        Self(None)
    }

    /// True if the installation has a key, so that the two forms differ.
    pub fn are_keyed(&self) -> bool {
        self.0.is_some()
    }

    /// The id outside.
    pub fn public(&self, order: OrderId) -> PublicOrderId {
        PublicOrderId(self.0.as_ref().map_or(order.0, |key| key.forward(order.0)))
    }

    /// The id inside.
    pub fn inner(&self, order: PublicOrderId) -> OrderId {
        OrderId(self.0.as_ref().map_or(order.0, |key| key.backward(order.0)))
    }

    /// The order, if a subject outside is one.
    pub fn of_subject(&self, subject: SubjectId) -> OrderId {
        self.inner(PublicOrderId(subject.0))
    }

    /// A sentence as it leaves the house: each order id in it stands behind the word "order".
    ///
    /// Only for words of the service itself: words of a client could ask for the image of any id.
    pub fn sentence<'a>(&self, words: &'a str) -> Cow<'a, str> {
        if !self.are_keyed() || !words.contains(ORDER) {
            return Cow::Borrowed(words);
        }
        let mut parts = words.split(ORDER);
        let mut told = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (id, rest) = part.split_at(end);
            told += ORDER;
            match id.parse() {
                Ok(order) => told += &self.public(order).to_string(),
                Err(InvalidId) => told += id,
            }
            told += rest;
        }
        Cow::Owned(told)
    }
}

const ORDER: &str = "order ";

/// The check value of a key.
pub fn check_value(key: &SecretString) -> CheckValue {
    derive(key, b"flash-sale: the check value of the key of order ids, 1")
}

fn derive(key: &SecretString, purpose: &[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.expose_secret().as_bytes());
    let tag = hmac::sign(&key, purpose);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Writes a sentence about orders, in which each order id stands behind the word "order".
///
/// # Errors
///
/// Those of the writer.
pub fn sentence<S: Serializer>(words: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_newtype_struct(SENTENCE, words)
}

/// Writes several such sentences.
///
/// # Errors
///
/// Those of the writer.
pub fn sentences<S: Serializer>(all: &[String], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().map(|words| Sentence(words)))
}

struct Sentence<'a>(&'a str);

impl Serialize for Sentence<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        sentence(self.0, to)
    }
}

/// Name of a sentence for the writer.
pub(super) const SENTENCE: &str = "Sentence";
/// Name of an order id for the writer.
pub(super) const ORDER_ID: &str = "OrderId";

impl fmt::Display for PublicOrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PublicOrderId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.parse().map(|OrderId(number)| Self(number))
    }
}

impl Serialize for PublicOrderId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Digits(self.0).serialize(to)
    }
}

impl<'de> Deserialize<'de> for PublicOrderId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// An id in the path of a request.
pub trait InPath: Sized {
    /// Form of the text, in words.
    const FORM: &str = InvalidId::WORDS;

    /// Reads the text; `None` if it is no such id.
    fn read(text: &str, ids: &PublicIds) -> Option<Self>;
}

impl InPath for OrderId {
    fn read(text: &str, ids: &PublicIds) -> Option<Self> {
        text.parse().ok().map(|order| ids.inner(order))
    }
}

macro_rules! same_everywhere {
    ($($name:ident),*) => {$(
        impl InPath for $name {
            fn read(text: &str, _: &PublicIds) -> Option<Self> {
                text.parse().ok()
            }
        }
    )*};
}

same_everywhere!(
    AuditId,
    CouponId,
    DeadLetterId,
    JobId,
    PaymentId,
    PostponedId,
    RecoveryId,
    RunId,
    SubjectId,
    UserId
);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids() -> PublicIds {
        PublicIds::keyed(&"a key that is only good for tests".into())
    }

    fn order(number: i64) -> OrderId {
        OrderId::new(number).expect("an id")
    }

    #[test]
    fn ids_outside_come_back() {
        for ids in [ids(), PublicIds::plain()] {
            for number in [1, 2, 665_000_000_000_000_001, i64::MAX] {
                let public = ids.public(order(number));
                assert_eq!(ids.inner(public), order(number));
                assert_eq!(public.to_string() == number.to_string(), !ids.are_keyed());
            }
        }
    }

    #[test]
    fn a_key_has_its_own_ids_and_check_value() {
        let other: SecretString = "another key that is good for tests".into();
        let key: SecretString = "a key that is only good for tests".into();
        assert_ne!(check_value(&key), check_value(&other));
        assert_ne!(ids().public(order(7)), PublicIds::keyed(&other).public(order(7)));
    }

    #[test]
    fn a_sentence_keeps_digits_that_are_no_id_and_without_a_key_it_is_handed_on() {
        let (ids, plain) = (ids(), PublicIds::plain());
        let public = ids.public(order(7));
        for (words, told) in [
            ("order 7 and order 8x", format!("order {public} and order {}x", ids.public(order(8)))),
            ("order 0, order 007, order 7", format!("order 0, order 007, order {public}")),
            ("order 9223372036854775808", "order 9223372036854775808".to_owned()),
            ("an order of 7 units", "an order of 7 units".to_owned()),
        ] {
            assert_eq!(ids.sentence(words), told);
            assert!(matches!(plain.sentence(words), Cow::Borrowed(it) if it == words), "{words}");
        }
    }

    #[test]
    fn order_ids_are_translated_wherever_they_stand_in_a_value() {
        #[derive(Serialize)]
        struct Told {
            order_id: OrderId,
            list: Vec<Option<OrderId>>,
            pair: (UserId, OrderId),
            #[serde(flatten)]
            flat: Flat,
            kind: Kind,
            #[serde(serialize_with = "sentence")]
            words: String,
            address: std::net::IpAddr,
            other: serde_json::Value,
        }
        #[derive(Serialize)]
        struct Flat {
            inside: OrderId,
        }
        #[derive(Serialize)]
        #[serde(tag = "kind")]
        enum Kind {
            One { order: OrderId },
        }
        let number = order(665_000_000_000_000_001);
        let told = Told {
            order_id: number,
            list: vec![Some(number), None],
            pair: (UserId::new(9).expect("an id"), number),
            flat: Flat { inside: number },
            kind: Kind::One { order: number },
            words: format!("order {number} of user {}; order x; an order", number.get()),
            address: [127, 0, 0, 1].into(),
            other: json!({"cents": 5, "user": number.to_string(), "deep": [[1.5, true, null]]}),
        };
        let (ids, plain) = (ids(), PublicIds::plain());
        let public = ids.public(number).to_string();
        let as_told = |public: &str| {
            json!({
                "order_id": public, "list": [public, null], "pair": ["9", public], "inside": public,
                "kind": {"kind": "One", "order": public},
                "words": format!("order {public} of user {number}; order x; an order"),
                "address": "127.0.0.1",
                "other": {"cents": 5, "user": number.to_string(), "deep": [[1.5, true, null]]},
            })
        };
        let written = |ids: &PublicIds| serde_json::to_value(ids.outside(&told)).expect("JSON");
        assert_eq!(written(&ids), as_told(&public));
        assert_eq!(written(&plain), as_told(&number.to_string()));
        assert_eq!(serde_json::to_value(&told).expect("JSON"), as_told(&number.to_string()));
    }
}
