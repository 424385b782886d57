-- A payment that the gateway has closed is opened anew for a payer who comes back: its number among those of the order and
-- method. The row names the payment that is open, or that will be.
ALTER TABLE opened_payments ADD COLUMN number integer NOT NULL DEFAULT 1;
