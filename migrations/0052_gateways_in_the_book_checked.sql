-- Entries that are there satisfy the wider condition.
ALTER TABLE audit VALIDATE CONSTRAINT audit_command;
