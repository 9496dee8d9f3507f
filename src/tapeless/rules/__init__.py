"""Derivative rules: data, not control flow. One file per family; importing this package registers them all."""

from tapeless.rules import activation as _activation  # noqa: F401
from tapeless.rules import attention as _attention  # noqa: F401
from tapeless.rules import bilinear as _bilinear  # noqa: F401
from tapeless.rules import convolution as _convolution  # noqa: F401
from tapeless.rules import distance as _distance  # noqa: F401
from tapeless.rules import embedding as _embedding  # noqa: F401
from tapeless.rules import factorize as _factorize  # noqa: F401
from tapeless.rules import linalg as _linalg  # noqa: F401
from tapeless.rules import linear as _linear  # noqa: F401
from tapeless.rules import loss as _loss  # noqa: F401
from tapeless.rules import nondifferentiable as _nondifferentiable  # noqa: F401
from tapeless.rules import normalize as _normalize  # noqa: F401
from tapeless.rules import pointwise as _pointwise  # noqa: F401
from tapeless.rules import pooling as _pooling  # noqa: F401
from tapeless.rules import random as _random  # noqa: F401
from tapeless.rules import reduce as _reduce  # noqa: F401
from tapeless.rules import resize as _resize  # noqa: F401
from tapeless.rules import rnn as _rnn  # noqa: F401
from tapeless.rules import select as _select  # noqa: F401
from tapeless.rules import softmax as _softmax  # noqa: F401
from tapeless.rules import special as _special  # noqa: F401
from tapeless.rules import spectral as _spectral  # noqa: F401
from tapeless.rules.registry import bilinear as bilinear
from tapeless.rules.registry import jvp as jvp
from tapeless.rules.registry import linear as linear
from tapeless.rules.registry import nondifferentiable as nondifferentiable
from tapeless.rules.registry import pointwise as pointwise
from tapeless.rules.registry import vjp as vjp
