"""Stage 1: PyTorch program → functional, canonical ATen graph."""
