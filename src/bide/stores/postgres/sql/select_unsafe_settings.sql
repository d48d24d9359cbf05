-- Settings of this session and its server under which a commit that was answered may be gone after a crash.
SELECT name
  FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
   AND setting = 'off'
 ORDER BY name
