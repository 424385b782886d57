//! Names of a claim's trace and of its spans, for a collector of traces.
//!
//! Both follow from the order id alone. So each process that deals with the order names the same trace, and decides in the
//! same way whether the trace is sent; nothing travels from the claim to its row.

use aws_lc_rs::digest::{SHA256, digest};

use crate::sale::ids::OrderId;

/// Name of the trace of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceName([u8; 16]);

impl TraceName {
    /// The name for this order.
    pub fn of(order: OrderId) -> Self {
        Self(first_bytes(&[&b"flash-sale order "[..], &order.get().to_be_bytes()].concat()))
    }

    /// Its bytes (<https://www.w3.org/TR/trace-context-2/#trace-id>).
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// Name of the trace's span for this step.
    pub fn span(self, step: &str) -> [u8; 8] {
        first_bytes(&[&self.0[..], step.as_bytes()].concat())
    }

    /// True if the trace is sent: one in so many is.
    pub fn is_picked(self, one_in: u32) -> bool {
        let [.., a, b, c, d] = self.0;
        u32::from_be_bytes([a, b, c, d]).is_multiple_of(one_in)
    }
}

fn first_bytes<const N: usize>(of: &[u8]) -> [u8; N] {
    let digest = digest(&SHA256, of);
    *digest.as_ref().first_chunk().expect("a digest has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(order: i64) -> TraceName {
        TraceName::of(OrderId::new(order).unwrap())
    }

    #[test]
    fn each_order_and_each_step_has_a_name_of_its_own() {
        let mut names: Vec<_> = (1..=1_000).map(|order| name(order).bytes()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1_000);
        assert_eq!(name(7), name(7), "in each process the same");
        assert_ne!(name(7).span("row"), name(7).span("log"));
        assert_ne!(name(7).span("row"), name(8).span("row"));
    }

    #[test]
    fn one_in_so_many_is_picked() {
        let picked = |one_in| (1..=10_000).filter(|order| name(*order).is_picked(one_in)).count();
        assert_eq!(picked(1), 10_000);
        assert!((800..1_200).contains(&picked(10)), "{}", picked(10));
    }
}
