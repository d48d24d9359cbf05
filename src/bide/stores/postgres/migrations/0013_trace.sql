-- The W3C trace context that a run was started in, for those who trace.
ALTER TABLE {schema}.runs ADD COLUMN trace text;
