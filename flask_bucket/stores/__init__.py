"""The stores that keep buckets, and those that wrap another store."""
