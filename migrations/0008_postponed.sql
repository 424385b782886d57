-- What a pass of the workers could not deal with, although both stores answered: put aside, so that everything else goes on,
-- and tried again less and less often. Kept here, so that all processes know of it.
CREATE TABLE postponed (
    -- Names the row to an operator; newer rows have larger ones.
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    pass        text        NOT NULL,
    -- An order (expiry), a payment (refunds), or a coupon (all others).
    item        bigint      NOT NULL CHECK (item > 0),
    -- When it failed first, and how often since.
    since       timestamptz NOT NULL DEFAULT now(),
    tries       bigint      NOT NULL DEFAULT 1 CHECK (tries > 0),
    -- The pass leaves it alone until then.
    next_try_at timestamptz NOT NULL,
    -- What the last try came upon.
    error       text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT postponed_once PRIMARY KEY (pass, item),
    CONSTRAINT postponed_id UNIQUE (id)
);
-- What is due, the one that has waited longest first.
CREATE INDEX postponed_due ON postponed (pass, next_try_at);
