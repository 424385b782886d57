-- Changes that the staff has made: clerks, operators and administrators over HTTP, and commands. Users' own moves and
-- passes of the workers are not here.
CREATE TABLE audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    -- Subject of the token; null for a command.
    actor      bigint CHECK (actor > 0),
    -- Scope of the token: the `role` in it, or `command_line`.
    scope      text        NOT NULL,
    request_id text,
    action     text        NOT NULL,
    -- Id of the coupon, order, dead letter, payment, postponed item or comparison; the action says which.
    subject_id bigint,
    before     jsonb,
    after      jsonb,
    CONSTRAINT audit_command CHECK ((actor IS NULL) = (scope = 'command_line'))
);
CREATE INDEX audit_at ON audit (at, id);
CREATE INDEX audit_of_actor ON audit (actor, at, id);
CREATE INDEX audit_of_action ON audit (action, at, id);
CREATE INDEX audit_of_subject ON audit (subject_id, at, id);
