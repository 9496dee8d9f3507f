"""Tapeless: the backward pass as a program. An ahead-of-time automatic-differentiation compiler for PyTorch."""

from tapeless import rules as rules
from tapeless.api import compile as compile
from tapeless.api import differentiate as differentiate
from tapeless.explain import Report as Report
from tapeless.explain import explain as explain
from tapeless.gradient import Gradient as Gradient
