"""Stage 7: what runs per call."""
