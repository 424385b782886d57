-- All unpaid orders of a coupon are cancelled by their deadline: the expiry closes them, as cancelled where this says why.
ALTER TABLE orders ADD COLUMN cancel_reason text;
DROP TABLE jobs;
