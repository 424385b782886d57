-- What the pass over stock returns steps through: from coupon to coupon, and in each the rows that have waited longest.
-- The index `stock_returns_open` stays for older processes that run beside; a later release removes it. Orders can't be
-- closed while this is built, which takes about a second for each million rows of the outbox; claims are taken and
-- written meanwhile.
CREATE INDEX stock_returns_waiting ON stock_returns (what, coupon_id, updated_at) WHERE done_at IS NULL;

-- Open dead letters, for the list of them: among all that there ever were, they are few.
CREATE INDEX dead_letters_open ON dead_letters (id) WHERE resolved_at IS NULL;
