"""Rules of the house that a machine can keep."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from penstock.compile import rows, steps
from penstock.joins.tables import Meeting
from penstock.plan.input import Input
from penstock.plan.node import Node
from penstock.plan.step import LateRows, Step
from penstock.windows.node import Window

ROOT = Path(__file__).parent.parent
ROOMS = ("engine", "operators", "windows", "joins", "state", "sources", "sinks", "testing", "jobs")
MAY_USE_SPARK = ("engine/compile", "engine/run", "sources", "sinks", "testing")
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    """The modules that a file imports when it is run, not those that only type checkers see."""
    tree = ast.parse(path.read_text())
    checks = [i for i in ast.walk(tree) if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.dump(i.test)]
    guarded = {id(n) for i in checks for n in ast.walk(i)}
    names = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_meaning_does_not_import_spark(path):
    if str(path.relative_to(ROOT)).startswith(MAY_USE_SPARK):
        return
    assert not {m for m in imported(path) if m.split(".")[0] in ("pyspark", "py4j")}


def concrete(kind):
    for sub in kind.__subclasses__():
        yield sub
        yield from concrete(sub)


def test_every_node_has_a_compile_rule_or_is_where_frames_begin():
    for kind in concrete(Node):
        if issubclass(kind, Input | LateRows) or kind in (Step, Window, Meeting):
            continue  # frames begin there, or no step is just that
        rule = steps.compile_stateful if issubclass(kind, Step) else rows.compile_rule
        assert rule.dispatch(kind) is not rule.dispatch(object), kind


def test_every_node_says_in_one_sentence_what_it_is():
    for kind in concrete(Node):
        assert kind.__doc__, kind
        assert kind.__doc__.split("\n")[0].endswith("."), kind


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_one_idea(path):
    assert len(path.read_text().splitlines()) <= 400
    assert path.stem not in ("utils", "util", "helpers", "helper", "misc", "common")


def test_every_folder_of_code_is_in_the_distribution():
    listed = (ROOT / "pyproject.toml").read_text()
    for folder in {p.parent.relative_to(ROOT) for p in FILES}:
        name = ".".join(("penstock", *folder.parts)).replace("penstock.engine", "penstock")
        assert f'"{name}"' in listed, name
