-- Time of this migration. A payment that began to go back before is asked for under the key that its gateway knows already;
-- a later one by the gateway's own id, which no restored database gives to another payment.
ALTER TABLE settings ADD COLUMN refund_keys_from timestamptz NOT NULL DEFAULT now();
