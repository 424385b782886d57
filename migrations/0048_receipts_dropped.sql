-- Receipts that a process had dropped for newer ones, and that were not known to be committed, when it handed in; and their
-- number in each recovery. None where an older version has recovered.
ALTER TABLE receipt_hand_ins ADD COLUMN dropped bigint NOT NULL DEFAULT 0;
ALTER TABLE recoveries ADD COLUMN receipts_dropped bigint;
