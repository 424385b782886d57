-- Durability of the claims on a sale: memory, fsync, replica, replica:N or postgres; null for the service's own
-- setting. A sale never asks for less than that.
ALTER TABLE flash_sales
    ADD COLUMN durability text CHECK (durability ~ '^(memory|fsync|replica(:[2-9])?|postgres)$');
