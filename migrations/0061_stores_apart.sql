-- A Postgres that is behind Redis: all lanes are closed until an operator says which of the two is right.

ALTER TABLE settings
    -- What Redis has and Postgres lacks. NULL while the stores belong together.
    ADD COLUMN apart text;

ALTER TABLE lanes
    -- Orders of the lane that were acknowledged and that no store knows, as the last decision of an operator left them.
    ADD COLUMN unwritten_accepted bigint NOT NULL DEFAULT 0 CHECK (unwritten_accepted >= 0);
