-- The fields of a run's data that never reach its ledger, a list or an error.
ALTER TABLE runs ADD COLUMN redact TEXT;
