//! Entries of the order log, decoded once: positions that hold a claim, and positions that can't be read.
//!
//! ```text
//! coupon 1024 revision 3 epoch 1 first 5001 order 700 users "42 43"
//! ```
//!
//! The claims of an entry have consecutive order ids, from `order` on, one for each user. The orders that a lane has
//! ever accepted are numbered, too, from `first` on: a gap between two entries is a loss, and an overlap shows that
//! Redis went back in time.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};

use crate::store::ids::{CouponId, OrderId, UserId};

/// An accepted claim, as decoded from its entry in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedClaim {
    /// Id of the order that the claim becomes.
    pub order_id: OrderId,
    pub coupon_id: CouponId,
    pub user_id: UserId,
    /// Time of the claim, to the second, from the order id. It may be ahead of all clocks.
    pub claimed_at: DateTime<Utc>,
    /// Revision of the coupon at the claim; `None` where no entry tells it.
    pub revision: Option<i64>,
    pub place: Place,
}

/// Place in the log of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Epoch of the sale at the claim; 0 where no entry tells it.
    pub epoch: i64,
    pub entry: EntryId,
    /// Number of claims before this one in the entry.
    pub position: u32,
}

/// A position without a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub place: Place,
    /// Its part of the entry, or the whole entry: name, value, name, value ... Empty if the log has lost the entry.
    pub payload: Vec<Vec<u8>>,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: EntryId,
    /// Number of its first claim among the orders of the lane; `None` if the lane doesn't count the entry.
    pub first: Option<u64>,
    /// In the order of their positions.
    pub claims: Vec<LoggedClaim>,
    /// Its other positions.
    pub unreadable: Vec<Unreadable>,
}

/// Id of an entry. Later entries have higher ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId {
    /// Redis's clock when the entry was appended, in milliseconds since 1970; never less than in the entry before.
    pub ms: u64,
    /// Counts the entries of one millisecond.
    pub sequence: u64,
}

impl EntryId {
    /// The time in the id; the beginning of 1970 if the id holds no valid time.
    pub fn time(self) -> DateTime<Utc> {
        let ms = i64::try_from(self.ms).ok();
        ms.and_then(DateTime::from_timestamp_millis).unwrap_or_default()
    }

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
    /// Decodes an entry; `fields` are `None` if the log has lost them. Unknown fields are ignored: a newer version may
    /// have written them.
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

    pub fn positions(&self) -> usize {
        self.claims.len() + self.unreadable.len()
    }

    /// Number of orders that the lane has counted for this entry.
    pub fn counted(&self) -> u64 {
        self.first.map_or(0, |_| self.positions() as u64)
    }

    fn read(id: EntryId, payload: &[Vec<u8>]) -> Result<Self, &'static str> {
        let of = CallOf::read(id, payload)?;
        let users = text_of(payload, "users").ok_or("`users` is not there")?;
        let order: OrderId = number_of(payload, "order").ok_or("`order` is not an order id")?;
        let first = Some(number_of(payload, "first").ok_or("`first` is not a number")?);
        let mut entry = Self { id, first, claims: Vec::new(), unreadable: Vec::new() };
        let mut orders = order.following();
        for (position, user) in (0..).zip(users.split(' ')) {
            let order = orders.next().ok_or("`order` is too high for so many users")?;
            match user.parse() {
                Ok(user) => entry.claims.push(of.claim(position, user, order)),
                Err(_) => entry.unreadable.push(of.unreadable(position, user, order)),
            }
        }
        Ok(entry)
    }
}

/// The facts that the claims of an entry share.
struct CallOf {
    coupon_id: CouponId,
    revision: Option<i64>,
    epoch: i64,
    entry: EntryId,
}

impl CallOf {
    fn read(entry: EntryId, payload: &[Vec<u8>]) -> Result<Self, &'static str> {
        Ok(Self {
            coupon_id: number_of(payload, "coupon").ok_or("`coupon` is not a coupon id")?,
            revision: number_of(payload, "revision"),
            epoch: number_of(payload, "epoch").unwrap_or(0),
            entry,
        })
    }

    fn place(&self, position: u32) -> Place {
        Place { epoch: self.epoch, entry: self.entry, position }
    }

    fn claim(&self, position: u32, user_id: UserId, order_id: OrderId) -> LoggedClaim {
        let Self { coupon_id, revision, .. } = *self;
        let claimed_at = order_id.time();
        let place = self.place(position);
        LoggedClaim { order_id, coupon_id, user_id, claimed_at, revision, place }
    }

    fn unreadable(&self, position: u32, user: &str, order: OrderId) -> Unreadable {
        let (coupon, order) = (self.coupon_id.to_string(), order.to_string());
        let payload = ["coupon", &coupon, "user", user, "order", &order];
        Unreadable {
            place: self.place(position),
            payload: payload.map(|part| part.as_bytes().to_vec()).into(),
            why: Why::Malformed("`users` has a word that is not a user id"),
        }
    }
}

impl LoggedClaim {
    /// A claim whose entry is gone.
    pub fn without_entry(coupon_id: CouponId, user_id: UserId, order_id: OrderId) -> Self {
        let claimed_at = order_id.time();
        // The order id keeps this place apart from others.
        let ms = u64::try_from(claimed_at.timestamp_millis()).unwrap_or(0);
        let entry = EntryId { ms, sequence: order_id.get().unsigned_abs() };
        let place = Place { epoch: 0, entry, position: 0 };
        Self { order_id, coupon_id, user_id, claimed_at, revision: None, place }
    }

    /// The same claim, with the revision that its dead letter keeps in its [payload](Self::payload).
    #[must_use]
    pub fn of_letter(self, payload: &[Vec<u8>]) -> Self {
        Self { revision: number_of(payload, "revision"), ..self }
    }

    /// The claim as its dead letter keeps it: name, value, name, value ...
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

    /// Ids as large as real ones: doubles can't tell two neighbours apart.
    const USERS: [i64; 2] = [9_223_372_036_854_775_806, 9_223_372_036_854_775_807];
    const ORDER: i64 = 663_123_456_789_012_345;

    #[test]
    fn a_call_holds_claims_at_positions() {
        let (users, order) = (format!("{} {}", USERS[0], USERS[1]), ORDER.to_string());
        let entry = decode(&[
            "new", "x", "coupon", "1024", "revision", "3", "epoch", "2", "first", "5001", "order",
            &order, "users", &users,
        ]);
        assert_eq!((entry.first, entry.counted(), entry.positions()), (Some(5_001), 2, 2));
        for (position, claim) in entry.claims.iter().enumerate() {
            assert_eq!(claim.coupon_id.get(), 1_024);
            assert_eq!(claim.user_id.get(), USERS[position]);
            assert_eq!(claim.order_id.get(), ORDER + position as i64);
            assert_eq!(claim.claimed_at, claim.order_id.time());
            assert_eq!(claim.revision, Some(3));
            let place = Place { epoch: 2, entry: entry.id, position: position as u32 };
            assert_eq!(claim.place, place);
        }
    }

    #[test]
    fn a_user_that_is_none_leaves_the_others_their_orders() {
        let entry = decode(&["coupon", "1024", "first", "1", "order", "7", "users", "1 junk 3 "]);
        let claims: Vec<(u32, i64, i64)> = entry
            .claims
            .iter()
            .map(|claim| (claim.place.position, claim.user_id.get(), claim.order_id.get()))
            .collect();
        assert_eq!(claims, [(0, 1, 7), (2, 3, 9)]);
        let positions: Vec<u32> =
            entry.unreadable.iter().map(|position| position.place.position).collect();
        assert_eq!(positions, [1, 3]);
        assert_eq!((entry.counted(), entry.positions()), (4, 4));
        let payload = ["coupon", "1024", "user", "junk", "order", "8"];
        assert_eq!(entry.unreadable[0].payload, payload.map(|word| word.as_bytes().to_vec()));
    }

    #[test]
    fn what_is_not_a_claim_is_undecodable() {
        for fields in [
            &["coupon", "1024", "first", "1", "order", "7"][..],
            &["coupon", "1024", "user", "42", "order", "7"],
            &["coupon", "1024", "order", "7", "users", "42"],
            &["coupon", "1024", "first", "1", "order", "-7", "users", "42"],
            &["coupon", "1024", "first", "1", "order", "9223372036854775807", "users", "42 43"],
            &["coupon", "x", "first", "1", "order", "7", "users", "42"],
            &["junk", "junk"],
        ] {
            let entry = decode(fields);
            assert!(entry.claims.is_empty(), "{fields:?}");
            assert!(
                matches!(entry.unreadable[..], [Unreadable { why: Why::Malformed(_), .. }]),
                "{fields:?}"
            );
        }
        let id = EntryId { ms: 1, sequence: 1 };
        for fields in [None, Some(Vec::new())] {
            assert_eq!(Entry::decode(id, fields).unreadable, [Entry::lost(id)]);
        }
    }

    /// Each position is decoded once, as a claim or as unreadable; and a dead letter keeps all of a claim.
    #[test]
    fn fuzz_entries() {
        let seeds = [
            "coupon|1024|revision|3|epoch|2|first|5001|order|700|users|42 43 44",
            "coupon|1024|first|1|order|7|users|1 junk 8 3 9 4",
            "new|x|coupon|9223372036854775807|first|18446744073709551615|order|1|users|1 2",
        ];
        let seeds = seeds.map(|seed| seed.as_bytes().to_vec()).to_vec();
        let words = &[
            "|",
            " ",
            "  ",
            "-1",
            "0",
            "9223372036854775807",
            "users",
            "order",
            "coupon",
            "first",
        ];
        Fuzz { target: "entries", seeds, words }.run(|input| {
            let fields: Vec<Vec<u8>> =
                input.split(|byte| *byte == b'|').map(<[u8]>::to_vec).collect();
            // Redis may use any id; the first byte of the input chooses one of three.
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
                let LoggedClaim { coupon_id, user_id, order_id, .. } = *claim;
                let alone = LoggedClaim::without_entry(coupon_id, user_id, order_id);
                let again = alone.of_letter(&claim.payload());
                assert_eq!(LoggedClaim { place: claim.place, ..again }, *claim);
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
    fn a_claim_without_its_entry_has_no_revision_until_a_letter_tells_it() {
        let coupon = CouponId::new(1_024).expect("an id");
        let [user, order] = [42, (7 << 32) | 5];
        let user = UserId::new(user).expect("an id");
        let alone = LoggedClaim::without_entry(coupon, user, OrderId::new(order).expect("an id"));
        assert_eq!(alone.claimed_at.to_rfc3339(), "2022-01-01T00:00:07+00:00");
        let entry = EntryId { ms: 1_640_995_207_000, sequence: order.unsigned_abs() };
        let place = Place { epoch: 0, entry, position: 0 };
        assert_eq!((alone.revision, alone.place), (None, place));
        let told = LoggedClaim { revision: Some(3), ..alone };
        assert_eq!((alone.of_letter(&told.payload()), alone.of_letter(&[])), (told, alone));
    }
}
