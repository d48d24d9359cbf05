DELETE FROM intake WHERE id = ?
