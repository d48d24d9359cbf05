-- Pages of the ledger may be packed against a third dictionary from here on, which earlier versions cannot read.
COMMENT ON COLUMN {schema}.ledger.entries IS 'packed: see bide/stores/pages.py';
