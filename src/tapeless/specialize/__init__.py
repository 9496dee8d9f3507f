"""Stage 4: undefined gradients."""
