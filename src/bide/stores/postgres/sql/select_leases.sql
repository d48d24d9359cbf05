SELECT run_id FROM {schema}.queue WHERE worker = $1
