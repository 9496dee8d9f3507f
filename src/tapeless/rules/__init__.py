"""Derivative rules: data, not control flow. One file per family; importing this package registers them all."""

from tapeless.rules import activation as activation
from tapeless.rules import attention as attention
from tapeless.rules import bilinear as bilinear
from tapeless.rules import convolution as convolution
from tapeless.rules import distance as distance
from tapeless.rules import embedding as embedding
from tapeless.rules import factorize as factorize
from tapeless.rules import linalg as linalg
from tapeless.rules import linear as linear
from tapeless.rules import loss as loss
from tapeless.rules import nondifferentiable as nondifferentiable
from tapeless.rules import normalize as normalize
from tapeless.rules import pointwise as pointwise
from tapeless.rules import pooling as pooling
from tapeless.rules import random as random
from tapeless.rules import reduce as reduce
from tapeless.rules import resize as resize
from tapeless.rules import rnn as rnn
from tapeless.rules import select as select
from tapeless.rules import softmax as softmax
from tapeless.rules import special as special
from tapeless.rules import spectral as spectral
