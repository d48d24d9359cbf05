-- The W3C trace context that a run was started in, for those who trace.
ALTER TABLE runs ADD COLUMN trace TEXT;
