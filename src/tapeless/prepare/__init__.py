"""Stage 2: rewrites before differentiation. What makes a program smaller here pays twice: its backward shrinks too."""

from tapeless.prepare.activations import ACTIVATIONS
from tapeless.prepare.batch_norm import BATCH_NORM
from tapeless.prepare.chains import CHAINS
from tapeless.prepare.channels import CHANNELS
from tapeless.prepare.compress import COMPRESS
from tapeless.prepare.constants import CONSTANTS
from tapeless.prepare.engine import run as run
from tapeless.prepare.fixed import split as split
from tapeless.prepare.grouping import GROUPING
from tapeless.prepare.losses import LOSSES
from tapeless.prepare.noops import NOOPS
from tapeless.prepare.packing import PACKING
from tapeless.prepare.passes import Pass as Pass
from tapeless.prepare.passes import Phase as Phase
from tapeless.prepare.passes import Safety as Safety
from tapeless.prepare.passes import rewrite as rewrite
from tapeless.prepare.passes import sweep as sweep
from tapeless.prepare.pattern import Either as Either
from tapeless.prepare.pattern import anything as anything
from tapeless.prepare.pattern import numbers as numbers
from tapeless.prepare.pattern import op as op
from tapeless.prepare.pattern import tensors as tensors
from tapeless.prepare.pieces import PIECES
from tapeless.prepare.pointwise import POINTWISE
from tapeless.prepare.pooling import POOLING
from tapeless.prepare.powers import POWERS
from tapeless.prepare.products import PRODUCTS
from tapeless.prepare.reductions import REDUCTIONS
from tapeless.prepare.registry import Registry, ordered
from tapeless.prepare.sampling import SAMPLING
from tapeless.prepare.sharing import SHARING
from tapeless.prepare.transposes import TRANSPOSED
from tapeless.prepare.views import VIEWS

PREPARE = ordered(
    (
        *NOOPS,  # what stands between two calls hides patterns
        *VIEWS,  # fewer views to transpose; equal values look equal
        *CONSTANTS,
        *POINTWISE,
        *POWERS,
        *POOLING,  # an activation behind it is not joined with what is in front
        *ACTIVATIONS,  # whose cubes are spelled one way by now
        *PIECES,
        *SHARING,  # one residual instead of two
        *LOSSES,
        *PRODUCTS,
        *CHAINS,
        *COMPRESS,
        *TRANSPOSED,
        *REDUCTIONS,
        *BATCH_NORM,
        *CHANNELS,  # after folding: what is folded is in no order yet
        *SAMPLING,
        *GROUPING,
        *PACKING,  # what is folded and grouped
    )
)

REGISTRY = Registry(PREPARE)
register = REGISTRY.register
