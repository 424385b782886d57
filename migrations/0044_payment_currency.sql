-- Currency of the money that a gateway has taken (ISO 4217). Rows of older versions have none: the order's holds.
ALTER TABLE payments ADD COLUMN currency text;
ALTER TABLE payment_history ADD COLUMN currency text;
CREATE OR REPLACE VIEW every_payment AS SELECT * FROM payments UNION ALL SELECT * FROM payment_history;
