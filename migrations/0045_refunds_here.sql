-- no-transaction
CREATE INDEX CONCURRENTLY payments_refunding_here ON payments (id) WHERE status = 'refunding' AND gateway = 'in_process';
