-- What the staff has changed, and what waits for it.

-- Changes that the staff has made: clerks, operators and administrators over HTTP, and commands.
CREATE TABLE audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    -- Subject of the token; null for a command.
    actor      bigint CHECK (actor > 0),
    -- Scope of the token: the `role` in it, or `command_line`.
    scope      text        NOT NULL,
    action     text        NOT NULL,
    -- Id of the coupon, order, dead letter, payment, postponed item or comparison; the action says which.
    subject_id bigint,
    before     jsonb,
    after      jsonb,
    CONSTRAINT audit_command CHECK ((actor IS NULL) = (scope = 'command_line'))
);
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_of_action ON audit (action, id);
CREATE INDEX audit_of_subject ON audit (subject_id, id);

-- What a job of the workers could not deal with, although both stores answered: put aside, so that everything else goes
-- on, and tried again less and less often. Kept here, so that all processes know of it.
CREATE TABLE postponed (
    -- Names the row to an operator; newer rows have larger ones.
    id          bigint      GENERATED ALWAYS AS IDENTITY,
    job        text        NOT NULL,
    -- An order (expiry, openings), a payment (refunds), or a coupon (all others).
    item        bigint      NOT NULL CHECK (item > 0),
    -- When it failed first, and how often since.
    since       timestamptz NOT NULL DEFAULT now(),
    tries       bigint      NOT NULL DEFAULT 1 CHECK (tries > 0),
    -- The job leaves it alone until then.
    next_try_at timestamptz NOT NULL,
    -- What the last try came upon.
    error       text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT postponed_once PRIMARY KEY (job, item),
    CONSTRAINT postponed_id UNIQUE (id)
);
-- What is due, the one that has waited longest first.
CREATE INDEX postponed_due ON postponed (job, next_try_at);

-- What waits for a person, in one shape. Within a kind, newer things have larger ids; `about` chooses the advice.
CREATE VIEW waiting AS
    -- Half a minute is more than a recovery takes.
    SELECT 'lane'::text AS kind, lane::bigint AS id, closed_at AS since,
           'lane ' || lane || ', epoch ' || epoch || ': closed: ' || reason AS detail, state AS about
    FROM lanes WHERE state <> 'open' AND closed_at < now() - interval '30 s'
    UNION ALL
    -- Of the newest comparison, the first finding first.
    SELECT 'finding', run.id * 1000 + 1000 - found.number, run.finished_at,
           (found.one->>'code') || ': ' || (found.one->>'detail'), found.one->>'code'
    FROM (SELECT * FROM reconcile_runs WHERE disagreements IS NOT NULL ORDER BY id DESC LIMIT 1) AS run
         CROSS JOIN LATERAL jsonb_array_elements(run.findings) WITH ORDINALITY AS found (one, number)
    UNION ALL
    SELECT 'recovery', id, closed_at,
           'lane ' || lane || ': ' || jsonb_array_length(lost) || ' claims not kept' || CASE
               WHEN unknown > 0 THEN ', and at least ' || unknown || ' more that nothing names' ELSE '' END, ''
    FROM recoveries WHERE settled_at IS NULL AND (lost <> '[]' OR unknown > 0)
    UNION ALL
    SELECT 'dead_letter', id, created_at,
           coalesce('order ' || order_id || ' of user ' || user_id || ', coupon ' || coupon_id,
                    'an entry that can''t be read') || ': ' || reason || ': ' || detail, reason
    FROM dead_letters WHERE resolved_at IS NULL
    UNION ALL
    SELECT 'held_payment', id, CASE refund_reason WHEN 'charged_back' THEN updated_at ELSE created_at END,
           CASE WHEN notice IS NOT NULL
                    THEN 'a signed notice that could not be understood: ' || left(encode(notice, 'escape'), 2000)
                ELSE amount_cents || ' cents' || coalesce(' ' || currency, '') || ' of payment ' || gateway_payment_id
                    || ' for order ' || order_id || ': ' || refund_reason END,
           CASE WHEN refund_reason = 'unknown_order' AND next_check_at = 'infinity' THEN 'may_be_back'
                ELSE refund_reason END
    FROM payments WHERE status = 'held'
    UNION ALL
    SELECT 'refund', id, coalesce(refunding_at, created_at),
           amount_cents || ' cents' || coalesce(' ' || currency, '') || ' of payment ' || gateway_payment_id
               || ' for order ' || order_id || ': ' || refund_reason, refund_reason
    FROM payments WHERE status = 'refunding'
    UNION ALL
    SELECT 'webhook', id, coalesce(failing_since, created_at), url || ': ' || coalesce(error, 'disabled'), ''
    FROM webhooks WHERE state = 'disabled'
    UNION ALL
    SELECT 'postponed', id, since,
           job || ': ' || CASE
               WHEN job IN ('expiry', 'openings') THEN 'order ' WHEN job = 'refunds' THEN 'payment '
               ELSE 'coupon ' END || item || ' has failed ' || tries || ' times: ' || error, job || ' ' || item
    FROM postponed;
