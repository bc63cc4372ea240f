"""Every example in a docstring or a page is run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import penstock
from penstock import Job, sources

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(penstock.__path__, "penstock.") if not m.name.startswith("penstock.jobs")
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def views():
    source = sources.files("in", format="json", schema="url string, at timestamp")
    return Job("shop").stream("views", source, time="at", lateness="10 minutes")


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings(name, spark, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE
    stream = views()
    given = {"views": stream, "job": stream.job, "sources": sources, "counts": stream.by("url").agg(n="count(*)")}
    source = sources.files("o", "json", "id long, customer long, total long")
    given["orders"] = stream.job.table("orders", source, key="id")
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=given):
        outcome = doctest.DocTestRunner(optionflags=flags).run(test)
        assert not outcome.failed, test.name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_python_blocks_of_a_page_run_in_order(page, spark, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    scope: dict[str, object] = {"__name__": page.stem, "spark": spark}
    for block in blocks:
        exec(compile(block, str(page), "exec"), scope)


def test_every_public_name_has_a_docstring():
    for module in (penstock, penstock.sources, penstock.sinks, importlib.import_module("penstock.windows")):
        for name in module.__all__:
            value = getattr(module, name)
            if callable(value):
                assert value.__doc__, f"{module.__name__}.{name}"
                for method in vars(value).values() if isinstance(value, type) else ():
                    if callable(method) and not method.__name__.startswith("_"):
                        assert method.__doc__, f"{name}.{method.__name__}"
