-- Append to a ledger. The parameters are the fields of `LedgerPage`, in order.
INSERT INTO ledger (
    run_id, seq, entries
)
VALUES (?1, ?2, ?3)
