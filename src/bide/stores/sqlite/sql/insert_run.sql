-- Insert a run. The parameters are the fields of `Run`, in order.
INSERT INTO runs (
    workspace, id, definition, version, style, status, step, state, input, created_at, updated_at, ready_at,
    ended_at, result, error, held, attempt, claims, epoch, commits, queue, priority, wait_no, parked_on,
    woken_by, open_waits, inbox_seq, inbox_count, correlation_key, correlation_scope, parent_id, parent_wait,
    child_no, has_children, cleanup_seconds, cancel_reason, cancel_until, retry_of, tags, ledger_seq,
    ledger_head, redact, trace
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24,
        ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42, ?43)
