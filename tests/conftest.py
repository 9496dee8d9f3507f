"""What every test shares: one thread, a fixed seed, an empty Dynamo cache, and `--accept` for goldens."""

import os

os.environ.setdefault("TAPELESS_BACKEND", "python")  # compiled in the background is only what a test asks for

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
