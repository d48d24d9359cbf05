"""Stores lock, load and save records in bulk. They decide nothing."""
