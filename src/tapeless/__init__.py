"""Tapeless: the backward pass as a program. An ahead-of-time automatic-differentiation compiler for PyTorch."""

from tapeless import rules as rules
from tapeless.capture.dynamo import backend as backend
