-- no-transaction
CREATE INDEX CONCURRENTLY payments_settled_of_reason ON payments (refund_reason, id)
    WHERE status IN ('refunded', 'closed');
