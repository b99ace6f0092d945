"""Where buckets are kept, and the two stores that wrap another."""
