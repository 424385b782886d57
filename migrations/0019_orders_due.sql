-- no-transaction
CREATE INDEX CONCURRENTLY orders_due ON orders (coalesce(pay_by, created_at)) WHERE status = 'unpaid';
