-- The book of changes is that of the staff alone: who, what, about which thing, when, and the values.
ALTER TABLE audit
    DROP CONSTRAINT audit_command,
    DROP COLUMN request_id,
    ADD CONSTRAINT audit_command CHECK ((actor IS NULL) = (scope = 'command_line'));
DROP INDEX audit_of_actor;
