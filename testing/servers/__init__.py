"""Real servers on loopback, for tests and trials: one module a server, each a context manager."""
