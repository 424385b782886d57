-- Durability is a setting of the service alone.
ALTER TABLE flash_sales DROP COLUMN durability;
