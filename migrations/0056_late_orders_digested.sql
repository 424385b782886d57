-- Digests of changes that 0038 could not see. A statement that had called the triggers of before 0037, and waited for the
-- lock of 0037, has noted its change without a digest, and its transaction may have ended after 0038 had looked. Here
-- such transactions are waited for: none begins any more. No lock is held that a writer would wait for.
DO $$
DECLARE
    writers text[];
    sessions int[];
    begun timestamptz := clock_timestamp();
BEGIN
    SELECT array_agg(virtualtransaction), array_agg(pid) INTO writers, sessions FROM pg_locks
        WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND relation IN ('orders'::regclass, 'order_count_changes'::regclass) AND mode = 'RowExclusiveLock'
          AND pid <> pg_backend_pid();
    WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'virtualxid' AND virtualtransaction = ANY(writers)) LOOP
        IF clock_timestamp() > begun + interval '5 s' THEN
            RAISE WARNING 'migration 56 waits for transactions that write orders, of these sessions: %', sessions;
            begun := 'infinity';
        END IF;
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;

INSERT INTO order_count_changes (coupon_id, status, orders, digest)
    SELECT coupon_id, status, 0, sum(digest)
    FROM (SELECT coupon_id, status, sum(digest_of_order(status, id, user_id)) AS digest
          FROM orders WHERE is_live(status) GROUP BY coupon_id, status
          UNION ALL
          SELECT coupon_id, status, -digest FROM order_count_changes
          UNION ALL
          SELECT coupon_id, status, -digest FROM order_counts) AS digested
    GROUP BY coupon_id, status HAVING sum(digest) <> 0;
