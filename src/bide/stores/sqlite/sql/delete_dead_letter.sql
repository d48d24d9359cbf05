DELETE FROM dead_letters
 WHERE workspace = ?1
   AND id = ?2
