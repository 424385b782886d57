//! Entries of the order log, decoded once: each is a claim, or an entry that can't be read.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::sale::ids::{CouponId, OrderId, UserId};

/// An accepted claim, as decoded from its entry in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedClaim {
    /// Id of the order that the claim becomes.
    pub order_id: OrderId,
    /// The coupon claimed.
    pub coupon_id: CouponId,
    /// The buyer.
    pub user_id: UserId,
    /// Time of the claim by Redis's clock: the time in the entry's id.
    pub claimed_at: DateTime<Utc>,
}

/// An entry that holds a claim.
#[derive(Clone, Debug)]
pub struct ClaimEntry {
    /// `<ms>-<sequence>`.
    pub id: String,
    /// Fields as they stand in the log: name, value, name, value ...
    pub payload: Vec<Vec<u8>>,
    /// The claim that the fields name.
    pub claim: LoggedClaim,
}

/// An entry without a claim.
#[derive(Clone, Debug)]
pub struct UnreadableEntry {
    /// `<ms>-<sequence>`.
    pub id: String,
    /// Fields as they stand in the log; empty when the log has lost the entry.
    pub payload: Vec<Vec<u8>>,
    /// Reason why there is no claim.
    pub why: Unreadable,
}

/// Reason why an entry holds no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// The entry was deleted from the log while it was pending.
    Lost,
    /// A field is missing or can't be read; the text says which.
    Malformed(&'static str),
}

/// Entries read together, in the order of the log.
#[derive(Clone, Debug, Default)]
pub struct ReadBatch {
    /// Entries that hold a claim.
    pub claims: Vec<ClaimEntry>,
    /// Entries that don't.
    pub unreadable: Vec<UnreadableEntry>,
    /// Id of the last entry; `None` when nothing was read.
    pub last: Option<String>,
}

/// Names an entry: entries are in the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Redis's clock when it was appended, in milliseconds since 1970, or that of the entry before if the clock was
    /// behind it.
    pub ms: u64,
    /// Counts the entries of one millisecond.
    pub sequence: u64,
}

impl FromStr for EntryId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('-').map(|(ms, sequence)| (ms.parse(), sequence.parse()));
        match parts {
            Some((Ok(ms), Ok(sequence))) => Ok(Self { ms, sequence }),
            _ => Err("an entry id is <ms>-<sequence>"),
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

impl ClaimEntry {
    /// Decodes an entry; its fields are `None` when the log has lost them. Fields that this version doesn't know are
    /// ignored: a newer version may have written them.
    ///
    /// # Errors
    ///
    /// When the entry holds no claim.
    pub fn decode(id: String, fields: Option<Vec<Vec<u8>>>) -> Result<Self, UnreadableEntry> {
        let Some(payload) = fields.filter(|fields| !fields.is_empty()) else {
            return Err(UnreadableEntry::lost(id));
        };
        match LoggedClaim::decode(&id, &payload) {
            Ok(claim) => Ok(Self { id, payload, claim }),
            Err(why) => Err(UnreadableEntry { id, payload, why: Unreadable::Malformed(why) }),
        }
    }
}

impl LoggedClaim {
    fn decode(id: &str, payload: &[Vec<u8>]) -> Result<Self, &'static str> {
        fn field<T: FromStr>(payload: &[Vec<u8>], name: &str) -> Option<T> {
            let pair = payload.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
            std::str::from_utf8(&pair[1]).ok()?.parse().ok()
        }
        let claimed_ms = id.parse().ok().and_then(|id: EntryId| i64::try_from(id.ms).ok());
        let claimed_at = claimed_ms.and_then(DateTime::from_timestamp_millis);
        Ok(Self {
            order_id: field(payload, "order").ok_or("`order` is not an order id")?,
            coupon_id: field(payload, "coupon").ok_or("`coupon` is not a coupon id")?,
            user_id: field(payload, "user").ok_or("`user` is not a user id")?,
            claimed_at: claimed_at.ok_or("the entry id carries no time")?,
        })
    }
}

impl UnreadableEntry {
    /// The entry of this id, which the log has lost.
    pub fn lost(id: String) -> Self {
        Self { id, payload: Vec::new(), why: Unreadable::Lost }
    }
}

impl ReadBatch {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.claims.len() + self.unreadable.len()
    }

    /// True when nothing was read.
    pub fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}

impl FromIterator<(String, Option<Vec<Vec<u8>>>)> for ReadBatch {
    fn from_iter<I: IntoIterator<Item = (String, Option<Vec<Vec<u8>>>)>>(entries: I) -> Self {
        let mut batch = Self::default();
        for (id, fields) in entries {
            batch.last = Some(id.clone());
            match ClaimEntry::decode(id, fields) {
                Ok(entry) => batch.claims.push(entry),
                Err(entry) => batch.unreadable.push(entry),
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(fields: &[&str]) -> Result<ClaimEntry, UnreadableEntry> {
        let fields = fields.iter().map(|field| field.as_bytes().to_vec()).collect();
        ClaimEntry::decode("1700000000123-4".into(), Some(fields))
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let fields = ["new", "x", "coupon", "1024", "user", "42", "order", "7"];
        let claim = decode(&fields).unwrap().claim;
        assert_eq!(claim.coupon_id.get(), 1024);
        assert_eq!(claim.user_id.get(), 42);
        assert_eq!(claim.order_id.get(), 7);
        assert_eq!(claim.claimed_at.timestamp_millis(), 1_700_000_000_123);
    }

    #[test]
    fn what_is_not_a_claim_is_undecodable() {
        for fields in [
            &["coupon", "1024", "user", "42"][..],
            &["coupon", "1024", "user", "42", "order", "-7"],
            &["coupon", "x", "user", "42", "order", "7"],
            &["coupon", "1024", "user", "9223372036854775808", "order", "7"],
            &["junk", "junk"],
        ] {
            let unreadable = decode(fields).unwrap_err();
            assert!(matches!(unreadable.why, Unreadable::Malformed(_)), "{fields:?}");
        }
        let lost = ClaimEntry::decode("1-1".into(), None).unwrap_err();
        assert_eq!(lost.why, Unreadable::Lost);
    }

    #[test]
    fn a_batch_keeps_the_order_and_names_the_last_entry() {
        let fields = |text: &str| text.split(' ').map(|field| field.as_bytes().to_vec()).collect();
        let batch: ReadBatch = [
            ("1-0".to_owned(), Some(fields("coupon 1024 user 1 order 7"))),
            ("1-1".to_owned(), Some(fields("junk junk"))),
            ("1-2".to_owned(), Some(fields("coupon 1024 user 2 order 8"))),
            ("1-3".to_owned(), None),
        ]
        .into_iter()
        .collect();
        let ids: Vec<&str> = batch.claims.iter().map(|entry| &entry.id[..]).collect();
        assert_eq!(ids, ["1-0", "1-2"]);
        let ids: Vec<&str> = batch.unreadable.iter().map(|entry| &entry.id[..]).collect();
        assert_eq!(ids, ["1-1", "1-3"]);
        assert_eq!((batch.len(), batch.last.as_deref()), (4, Some("1-3")));
    }
}
