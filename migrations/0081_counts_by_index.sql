-- No running counts, digests or readings: Postgres counts the orders of a coupon by an index, and a comparison reads all.
DROP TRIGGER orders_counted_when_new ON orders;
DROP TRIGGER orders_counted_when_changed ON orders;
DROP TRIGGER orders_counted_when_deleted ON orders;
DROP FUNCTION count_new_orders, count_changed_orders, count_deleted_orders, digest_of_order;
DROP TABLE order_counts;
DROP TABLE order_count_changes;
DROP TABLE order_count_audit;
DROP TABLE sale_readings;
DROP TABLE sale_reading_audit;
ALTER TABLE reconcile_runs
    DROP CONSTRAINT reconcile_runs_found,
    DROP COLUMN orders, DROP COLUMN kind, DROP COLUMN unchanged, DROP COLUMN waiting, DROP COLUMN oldest_reading_at,
    ADD CONSTRAINT reconcile_runs_found CHECK (num_nulls(at_rest, sales, in_flight, disagreements) IN (0, 4));
