-- no-transaction
CREATE INDEX CONCURRENTLY payments_owed_of_reason ON payments (refund_reason, id) WHERE status = 'refunding';
