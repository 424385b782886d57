-- Whether order ids have another form outside, decided once for an installation.

ALTER TABLE settings
    -- None until the first start of a service. `plain`: ids are the same outside. `keyed`: they are their images under a
    -- permutation.
    ADD COLUMN order_ids text CONSTRAINT settings_order_ids CHECK (order_ids IN ('plain', 'keyed')),
    -- Value by which the key of that permutation is told from others.
    ADD COLUMN order_id_check bytea,
    ADD CONSTRAINT settings_order_id_check 
        CHECK (coalesce(order_ids = 'keyed', false) = (order_id_check IS NOT NULL));

-- An installation in which a service has run keeps the ids that users know.
UPDATE settings SET order_ids = 'plain'
WHERE EXISTS (SELECT FROM lanes) OR EXISTS (SELECT FROM coupons);
