-- The next pages of all ledgers, from a place on. Those of other workspaces come without their entries: whoever reads
-- goes on after them.
SELECT page.place, page.run_id, page.seq,
       CASE WHEN (SELECT workspace FROM runs WHERE id = page.run_id) = :workspace THEN page.entries END
  FROM ledger AS page
 WHERE page.place >= :place
 ORDER BY page.place
 LIMIT :limit
