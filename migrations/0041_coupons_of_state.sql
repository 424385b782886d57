-- no-transaction
CREATE INDEX CONCURRENTLY coupons_of_state ON coupons (kind, state, id);
