DELETE FROM sealing_keys WHERE id = ?1
