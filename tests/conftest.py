"""Shared parts: a small configuration, and summaries to alter."""

import copy
import functools

import pytest
import scipy.linalg  # noqa: F401 - numpy's and scipy's own libraries, before they are limited
import vl_convert
from hypothesis import settings
from threadpoolctl import threadpool_limits

from bench.study.read import load_config
from tests.support.study import CONTENT, bare_summary

pytest_plugins = ["tests.support.cost"]
# In `make test` the same examples each time; `make test-all` looks for others (--hypothesis-profile=random).
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")
# As in a search and in a job: matrices are small, and threads that wait for one another take ten times as long on busy cores.
threadpool_limits(limits=1, user_api="blas")
# Each report in a new folder bundles the libraries that it draws with, which takes a second.
vl_convert.javascript_bundle = functools.cache(vl_convert.javascript_bundle)


@pytest.fixture
def content():
    """A configuration to alter, as plain data."""
    return copy.deepcopy(CONTENT)


@pytest.fixture
def config():
    """A checked configuration."""
    return load_config(CONTENT, source="test")


@pytest.fixture
def summary():
    """One run's summary, to alter."""
    return bare_summary()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A new folder, to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
