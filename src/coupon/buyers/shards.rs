//! Shards of the buyers of a sale: many small hashes in place of a large one.
//!
//! # Model
//!
//! Redis keeps a hash of few fields as one block of bytes (a listpack), where a buyer takes a quarter of the memory of
//! a field of a large hash. So the buyers of a sale are spread over shards, [`limits::SHARD_BUYERS`] to each when the
//! sale is sold out. The shard of a user follows from the user's id and the number of shards. So this number is fixed
//! when the sale is loaded: a restock fills the shards further, and Redis turns a shard that gets too full into an
//! ordinary hash.
//!
//! # Authority
//!
//! The field `shards` of the coupon's hash decides. A caller may remember another value, so scripts that write compare
//! it: no user is looked for, or remembered, in a wrong shard. A sale that a recovery has built anew has other shards
//! than before. The field is `157@4` then, and the names of its shards carry the epoch 4 of that recovery.
//!
//! # Loss
//!
//! Each shard has the field [`SENTINEL`] from the load on, so it exists without buyers, too. A shard that doesn't
//! exist, or lacks that field, has been lost, and a claim of a user who belongs there is refused.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::Range;
use std::str::FromStr;

use crate::base::limits;
use crate::store::ids::{CouponId, UserId};
use crate::store::keys::Keys;

/// The field of a shard that is no buyer.
pub const SENTINEL: &str = "-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards {
    count: NonZeroU32,
    /// Epoch of the recovery that built them; 0 for those of the load.
    version: i64,
}

impl Shards {
    /// One shard: right for a small sale, and a first guess for any other.
    pub const ONE: Self = Self { count: NonZeroU32::MIN, version: 0 };

    /// Shards with which a sale of so many units is loaded. More units never have fewer shards.
    pub fn for_units(total: i64) -> Self {
        let shards = ((total + limits::SHARD_BUYERS - 1) / limits::SHARD_BUYERS)
            .clamp(1, limits::SHARDS_MAX);
        u32::try_from(shards).ok().and_then(Self::new).expect("it is small, and not 0")
    }

    /// Shards of a loaded sale; `None` for 0.
    pub fn new(count: u32) -> Option<Self> {
        Some(Self { count: NonZeroU32::new(count)?, version: 0 })
    }

    /// As many shards, named after the recovery of this epoch.
    #[must_use]
    pub fn of_version(self, version: i64) -> Self {
        Self { version, ..self }
    }

    pub fn count(self) -> u32 {
        self.count.get()
    }

    pub fn version(self) -> i64 {
        self.version
    }

    pub fn key(self, keys: &Keys, coupon: CouponId, shard: u32) -> String {
        keys.buyers_of(coupon, self.version, shard)
    }

    pub fn all(self) -> Range<u32> {
        0..self.count()
    }

    /// The number of this user's shard. All processes have to use the same rule.
    pub fn of(self, user: UserId) -> u32 {
        let upper = mix(user.get().cast_unsigned()) >> 32;
        u32::try_from((upper * u64::from(self.count())) >> 32).expect("less than the count")
    }
}

/// As in the field of the sale: `157`, or `157@4`.
impl fmt::Display for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            0 => self.count.fmt(f),
            version => write!(f, "{}@{version}", self.count),
        }
    }
}

impl FromStr for Shards {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNKNOWN: &str = "shards are a number, or a number, `@` and an epoch";
        let (count, version) = text.split_once('@').unwrap_or((text, "0"));
        match (count.parse(), version.parse()) {
            (Ok(count), Ok(version @ 0..)) => Ok(Self { count, version }),
            _ => Err(UNKNOWN),
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): every bit of the input changes about half of the
/// output's, so ids with a pattern spread like any others.
fn mix(id: u64) -> u64 {
    let id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ (id >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id of the n-th user.
    type Ids = fn(i64) -> i64;

    fn user(id: i64) -> UserId {
        UserId::new(id).expect("a positive number")
    }

    #[test]
    fn a_sale_has_a_shard_for_every_32_units_within_bounds() {
        let of = |total| Shards::for_units(total).count();
        assert_eq!([0, 1, 32, 33, 5_000].map(of), [1, 1, 1, 2, 157]);
        assert_eq!(i64::from(of(limits::TOTAL_MAX)), limits::SHARDS_MAX);
        assert_eq!(i64::from(of(10 * limits::TOTAL_MAX)), limits::SHARDS_MAX);
        assert_eq!([64, 65].map(of), [2, 3]);
        assert_eq!(Shards::new(0), None);
    }

    #[test]
    fn shards_know_their_count_their_version_and_their_keys() {
        let (keys, coupon) = (Keys::new("t"), CouponId::compose(5, 1));
        let loaded = Shards::new(157).unwrap();
        let built = loaded.of_version(4);
        assert_eq!((loaded.count(), loaded.version(), loaded.all()), (157, 0, 0..157));
        assert_eq!((built.count(), built.version(), built.all()), (157, 4, 0..157));
        assert_eq!(loaded.key(&keys, coupon, 9), keys.buyers(coupon, 9));
        assert_eq!(built.key(&keys, coupon, 9), keys.buyers_of(coupon, 4, 9));
        assert_ne!(loaded.key(&keys, coupon, 9), built.key(&keys, coupon, 9));
    }

    #[test]
    fn shards_are_written_as_they_are_read() {
        for text in ["1", "157", "157@4", "31250@1"] {
            assert_eq!(text.parse::<Shards>().unwrap().to_string(), text);
        }
        assert_eq!("157@4".parse(), Ok(Shards::new(157).unwrap().of_version(4)));
        for text in ["", "0", "0@4", "@4", "157@", "157@-1", "x"] {
            assert!(text.parse::<Shards>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_user_s_shard_is_fixed_for_ever() {
        let of = |id| Shards::new(157).unwrap().of(user(id));
        assert_eq!([1, 2, 42, 1_000_000_007, i64::MAX].map(of), [53, 134, 102, 142, 55]);
        assert_eq!(Shards::ONE.of(user(i64::MAX)), 0);
    }

    #[test]
    fn ids_with_a_pattern_spread_evenly() {
        const USERS: i64 = 100_000;
        let shards = Shards::for_units(USERS);
        let patterns: [(&str, Ids); 9] = [
            ("one after the other", |n| n),
            ("even", |n| 2 * n),
            ("thousands", |n| 1_000 * n),
            ("powers of two apart", |n| n << 20),
            ("in the upper half", |n| n << 40),
            ("a Fibonacci number apart", |n| 1_346_269 * n),
            ("as many apart as there are shards", |n| 3_125 * n),
            ("with a lane behind", |n| (n << 10) | 7),
            ("from the end", |n| i64::MAX - n),
        ];
        for (what, id) in patterns {
            let mut buyers = vec![0_u32; shards.count() as usize];
            (1..=USERS).for_each(|n| buyers[shards.of(user(id(n))) as usize] += 1);
            // 32 on average; by chance alone, one shard in 10^9 has fewer than 5 or more than 75.
            let least = buyers.iter().min().unwrap();
            let most = buyers.iter().max().unwrap();
            assert!(*least >= 5 && *most <= 75, "{what}: {least} to {most}");
        }
    }
}
