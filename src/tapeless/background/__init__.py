"""Stage 6, beside the program: a process that compiles with Inductor while the program runs as generated Python."""
