SELECT id, proof FROM sealing_keys ORDER BY id
