-- A Postgres that is behind Redis: all lanes are closed until an operator says which of the two is right.

ALTER TABLE settings
    -- What Redis has and Postgres lacks. NULL while the stores belong together.
    ADD COLUMN apart text;
