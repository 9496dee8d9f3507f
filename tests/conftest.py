"""What every test shares: one thread, a fixed seed, no caches, and `--accept` for goldens."""

import os

os.environ.setdefault("TAPELESS_BACKEND", "python")  # compiled in the background is only what a test asks for
os.environ.setdefault("TAPELESS_CACHE_DIR", "")  # no cache on disk; with a directory here, the tests run with one

import pytest
import torch


def pytest_addoption(parser):
    parser.addoption("--accept", action="store_true", help="rewrite golden files with the actual output")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
