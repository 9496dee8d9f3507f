"""Tapeless: the backward pass as a program. An ahead-of-time automatic-differentiation compiler for PyTorch."""

from tapeless import prepare as prepare
from tapeless import rules as rules
from tapeless.api import compile as compile
from tapeless.api import differentiate as differentiate
from tapeless.explain import Report as Report
from tapeless.explain import explain as explain
from tapeless.gradient import Gradient as Gradient
from tapeless.runtime.statistics import Statistics as Statistics
from tapeless.runtime.statistics import statistics as statistics
from tapeless.training.optimizers import Lion as Lion
from tapeless.training.step import TrainStep as TrainStep
from tapeless.training.step import train_step as train_step
from tapeless.transforms import grad as grad
from tapeless.transforms import hessian as hessian
from tapeless.transforms import hvp as hvp
from tapeless.transforms import jacobian as jacobian
from tapeless.transforms import jvp as jvp
from tapeless.transforms import linearize as linearize
from tapeless.transforms import value_and_grad as value_and_grad
from tapeless.transforms import vjp as vjp
