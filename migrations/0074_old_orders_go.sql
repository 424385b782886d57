-- Old orders are deleted; there is no history of orders.

DROP VIEW every_order, every_payment, every_redemption, every_stock_return;
DROP TABLE order_history;
DROP TABLE payment_history;
DROP TABLE redemption_history;
DROP TABLE stock_return_history;
DROP TABLE moved_order_counts;

ALTER TABLE settings
    DROP COLUMN orders_moved_to,
    DROP COLUMN payments_kept_from;

-- The claim's sale is archived, so its order may have been deleted.
ALTER TABLE dead_letters
    DROP CONSTRAINT dead_letters_reason_check,
    ADD CONSTRAINT dead_letters_reason_check CHECK (reason IN
        ('undecodable', 'invalid', 'conflict', 'oversold', 'deleted_from_log', 'archived'));
