"""Stage 5: joint graph → forward and backward."""
