from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from penstock import sinks

MODULES = sorted(module.name for module in pkgutil.iter_modules(sinks.__path__, "penstock.sinks."))


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_the_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
