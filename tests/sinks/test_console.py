from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import sinks
from penstock.plan.errors import PlanError
from penstock.sinks import Target

SCHEMA = {"page": pa.string(), "n": pa.int64()}


@pytest.fixture
def open_writer(owner):
    def make(rows=20, key=()):
        sink = sinks.console(rows)
        return sink.writer([Target("hits", sink, key)], owner())

    return make


def test_a_batch_is_printed_with_its_output_and_number(open_writer, changes, capsys):
    open_writer().write(7, {"hits": changes([{"page": "[red]/a", "n": None}], SCHEMA)})
    shown = capsys.readouterr().out
    assert "hits, batch 7" in shown
    assert "[red]/a" in shown
    assert "null" in shown
    assert "op" not in shown


def test_an_empty_batch_prints_nothing(open_writer, changes, capsys):
    assert open_writer().write(7, {"hits": changes([], SCHEMA)})
    assert capsys.readouterr().out == ""


def test_only_the_first_rows_are_printed_and_it_says_so(open_writer, changes, capsys):
    open_writer(rows=2).write(0, {"hits": changes([{"page": f"/{n}", "n": n} for n in range(5)], SCHEMA)})
    shown = capsys.readouterr().out
    assert "/1" in shown
    assert "/2" not in shown
    assert "the first 2 rows" in shown


def test_with_a_key_each_row_says_what_it_does(open_writer, changes, capsys):
    batch = changes([{"page": "/a", "n": 1}], SCHEMA, [{"page": "/b"}], {"page": pa.string()})
    open_writer(key=("page",)).write(0, {"hits": batch})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["upsert", "/a", "1"] in lines
    assert ["delete", "/b"] in lines


def test_it_can_crash_after_the_first_output(open_writer, changes, capsys, kill):
    writer = open_writer()
    writer.during = kill
    with pytest.raises(kill.error):
        writer.write(0, {"hits": changes([{"page": "/a", "n": 1}], SCHEMA)})
    assert "/a" in capsys.readouterr().out


@pytest.mark.parametrize("rows", [0, -1, "all"])
def test_a_number_of_rows_that_makes_no_sense_is_refused(rows):
    with pytest.raises(PlanError, match="whole number"):
        sinks.console(rows)


def test_it_says_that_it_is_not_transactional():
    assert not sinks.console().transactional
    assert sinks.console().name == "console"
