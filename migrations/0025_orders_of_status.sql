-- no-transaction
CREATE INDEX CONCURRENTLY orders_of_status ON orders (status, claimed_at, id);
