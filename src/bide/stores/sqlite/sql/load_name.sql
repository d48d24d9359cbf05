-- Who has a name.
SELECT workspace, kind, name, coalesce(run_id, ''), digest, message_id, created_at
  FROM names
 WHERE workspace = ?1
   AND kind = ?2
   AND name = ?3
