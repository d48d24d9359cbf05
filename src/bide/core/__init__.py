"""The rules of bide as plain functions over plain data: no I/O, no clock, no randomness, no logging, no async."""
