"""The plan: frozen nodes that check themselves, without Spark."""
