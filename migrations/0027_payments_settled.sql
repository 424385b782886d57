-- no-transaction
CREATE INDEX CONCURRENTLY payments_settled ON payments (id) WHERE status IN ('refunded', 'closed');
