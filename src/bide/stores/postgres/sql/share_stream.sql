-- Keep emits away from a workspace's stream until the end of the transaction; others may share it. Not FOR KEY SHARE:
-- an emit changes no key, so that would not keep it away.
SELECT seq FROM {schema}.streams WHERE workspace = $1 FOR SHARE
