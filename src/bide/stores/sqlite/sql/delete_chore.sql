DELETE FROM chores
 WHERE id = ?1
