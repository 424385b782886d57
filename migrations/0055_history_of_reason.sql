-- As 0054, for payments that have moved. While this is built, no order moves into the history or back; readers, claims and
-- orders don't wait.
CREATE INDEX payment_history_settled_of_reason ON payment_history (refund_reason, id)
    WHERE status IN ('refunded', 'closed');
