"""Running: the session, the query, the batch, the clock."""
