-- Digests of the orders that were there before. One statement sees the table and the changes at one moment, so writers go
-- on meanwhile. No lock is held that a writer would wait for.
INSERT INTO order_count_changes (coupon_id, status, orders, digest)
    SELECT coupon_id, status, 0, sum(digest)
    FROM (SELECT coupon_id, status, sum(digest_of_order(status, id, user_id)) AS digest
          FROM orders WHERE is_live(status) GROUP BY coupon_id, status
          UNION ALL
          SELECT coupon_id, status, -digest FROM order_count_changes
          UNION ALL
          SELECT coupon_id, status, -digest FROM order_counts) AS digested
    GROUP BY coupon_id, status HAVING sum(digest) <> 0;
