-- no-transaction
CREATE INDEX CONCURRENTLY orders_of_coupon ON orders (coupon_id, status, claimed_at, id);
