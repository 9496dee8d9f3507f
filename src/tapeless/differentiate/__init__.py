"""Stage 3: graph → joint graph with its gradient."""

from tapeless.differentiate import branch as branch  # control flow registers how derivatives pass through it
from tapeless.differentiate import loop as loop
from tapeless.differentiate import loop_forward as loop_forward
