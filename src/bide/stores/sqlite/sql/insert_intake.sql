INSERT INTO intake (id, command) VALUES (?, ?)
