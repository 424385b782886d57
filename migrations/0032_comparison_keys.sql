-- Keys under which members of the staff asked for comparisons (the header Idempotency-Key): a repeat gets the same one,
-- for as long as its record is kept.
ALTER TABLE reconcile_runs
    -- Subject of the token.
    ADD COLUMN asker bigint CHECK (asker > 0),
    ADD COLUMN key text CHECK (octet_length(key) BETWEEN 1 AND 255),
    -- SHA-256 of the body.
    ADD COLUMN fingerprint bytea,
    ADD CONSTRAINT reconcile_runs_keyed CHECK (num_nulls(asker, key, fingerprint) IN (0, 3));
CREATE UNIQUE INDEX reconcile_runs_key ON reconcile_runs (asker, key) WHERE key IS NOT NULL;
