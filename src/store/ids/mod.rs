//! The ids of the business. Each has its own type, so that a user id can't be passed for an order id.
//!
//! In JSON every id is a string, because JavaScript rounds numbers above 2^53.

// The parts of an order id.
pub mod order_id;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::base::limits::LANE_BITS;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}", Self::WORDS)]
pub struct InvalidId;

impl InvalidId {
    pub const WORDS: &str =
        "an id is a whole number from 1 to 9223372036854775807, in decimal digits";
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(ToSchema, sqlx::Type)]
        #[schema(value_type = String, min_length = 1, max_length = 19, pattern = "^([1-9][0-9]{0,17}|[1-8][0-9]{18}|9[01][0-9]{17}|92[01][0-9]{16}|922[0-2][0-9]{15}|9223[0-2][0-9]{14}|92233[0-6][0-9]{13}|922337[01][0-9]{12}|92233720[0-2][0-9]{10}|922337203[0-5][0-9]{9}|9223372036[0-7][0-9]{8}|92233720368[0-4][0-9]{7}|922337203685[0-3][0-9]{6}|9223372036854[0-6][0-9]{5}|92233720368547[0-6][0-9]{4}|922337203685477[0-4][0-9]{3}|9223372036854775[0-7][0-9]{2}|922337203685477580[0-7])$")]
        #[sqlx(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Makes an id of a number.
            ///
            /// # Errors
            ///
            /// When the number isn't positive.
            pub fn new(number: i64) -> Result<Self, InvalidId> {
                if number > 0 { Ok(Self(number)) } else { Err(InvalidId) }
            }

            pub fn get(self) -> i64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                // `+7` and `007` parse as well, but an id has only one spelling.
                let canonical = text.starts_with(|c: char| ('1'..='9').contains(&c));
                let number = text.parse().ok().filter(|_| canonical).ok_or(InvalidId)?;
                Self::new(number)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id! {
    /// Id of a coupon: a whole number from 1 to 9223372036854775807, as a string of digits. Its lowest 10 bits are the
    /// number of its lane, which never changes.
    CouponId
}
id! {
    /// Id of a user: a whole number from 1 to 9223372036854775807, as a string of digits. Comes from a verified token only.
    UserId
}
id! {
    /// Id of an order: a whole number from 1 to 9223372036854775807, as a string of digits.
    OrderId
}

id! {
    /// Id of a payment in this service: a whole number from 1 to 9223372036854775807, as a string of digits. The
    /// gateway has its own id for the payment.
    PaymentId
}

id! {
    /// Id of a comparison of Redis with Postgres: a whole number from 1 to 9223372036854775807, as a string of digits.
    RunId
}

id! {
    /// Id of a dead letter: a whole number from 1 to 9223372036854775807, as a string of digits.
    DeadLetterId
}

id! {
    /// Id of a recovery of a lane: a whole number from 1 to 9223372036854775807, as a string of digits.
    RecoveryId
}

id! {
    /// Id of a postponed item: a whole number from 1 to 9223372036854775807, as a string of digits.
    PostponedId
}

id! {
    /// Id of an endpoint that events are sent to: a whole number from 1 to 9223372036854775807, as a string of digits.
    WebhookId
}

id! {
    /// Id of a try to deliver an event: a whole number from 1 to 9223372036854775807, as a string of digits.
    DeliveryId
}

id! {
    /// Id of an entry in the audit log: a whole number from 1 to 9223372036854775807, as a string of digits.
    AuditId
}

id! {
    /// Id of a thing that the staff has changed (a coupon, an order, a dead letter, a payment, a postponed item, a
    /// comparison or an endpoint of events): a whole number from 1 to 9223372036854775807, as a string of digits.
    SubjectId
}

/// A partition of the keys. All keys of a coupon have its lane's hash tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(i32);

impl Lane {
    /// The lane with this number, from 0.
    pub fn numbered(number: i32) -> Self {
        Self(number)
    }

    /// All lanes of an installation with `count` lanes.
    pub fn all(count: i32) -> impl Iterator<Item = Self> {
        (0..count).map(Self)
    }

    pub fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl CouponId {
    /// The id of the coupon with this sequence number, in an installation with `lanes` lanes.
    pub fn compose(sequence: i64, lanes: i32) -> Self {
        assert!(sequence > 0 && lanes > 0, "sequences and lanes count from 1");
        Self((sequence << LANE_BITS) | (sequence % i64::from(lanes)))
    }

    /// The coupon's number in the sequence of coupons; 0 for a number that no coupon has as its id.
    pub fn sequence(self) -> i64 {
        self.0 >> LANE_BITS
    }

    pub fn lane(self) -> Lane {
        let lane = self.0 & ((1 << LANE_BITS) - 1);
        Lane(i32::try_from(lane).expect("ten bits fit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_name() {
        assert_eq!("9223372036854775807".parse(), Ok(OrderId(i64::MAX)));
        for text in ["", "0", "-1", "+1", "01", " 1", "1.0", "9223372036854775808", "x", "٣"] {
            assert_eq!(text.parse::<OrderId>(), Err(InvalidId), "{text:?}");
        }
    }

    #[test]
    fn a_coupon_id_names_its_lane() {
        for lanes in [1, 4, 1024] {
            for sequence in 1..3_000 {
                let lane = CouponId::compose(sequence, lanes).lane();
                assert_eq!(i64::from(lane.get()), sequence % i64::from(lanes));
            }
        }
    }

    #[test]
    fn ids_are_strings_in_json() {
        let id = OrderId(i64::MAX);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"9223372036854775807\"");
        assert_eq!(serde_json::from_str::<UserId>(&json).unwrap(), UserId(i64::MAX));
        assert!(serde_json::from_str::<UserId>("5").is_err());
    }
}
