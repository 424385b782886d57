-- Names of the living processes that handed no receipts in within the time. None where an older version has recovered.
ALTER TABLE recoveries ADD COLUMN absent_processes text[];
