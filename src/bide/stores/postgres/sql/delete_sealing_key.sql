DELETE FROM {schema}.sealing_keys WHERE id = $1
