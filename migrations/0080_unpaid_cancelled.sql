-- All unpaid orders of a coupon are cancelled by their deadline: the expiry closes them, as cancelled where this says why.
ALTER TABLE orders ADD COLUMN cancel_reason text;
ALTER TABLE order_history ADD COLUMN cancel_reason text;
CREATE OR REPLACE VIEW every_order AS SELECT * FROM orders UNION ALL SELECT * FROM order_history;
DROP TABLE jobs;
