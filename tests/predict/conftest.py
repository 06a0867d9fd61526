"""The planted engine's training runs and the model of them, which most tests of predictions share."""

import pytest

from bench.predict.calibrate import calibrate
from tests.support.predict import LIMITS, training


@pytest.fixture(scope="session")
def runs():
    return training()


@pytest.fixture(scope="session")
def model(runs):
    return calibrate(runs, LIMITS)
