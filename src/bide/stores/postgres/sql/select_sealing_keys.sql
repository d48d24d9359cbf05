SELECT id, proof FROM {schema}.sealing_keys ORDER BY id
