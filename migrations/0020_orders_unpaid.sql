-- In its place stands `orders_due`. The expiry of older processes that run beside reads the table without it, and may
-- take too long then; the newer ones close those orders.
DROP INDEX orders_unpaid;
