"""Stage 3: graph → joint graph with its gradient."""
