"""Stage 2: passes before differentiation."""
