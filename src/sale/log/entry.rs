//! Entries of the order log, decoded once: positions that hold a claim, and positions that can't be read.
//!
//! Two layouts are read, whatever log they stand in:
//!
//! ```text
//! coupon 1024 revision 3 epoch 1 first 5001 claims "42 700 43 701"     a call: user, order, user, order ...
//! coupon 1024 user 42 order 700                                        one claim, by an older version
//! ```
//!
//! The orders that a lane has ever promised are numbered. The claims of a call have consecutive numbers, from `first`
//! on, so a gap between two entries is a loss, and an overlap is a Redis that went back in time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::kit::id;
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
    /// Revision of the coupon at the claim; `None` in an entry of an older version.
    pub revision: Option<i64>,
    /// Place of the claim in the log.
    pub place: Place,
}

/// Place in the log of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Epoch of the sale at the claim; 0 where no entry tells it.
    pub epoch: i64,
    /// The entry.
    pub entry: EntryId,
    /// Number of claims before this one in the entry.
    pub position: u32,
}

/// A position without a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Place of the position.
    pub place: Place,
    /// Its part of the entry, or all of the entry: name, value, name, value ... Empty when the log has lost the entry.
    pub payload: Vec<Vec<u8>>,
    /// Reason why there is no claim.
    pub why: Why,
}

/// Reason why a position holds no claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The entry was deleted from the log while it was pending.
    Lost,
    /// A field is missing or can't be read; the text says which.
    Malformed(&'static str),
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry.
    pub id: EntryId,
    /// Number of its first claim among the orders of the lane; `None` in an entry that isn't counted.
    pub first: Option<u64>,
    /// Its claims, in the order of their positions.
    pub claims: Vec<LoggedClaim>,
    /// Its other positions.
    pub unreadable: Vec<Unreadable>,
}

/// Names an entry: entries are in the order of their ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// Redis's clock when it was appended, in milliseconds since 1970, or that of the entry before if the clock was
    /// behind it.
    pub ms: u64,
    /// Counts the entries of one millisecond.
    pub sequence: u64,
}

impl EntryId {
    /// The highest id below this one.
    pub fn before(self) -> Self {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Self { ms: self.ms, sequence },
            None => Self { ms: self.ms.saturating_sub(1), sequence: u64::MAX },
        }
    }
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

impl Entry {
    /// Decodes an entry; its fields are `None` when the log has lost them. Fields that this version doesn't know are
    /// ignored: a newer version may have written them.
    pub fn decode(id: EntryId, fields: Option<Vec<Vec<u8>>>) -> Self {
        let Some(payload) = fields.filter(|fields| !fields.is_empty()) else {
            return Self { id, first: None, claims: Vec::new(), unreadable: vec![Self::lost(id)] };
        };
        match Self::read(id, &payload) {
            Ok(entry) => entry,
            Err(why) => {
                let place = Place { epoch: 0, entry: id, position: 0 };
                let unreadable = Unreadable { place, payload, why: Why::Malformed(why) };
                Self { id, first: None, claims: Vec::new(), unreadable: vec![unreadable] }
            }
        }
    }

    /// An entry that the log has lost.
    pub fn lost(id: EntryId) -> Unreadable {
        let place = Place { epoch: 0, entry: id, position: 0 };
        Unreadable { place, payload: Vec::new(), why: Why::Lost }
    }

    /// Positions of the entry.
    pub fn positions(&self) -> usize {
        self.claims.len() + self.unreadable.len()
    }

    /// Number of orders that the lane has counted for this entry.
    pub fn counted(&self) -> u64 {
        self.first.map_or(0, |_| self.positions() as u64)
    }

    fn read(id: EntryId, payload: &[Vec<u8>]) -> Result<Self, &'static str> {
        let of = CallOf::read(id, payload)?;
        let Some(text) = text_of(payload, "claims") else {
            let user = number_of(payload, "user").ok_or("`user` is not a user id")?;
            let order = number_of(payload, "order").ok_or("`order` is not an order id")?;
            let claims = vec![of.claim(0, user, order)];
            return Ok(Self { id, first: None, claims, unreadable: Vec::new() });
        };
        let first = Some(number_of(payload, "first").ok_or("`first` is not a number")?);
        let mut entry = Self { id, first, claims: Vec::new(), unreadable: Vec::new() };
        let mut words = text.split(' ');
        for position in 0.. {
            let Some(user) = words.next() else { break };
            let order = words.next().unwrap_or_default();
            match (user.parse(), order.parse()) {
                (Ok(user), Ok(order)) => entry.claims.push(of.claim(position, user, order)),
                _ => entry.unreadable.push(of.unreadable(position, user, order)),
            }
        }
        Ok(entry)
    }
}

/// The facts that the claims of an entry share.
struct CallOf {
    coupon_id: CouponId,
    claimed_at: DateTime<Utc>,
    revision: Option<i64>,
    epoch: i64,
    entry: EntryId,
}

impl CallOf {
    fn read(entry: EntryId, payload: &[Vec<u8>]) -> Result<Self, &'static str> {
        let claimed_ms = i64::try_from(entry.ms).ok();
        let claimed_at = claimed_ms.and_then(DateTime::from_timestamp_millis);
        Ok(Self {
            coupon_id: number_of(payload, "coupon").ok_or("`coupon` is not a coupon id")?,
            claimed_at: claimed_at.ok_or("the entry id carries no time")?,
            revision: number_of(payload, "revision"),
            epoch: number_of(payload, "epoch").unwrap_or(0),
            entry,
        })
    }

    fn place(&self, position: u32) -> Place {
        Place { epoch: self.epoch, entry: self.entry, position }
    }

    fn claim(&self, position: u32, user_id: UserId, order_id: OrderId) -> LoggedClaim {
        let Self { coupon_id, claimed_at, revision, .. } = *self;
        LoggedClaim {
            order_id,
            coupon_id,
            user_id,
            claimed_at,
            revision,
            place: self.place(position),
        }
    }

    fn unreadable(&self, position: u32, user: &str, order: &str) -> Unreadable {
        let coupon = self.coupon_id.to_string();
        let payload = ["coupon", &coupon, "user", user, "order", order];
        Unreadable {
            place: self.place(position),
            payload: payload.map(|part| part.as_bytes().to_vec()).into(),
            why: Why::Malformed("`claims` has a pair that is not a user id and an order id"),
        }
    }
}

impl LoggedClaim {
    /// A claim whose entry is gone; its time is that of the order id, to the second.
    pub fn without_entry(coupon_id: CouponId, user_id: UserId, order_id: OrderId) -> Self {
        let claimed_at = id::time_of(order_id.get());
        // The order id keeps this place apart from others.
        let ms = u64::try_from(claimed_at.timestamp_millis()).unwrap_or(0);
        let entry = EntryId { ms, sequence: order_id.get().unsigned_abs() };
        let place = Place { epoch: 0, entry, position: 0 };
        Self { order_id, coupon_id, user_id, claimed_at, revision: None, place }
    }

    /// The same claim at the time and the revision of its entry, if this is the entry.
    pub fn at_time_of(self, entry: Option<&Entry>) -> Self {
        let same =
            entry.and_then(|entry| entry.claims.iter().find(|one| one.order_id == self.order_id));
        match same {
            Some(&Self { claimed_at, revision, .. }) => Self { claimed_at, revision, ..self },
            None => self,
        }
    }

    /// The claim as an entry of its own: name, value, name, value ...
    pub fn payload(&self) -> Vec<Vec<u8>> {
        let revision = self.revision.map(|revision| ("revision", revision.to_string()));
        let fields = [
            ("coupon", self.coupon_id.to_string()),
            ("user", self.user_id.to_string()),
            ("order", self.order_id.to_string()),
        ];
        let fields = fields.into_iter().chain(revision);
        fields.flat_map(|(name, value)| [name.as_bytes().to_vec(), value.into_bytes()]).collect()
    }
}

fn text_of<'a>(payload: &'a [Vec<u8>], name: &str) -> Option<&'a str> {
    let pair = payload.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
    std::str::from_utf8(&pair[1]).ok()
}

fn number_of<T: FromStr>(payload: &[Vec<u8>], name: &str) -> Option<T> {
    text_of(payload, name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fuzzing::Fuzz;

    fn decode(fields: &[&str]) -> Entry {
        let fields = fields.iter().map(|field| field.as_bytes().to_vec()).collect();
        Entry::decode(EntryId { ms: 1_700_000_000_123, sequence: 4 }, Some(fields))
    }

    /// Ids as large as real ones: doubles would make one of two neighbours.
    const USERS: [i64; 2] = [9_223_372_036_854_775_806, 9_223_372_036_854_775_807];
    const ORDERS: [i64; 2] = [663_123_456_789_012_345, 663_123_456_789_012_346];

    #[test]
    fn a_call_holds_claims_at_positions() {
        let claims = format!("{} {} {} {}", USERS[0], ORDERS[0], USERS[1], ORDERS[1]);
        let entry = decode(&[
            "new", "x", "coupon", "1024", "revision", "3", "epoch", "2", "first", "5001", "claims",
            &claims,
        ]);
        assert_eq!((entry.first, entry.counted(), entry.positions()), (Some(5_001), 2, 2));
        for (position, claim) in entry.claims.iter().enumerate() {
            assert_eq!(claim.coupon_id.get(), 1_024);
            assert_eq!(claim.user_id.get(), USERS[position]);
            assert_eq!(claim.order_id.get(), ORDERS[position]);
            assert_eq!(claim.claimed_at.timestamp_millis(), 1_700_000_000_123);
            assert_eq!(claim.revision, Some(3));
            let place = Place { epoch: 2, entry: entry.id, position: position as u32 };
            assert_eq!(claim.place, place);
        }
    }

    #[test]
    fn an_entry_of_an_older_version_is_one_claim() {
        let entry = decode(&["coupon", "1024", "user", "42", "order", "7"]);
        assert_eq!((entry.first, entry.counted(), entry.positions()), (None, 0, 1));
        let claim = entry.claims[0];
        assert_eq!((claim.user_id.get(), claim.order_id.get(), claim.revision), (42, 7, None));
        assert_eq!(claim.place, Place { epoch: 0, entry: entry.id, position: 0 });
    }

    #[test]
    fn a_pair_that_is_no_claim_leaves_the_others() {
        let fields = ["coupon", "1024", "first", "1", "claims", "1 7 junk 8 3 9 4"];
        let entry = decode(&fields);
        let positions: Vec<u32> = entry.claims.iter().map(|claim| claim.place.position).collect();
        assert_eq!(positions, [0, 2]);
        let positions: Vec<u32> =
            entry.unreadable.iter().map(|position| position.place.position).collect();
        assert_eq!(positions, [1, 3]);
        assert_eq!((entry.counted(), entry.positions()), (4, 4));
        assert!(entry.unreadable[0].payload.contains(&b"junk".to_vec()));
    }

    #[test]
    fn what_is_not_a_claim_is_undecodable() {
        for fields in [
            &["coupon", "1024", "user", "42"][..],
            &["coupon", "1024", "user", "42", "order", "-7"],
            &["coupon", "x", "user", "42", "order", "7"],
            &["coupon", "1024", "user", "9223372036854775808", "order", "7"],
            &["coupon", "1024", "claims", "42 7"],
            &["coupon", "x", "first", "1", "claims", "42 7"],
            &["junk", "junk"],
        ] {
            let entry = decode(fields);
            assert!(entry.claims.is_empty(), "{fields:?}");
            assert!(
                matches!(entry.unreadable[..], [Unreadable { why: Why::Malformed(_), .. }]),
                "{fields:?}"
            );
        }
        let lost = Entry::decode(EntryId { ms: 1, sequence: 1 }, None);
        assert!(matches!(lost.unreadable[..], [Unreadable { why: Why::Lost, .. }]));
    }

    /// Each position is a claim or a place that can't be read, once; and a claim is an entry of its own.
    #[test]
    fn fuzz_entries() {
        let seeds = [
            "coupon|1024|revision|3|epoch|2|first|5001|claims|42 700 43 701 44 702",
            "coupon|1024|user|42|order|7",
            "coupon|1024|first|1|claims|1 7 junk 8 3 9 4",
            "new|x|coupon|9223372036854775807|first|18446744073709551615|claims|1 2",
        ];
        let seeds = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
        let words =
            &["|", " ", "  ", "-1", "0", "9223372036854775808", "claims", "coupon", "first"];
        Fuzz { target: "entries", seeds, words }.run(|input| {
            let fields: Vec<Vec<u8>> =
                input.split(|byte| *byte == b'|').map(<[u8]>::to_vec).collect();
            // Redis names any id, and the first byte of the input stands for some of them.
            let ms = [1_700_000_000_123, 0, u64::MAX]
                [usize::from(input.first().copied().unwrap_or(0) % 3)];
            let id = EntryId { ms, sequence: 4 };
            let entry = Entry::decode(id, Some(fields));
            let mut positions: Vec<u32> =
                entry.claims.iter().map(|claim| claim.place.position).collect();
            positions.extend(entry.unreadable.iter().map(|other| other.place.position));
            positions.sort_unstable();
            let expected: Vec<u32> = (0..positions.len() as u32).collect();
            assert!(!positions.is_empty() && positions == expected, "{positions:?}");
            for claim in &entry.claims {
                let alone = Entry::decode(id, Some(claim.payload()));
                let place = Place { epoch: 0, entry: id, position: 0 };
                assert_eq!(alone.claims, [LoggedClaim { place, ..*claim }]);
            }
        });
    }

    #[test]
    fn ids_are_read_as_they_are_written_and_have_a_highest_one_before_them() {
        for (text, before) in [
            ("5-2", "5-1"),
            ("5-1", "5-0"),
            ("5-0", "4-18446744073709551615"),
            ("1-0", "0-18446744073709551615"),
            ("0-0", "0-18446744073709551615"),
        ] {
            let id: EntryId = text.parse().expect("an id");
            assert_eq!((id.to_string(), id.before().to_string()), (text.into(), before.into()));
        }
        for text in ["", "5", "5-", "-2", "x-2", "5-x", "5-2-1", "18446744073709551616-0"] {
            assert!(text.parse::<EntryId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_claim_without_its_entry_has_the_time_of_its_order_id_until_an_entry_tells_more() {
        let coupon = CouponId::new(1_024).expect("an id");
        let [user, order, other] = [42, (7 << 32) | 5, 9];
        let user = UserId::new(user).expect("an id");
        let claim =
            |order| LoggedClaim::without_entry(coupon, user, OrderId::new(order).expect("an id"));
        let alone = claim(order);
        assert_eq!(alone.claimed_at.to_rfc3339(), "2022-01-01T00:00:07+00:00");
        let entry = EntryId { ms: 1_640_995_207_000, sequence: order.unsigned_abs() };
        let place = Place { epoch: 0, entry, position: 0 };
        assert_eq!((alone.revision, alone.place), (None, place));
        let claims = format!("41 8 42 {order}");
        let entry = decode(&["coupon", "1024", "revision", "3", "first", "1", "claims", &claims]);
        let at_entry = alone.at_time_of(Some(&entry));
        assert_eq!(at_entry.claimed_at.timestamp_millis(), 1_700_000_000_123);
        assert_eq!((at_entry.revision, at_entry.place), (Some(3), place));
        assert_eq!((at_entry.order_id, at_entry.user_id), (alone.order_id, alone.user_id));
        assert_eq!(claim(other).at_time_of(Some(&entry)), claim(other), "no claim of the entry");
        assert_eq!(alone.at_time_of(None), alone);
    }

    #[test]
    fn an_entry_without_fields_is_lost() {
        let id = EntryId { ms: 1, sequence: 1 };
        for fields in [None, Some(Vec::new())] {
            let entry = Entry::decode(id, fields);
            assert_eq!(entry.unreadable, [Entry::lost(id)]);
            assert_eq!((entry.positions(), entry.counted(), entry.first), (1, 0, None));
        }
    }
}
