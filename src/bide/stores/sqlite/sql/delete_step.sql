DELETE FROM steps WHERE run_id = ?1 AND key = ?2
