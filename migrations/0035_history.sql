-- History: orders that are over leave `orders` with their payments, redemptions and stock returns. `orders` stays one
-- table: its unique indexes over coupon and user can't span partitions by time.
--
-- Each table is partitioned by the month of the claim, which the id of an order carries: an order is found in one
-- partition, and a month goes as a whole. The pass makes and drops the partitions.
-- The tables have the columns of their originals in the same order; so a column that is added to one of those is added
-- here and to the view, too. A pass that moves `*` fails until then.

CREATE TABLE order_history (
    LIKE orders,
    CONSTRAINT order_history_once PRIMARY KEY (id)
) PARTITION BY RANGE (id);
-- A user's orders: list, export, erasing.
CREATE INDEX order_history_of_user ON order_history (user_id, id);

CREATE TABLE payment_history (
    LIKE payments,
    CONSTRAINT payment_history_once PRIMARY KEY (order_id, id)
) PARTITION BY RANGE (order_id);
-- A gateway names a payment by its own id.
CREATE INDEX payment_history_named ON payment_history (gateway_payment_id, gateway);

CREATE TABLE redemption_history (
    LIKE redemptions,
    CONSTRAINT redemption_history_once PRIMARY KEY (order_id)
) PARTITION BY RANGE (order_id);
CREATE INDEX redemption_history_code ON redemption_history (code);

CREATE TABLE stock_return_history (
    LIKE stock_returns,
    CONSTRAINT stock_return_history_once PRIMARY KEY (order_id, what)
) PARTITION BY RANGE (order_id);

-- Orders that have moved, those of dropped months included: an order counts here or in the running counts (0028), never in
-- both. A comparison of the stores needs both.
CREATE TABLE moved_order_counts (
    coupon_id bigint NOT NULL,
    status    text   NOT NULL,
    orders    bigint NOT NULL CHECK (orders >= 0),
    CONSTRAINT moved_order_counts_once PRIMARY KEY (coupon_id, status)
);

-- A claim that may have been an order before it moved. Not validated: the older rule held, and is stricter.
ALTER TABLE dead_letters
    DROP CONSTRAINT dead_letters_reason_check,
    ADD CONSTRAINT dead_letters_reason_check CHECK (reason IN
        ('undecodable', 'invalid', 'conflict', 'oversold', 'deleted_from_log', 'before_mark')) NOT VALID;

-- Each order wherever it is, and what belongs to it.
CREATE VIEW every_order AS SELECT * FROM orders UNION ALL SELECT * FROM order_history;
CREATE VIEW every_payment AS SELECT * FROM payments UNION ALL SELECT * FROM payment_history;
CREATE VIEW every_redemption AS SELECT * FROM redemptions UNION ALL SELECT * FROM redemption_history;
CREATE VIEW every_stock_return AS SELECT * FROM stock_returns UNION ALL SELECT * FROM stock_return_history;

ALTER TABLE settings
    -- The newest order that has moved into the history, or 0. Only grows. A claim up to here whose sale is archived, and
    -- that is no row, may be an order that has moved or whose month was dropped: it never becomes a row.
    ADD COLUMN orders_moved_to bigint NOT NULL DEFAULT 0;
