-- The inboxes of some runs, each in order of arrival. The parameter is a carray of run ids.
SELECT workspace, run_id, seq, id, name, payload, received_at
  FROM carray(?1) AS wanted
 CROSS JOIN inbox ON inbox.run_id = wanted.value
 ORDER BY inbox.run_id, inbox.seq
