-- An order has one id, the same everywhere.
ALTER TABLE settings DROP COLUMN order_ids, DROP COLUMN order_id_check;
