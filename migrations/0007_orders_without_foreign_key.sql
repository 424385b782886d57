-- The foreign key of `orders` had Postgres look up, and lock, the coupon's row once for each order: a third of what
-- writing an order cost, and the one row that all writers of a sale touched. What it said holds without it:
-- an order of a flash coupon is written in the transaction that counts it in `flash_sales.sold`, which fails without a
-- sale; an order of a regular coupon is selected from its row; and no coupon goes away, which is now said here.
ALTER TABLE orders DROP CONSTRAINT orders_coupon;

CREATE FUNCTION refuse_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never deleted: orders name them', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER coupons_stay BEFORE DELETE OR TRUNCATE ON coupons
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_deletion();
CREATE TRIGGER flash_sales_stay BEFORE DELETE OR TRUNCATE ON flash_sales
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_deletion();
