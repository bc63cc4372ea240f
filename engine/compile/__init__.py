"""From plan to Spark: one rule a node."""
