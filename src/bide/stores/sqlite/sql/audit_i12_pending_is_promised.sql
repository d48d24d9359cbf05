-- I12: what is pending is in the outbox, or a dead letter; or its turn comes with an answer to one that is out (U15).
SELECT item.run_id, format('interaction %d of wait %d is pending, and nobody would send it', item.item, item.no)
  FROM interactions AS item
  JOIN units AS unit
    ON unit.run_id = item.run_id
   AND unit.no = item.no
   AND unit.handed = unit.received
 WHERE item.status = 'pending'
   AND NOT EXISTS (SELECT 1 FROM chores WHERE chores.run_id = item.run_id AND chores.kind = 'dispatch')
   AND NOT EXISTS (SELECT 1
                     FROM dead_letters AS letter
                    WHERE letter.run_id = item.run_id
                      AND letter.kind = 'dispatch')
