-- The same checks, written as comparisons. For a list of more than two values SQLite builds a small index each time a
-- row is written, and that was half of the cost of writing a run. Only the text of the checks changes, not a row, so
-- the tables need not be built anew (see "Making Other Kinds Of Table Schema Changes" in SQLite's page on ALTER TABLE).
PRAGMA writable_schema = ON;

UPDATE sqlite_schema
   SET sql = replace(replace(sql,
           'CHECK (status IN (''ready'', ''running'', ''waiting'', ''completed'', ''stopped'', ''failed'', ''cancelled''))',
           'CHECK (status = ''running'' OR status = ''waiting'' OR status = ''ready'' OR status = ''completed'''
           || ' OR status = ''stopped'' OR status = ''failed'' OR status = ''cancelled'')'),
           'CHECK ((ended_at IS NOT NULL) = (status IN (''completed'', ''stopped'', ''failed'', ''cancelled'')))',
           'CHECK ((ended_at IS NOT NULL) = (status = ''completed'' OR status = ''stopped'' OR status = ''failed'''
           || ' OR status = ''cancelled''))')
 WHERE type = 'table' AND name = 'runs';

UPDATE sqlite_schema
   SET sql = replace(sql,
           'CHECK (status IN (''reserved'', ''waiting'', ''completed'', ''timed_out'', ''failed'', ''cancelled''))',
           'CHECK (status = ''waiting'' OR status = ''completed'' OR status = ''reserved'' OR status = ''timed_out'''
           || ' OR status = ''failed'' OR status = ''cancelled'')')
 WHERE type = 'table' AND name = 'waits';

UPDATE sqlite_schema
   SET sql = replace(replace(sql,
           'CHECK (status IN (''pending'', ''dispatching'', ''waiting'', ''completed'', ''timed_out'', ''failed'', ''cancelled''))',
           'CHECK (status = ''waiting'' OR status = ''completed'' OR status = ''pending'' OR status = ''dispatching'''
           || ' OR status = ''timed_out'' OR status = ''failed'' OR status = ''cancelled'')'),
           'CHECK ((closed_at IS NULL) = (status IN (''pending'', ''dispatching'', ''waiting'')))',
           'CHECK ((closed_at IS NULL) = (status = ''waiting'' OR status = ''pending'' OR status = ''dispatching''))')
 WHERE type = 'table' AND name = 'interactions';

UPDATE sqlite_schema
   SET sql = replace(sql,
           'CHECK (status IN (''done'', ''failed'', ''timed_out'', ''trying''))',
           'CHECK (status = ''done'' OR status = ''failed'' OR status = ''timed_out'' OR status = ''trying'')')
 WHERE type = 'table' AND name = 'steps';

UPDATE sqlite_schema
   SET sql = replace(sql,
           'CHECK (status IN (''ready'', ''waiting'', ''done'', ''dropped'', ''rejected'', ''dead''))',
           'CHECK (status = ''ready'' OR status = ''waiting'' OR status = ''done'' OR status = ''dropped'''
           || ' OR status = ''rejected'' OR status = ''dead'')')
 WHERE type = 'table' AND name = 'items';

UPDATE sqlite_schema
   SET sql = replace(sql,
           'CHECK (kind IN (''correlation'', ''dedup'', ''signal''))',
           'CHECK (kind = ''dedup'' OR kind = ''signal'' OR kind = ''correlation'')')
 WHERE type = 'table' AND name = 'names';

PRAGMA writable_schema = RESET;

-- find_open_interactions: what is open has not been closed, and that is asked of each row that is written. (A change that
-- SQLite makes by itself also tells other connections to read the schema again.)
DROP INDEX interactions_open;
CREATE INDEX interactions_open ON interactions (workspace, run_id, no, item) WHERE closed_at IS NULL;
