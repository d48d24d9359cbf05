DELETE FROM names
 WHERE workspace = ?1
   AND kind = ?2
   AND name = ?3
