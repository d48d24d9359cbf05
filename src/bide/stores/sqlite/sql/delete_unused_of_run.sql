-- Delete what was addressed to runs that go. Index: unused_by_run.
DELETE FROM unused
 WHERE run_id = ?1
