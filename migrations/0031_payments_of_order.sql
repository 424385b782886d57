-- no-transaction
CREATE INDEX CONCURRENTLY payments_of_order ON payments (order_id);
