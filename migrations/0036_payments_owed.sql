-- no-transaction
CREATE INDEX CONCURRENTLY payments_owed ON payments (id) WHERE status = 'refunding';
