-- An order always has its buyer.
ALTER TABLE orders
    DROP CONSTRAINT orders_user_id_check,
    ADD CONSTRAINT orders_user_id_check CHECK (user_id > 0);
