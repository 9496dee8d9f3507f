"""Stage 6: graphs → callables."""
