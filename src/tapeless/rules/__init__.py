"""Derivative rules: data, not control flow. One file per family; importing this package registers them all."""

from typing import Any

from tapeless.rules import activation as _activation
from tapeless.rules import attention as _attention
from tapeless.rules import bilinear as _bilinear
from tapeless.rules import convolution as _convolution
from tapeless.rules import distance as _distance
from tapeless.rules import embedding as _embedding
from tapeless.rules import factorize as _factorize
from tapeless.rules import linalg as _linalg
from tapeless.rules import linear as _linear
from tapeless.rules import loss as _loss
from tapeless.rules import nondifferentiable as _nondifferentiable
from tapeless.rules import normalize as _normalize
from tapeless.rules import pointwise as _pointwise
from tapeless.rules import pooling as _pooling
from tapeless.rules import quantize as _quantize
from tapeless.rules import random as _random
from tapeless.rules import reduce as _reduce
from tapeless.rules import resize as _resize
from tapeless.rules import rnn as _rnn
from tapeless.rules import select as _select
from tapeless.rules import softmax as _softmax
from tapeless.rules import special as _special
from tapeless.rules import spectral as _spectral
from tapeless.rules import systems as _systems
from tapeless.rules.decompositions import decomposition as decomposition
from tapeless.rules.decompositions import get_provider as get_provider
from tapeless.rules.decompositions import has_decomposition as has_decomposition
from tapeless.rules.decompositions import installed as _installed
from tapeless.rules.decompositions import run_decomposition as run_decomposition
from tapeless.rules.decompositions import set_provider as set_provider
from tapeless.rules.registry import bilinear as bilinear
from tapeless.rules.registry import declared as _declared
from tapeless.rules.registry import jvp as jvp
from tapeless.rules.registry import linear as linear
from tapeless.rules.registry import nondifferentiable as nondifferentiable
from tapeless.rules.registry import pointwise as pointwise
from tapeless.rules.registry import vjp as vjp
from tapeless.rules.registry import zero as zero

FAMILIES = (
    _activation,
    _attention,
    _bilinear,
    _convolution,
    _distance,
    _embedding,
    _factorize,
    _linalg,
    _linear,
    _loss,
    _nondifferentiable,
    _normalize,
    _pointwise,
    _pooling,
    _quantize,
    _random,
    _reduce,
    _resize,
    _rnn,
    _select,
    _softmax,
    _special,
    _spectral,
    _systems,
)


def _state() -> tuple[Any, ...]:
    return *_installed(), *_declared()


_SHIPPED = _state()


def are_as_shipped() -> bool:
    """Are the rules and decompositions those that came with Tapeless, no more and no less?"""
    return _state() == _SHIPPED
