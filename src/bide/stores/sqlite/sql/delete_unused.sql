DELETE FROM unused
 WHERE workspace = ?1
   AND id = ?2
