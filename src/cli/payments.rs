//! The gateway that takes money for orders, in words: for `serve` at its start, and for `doctor`.

use crate::sale::payment::gateway::Checkout;

/// Effect of the settings of payments.
#[derive(Debug, PartialEq, Eq)]
pub enum Judged {
    /// A gateway takes the money.
    Safe(String),
    /// No order can be paid, or no gateway is asked for refunds.
    Lacking(String),
    /// Orders are paid and no money moves.
    Unsafe(String),
}

/// Judges the place where users of a process pay.
pub fn judge(checkout: Checkout) -> Judged {
    match checkout {
        Checkout::Opened => Judged::Safe(
            "Payments: they are opened and refunded at the gateway of --gateway-url, which confirms them by callback".into(),
        ),
        Checkout::Elsewhere => Judged::Lacking(
            "Payments: a gateway elsewhere takes the money and confirms it by callback, and is asked for no refund: each waits until the gateway confirms it, or a person has given the money back; set --gateway-url to have it asked".into(),
        ),
        Checkout::Nowhere => Judged::Lacking(
            "Payments: there is no gateway, so no order can be paid, and each expires; set --payment-callback-secret for a gateway, or --in-process-gateway to try it without one".into(),
        ),
        Checkout::InProcess => Judged::Unsafe(
            "Payments: --in-process-gateway says yes to every user who wants to pay, and no money moves: whatever is on sale is given away. It is for trying only; leave it away, and set --payment-callback-secret for a gateway".into(),
        ),
    }
}
