//! A keyed permutation of the positive 63-bit numbers: a number tells nothing about its neighbours without the key.
//!
//! # Construction
//!
//! An alternating Feistel network, the frame of FF1 in NIST SP 800-38G, over halves of 31 and 32 bits. Its round function
//! is SipHash-2-4 (Aumasson and Bernstein, 2012), a keyed function for short inputs, of the number of the round and one
//! half. Even and odd rounds have keys of their own. Ten rounds, as FF1 has.
//!
//! Zero is no id. The number that the network maps to zero takes the place that zero would have (cycle walking: Black and
//! Rogaway, "Ciphers with arbitrary finite domains", 2002). So each number takes the same ten rounds, but that one.
//!
//! # What is not promised
//!
//! The permutation hides order and distance, and proves nothing: each positive number is the image of another one.

use siphasher::sip::SipHasher24;

/// Rounds of the network.
const ROUNDS: u64 = 10;
/// The upper half: 31 bits, because an id has no sign.
const UPPER: u64 = (1 << 31) - 1;
/// The lower half.
const LOWER: u64 = (1 << 32) - 1;

/// A permutation of the numbers from 1 to `i64::MAX`.
#[derive(Clone)]
pub struct Permutation {
    even: SipHasher24,
    odd: SipHasher24,
}

impl Permutation {
    /// The permutation of this key.
    pub fn new(key: &[u8; 32]) -> Self {
        let half = |from| std::array::from_fn(|at| key[from + at]);
        Self {
            even: SipHasher24::new_with_key(&half(0)),
            odd: SipHasher24::new_with_key(&half(16)),
        }
    }

    /// The image of a positive number.
    pub fn forward(&self, number: i64) -> i64 {
        not_zero(number, |number| {
            (0..ROUNDS).fold(number, |number, round| self.round(number, round))
        })
    }

    /// The number that has this image.
    pub fn backward(&self, image: i64) -> i64 {
        let undone = |image| (0..ROUNDS).rev().fold(image, |image, round| self.round(image, round));
        not_zero(image, undone)
    }

    /// One round, which is its own inverse: one half changes, by a function of the other.
    fn round(&self, number: u64, round: u64) -> u64 {
        let (upper, lower) = (number >> 32, number & LOWER);
        let mixed =
            |hasher: &SipHasher24, half: u64| hasher.hash(&(round << 32 | half).to_le_bytes());
        match round % 2 {
            0 => number ^ (mixed(&self.even, upper) & LOWER),
            _ => number ^ ((mixed(&self.odd, lower) & UPPER) << 32),
        }
    }
}

/// The image under `network`, without zero.
fn not_zero(number: i64, network: impl Fn(u64) -> u64) -> i64 {
    debug_assert!(number > 0, "ids are positive");
    let image = match network(number.cast_unsigned()) {
        0 => network(0),
        image => image,
    };
    image.cast_signed()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = *b"thirty-two bytes, only for tests";

    proptest! {
        #[test]
        fn each_number_has_an_image_and_comes_back(key: [u8; 32], number in 1..=i64::MAX) {
            let permutation = Permutation::new(&key);
            let image = permutation.forward(number);
            prop_assert!(image > 0);
            prop_assert_eq!(permutation.backward(image), number);
            prop_assert_eq!(permutation.forward(permutation.backward(number)), number);
        }

        /// Half of the bits, on average, however small the difference.
        #[test]
        fn neighbours_have_images_far_apart(key: [u8; 32], number in 1..i64::MAX - 64) {
            let permutation = Permutation::new(&key);
            let image = |step: i64| permutation.forward(number + step);
            let bits: u32 = (0..64).map(|step| (image(step) ^ image(step + 1)).count_ones()).sum();
            prop_assert!((64 * 26..64 * 37).contains(&bits), "{bits} bits");
        }
    }

    #[test]
    fn images_are_those_of_the_first_release() {
        let permutation = Permutation::new(&KEY);
        let images = [1, 2, 665_000_000_000_000_001, i64::MAX].map(|id| permutation.forward(id));
        assert_eq!(images, FROZEN);
    }

    /// An installation reads the ids that it has handed out for as long as it lives: these never change. A program of its
    /// own, with the SipHash of the paper, has worked them out.
    const FROZEN: [i64; 4] = [
        6_587_833_304_780_265_079,
        2_805_507_466_823_969_710,
        6_514_578_446_924_278_911,
        7_900_995_276_575_903_128,
    ];

    #[test]
    fn no_two_numbers_share_an_image_and_none_is_zero() {
        let permutation = Permutation::new(&KEY);
        let images: HashSet<i64> = (1..100_000).map(|id| permutation.forward(id)).collect();
        assert_eq!(images.len(), 99_999);
        assert!(!images.contains(&0));
    }

    #[test]
    fn zero_is_walked_around() {
        // A network of three numbers, which maps 2 to zero.
        let network = |number: u64| (number + 1) % 3;
        assert_eq!([1, 2].map(|number| not_zero(number, network)), [2, 1]);
    }
}
