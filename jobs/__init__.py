"""Ready jobs that run out of the box, each a page to learn from."""
