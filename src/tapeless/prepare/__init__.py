"""Stage 2: passes before differentiation. There are none yet: the captured graph is differentiated as it is."""
