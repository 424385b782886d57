-- Postgres reads the payments once, while they go on being written.
ALTER TABLE payments VALIDATE CONSTRAINT payments_status;
ALTER TABLE payments VALIDATE CONSTRAINT payments_refund_reason_check;
ALTER TABLE payments VALIDATE CONSTRAINT payments_closed;
