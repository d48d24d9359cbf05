SELECT run_id FROM {schema}.names WHERE workspace = $1 AND kind = 'correlation' AND name = $2
