"""What a job may not do, what others may not see of it, and what our own code must not contain."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.state.runs import place_of
from penstock.windows import tumbling

ROOT = Path(__file__).parent.parent.parent
ROOMS = ("engine", "operators", "windows", "joins", "state", "sources", "sinks", "testing", "jobs")
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
SCHEMA = "url string, n int, identifier string, tags array<string>, `../../up` string, at timestamp"


def views():
    source = sources.files("in", format="json", schema=SCHEMA)
    return Job("shop").stream("views", source, time="at", lateness="1 minute")


def hourly(**aggregates):
    return views().by("url").window(tumbling("1 hour")).agg(**aggregates)


# each of these ran Java, or read a file, in Spark 4.0
HOSTILE = {
    "plain": "reflect('java.lang.System', 'exit', 0)",
    "cased": "Java_Method('java.lang.System', 'exit', 0)",
    "tried": "TRY_REFLECT('java.lang.System', 'exit', 0)",
    "quoted": "`reflect`('java.lang.System', 'exit', 0)",
    "spaced": "reflect \n\t('java.lang.System', 'exit', 0)",
    "spaced by no plain space": "reflect\u00a0('java.lang.System', 'exit', 0)",
    "with a comment": "reflect /* only this */ ('java.lang.System', 'exit', 0)",
    "with a comment in a comment": "reflect /* /* ( */ */ ('java.lang.System', 'exit', 0)",
    "with a comment to the end of the line": "reflect -- it\n ('java.lang.System', 'exit', 0)",
    "after a comment that ends before the line": "n -- \r + length(reflect('java.lang.System', 'exit', 0))",
    "after a raw string": "r'\\' = reflect('java.lang.System', 'exit', 0) -- '",
    "under a computed name": "identifier('ref' || 'lect')('java.lang.System', 'exit', 0)",
    "qualified": "system.builtin.reflect('java.lang.System', 'exit', 0)",
    "inside": "upper(concat('a', reflect('java.lang.System', 'exit', 0)))",
    "a descriptor": "from_protobuf(url, 'Message', '/etc/passwd')",
    "a schema elsewhere": "from_avro(cast(url as binary), '\"int\"', map('AvroSchemaURL', '/etc/passwd'))",
}
QUERIES = {
    "a file": "(select 1 from csv.`/etc/passwd`)",
    "a file by its new name": "exists(from csv.`/etc/passwd`)",
    "a file as a table": "(table csv.`/etc/passwd`)",
    "a table": "(table passwords)",
}

PLACES = {
    "where": lambda text: views().where(f"{text} = '1'"),
    "with_columns": lambda text: views().with_columns(x=text),
    "select": lambda text: views().select("url", "at", f"{text} as x"),
    "explode": lambda text: views().explode(f"split({text}, ',')", "x"),
    "aggregate": lambda text: hourly(x=f"max({text})"),
    "around an aggregate": lambda text: hourly(x=f"concat(max(url), {text})"),
    "filter": lambda text: hourly(x=f"count(*) filter (where {text} = '1')"),
    "order": lambda text: views().by("url").window(tumbling("1 hour")).top(3, by=f"{text} desc"),
    "delete_when": lambda text: Job("shop").table(
        "users", sources.files("in", format="json", schema=SCHEMA), key="url", delete_when=f"{text} = '1'"
    ),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_text_that_calls_java_or_reads_a_file_is_refused_on_its_line(place, text):
    with pytest.raises(PlanError, match=r"is refused: .* \(.*test_security\.py:\d+\)$"):
        PLACES[place](text)


@pytest.mark.parametrize("text", QUERIES.values(), ids=QUERIES)
@pytest.mark.parametrize("place", PLACES)
def test_text_that_asks_another_table_is_refused_on_its_line(place, text):
    with pytest.raises(PlanError, match=r"(holds a query|is not Spark SQL).* \(.*test_security\.py:\d+\)$"):
        PLACES[place](text)


@pytest.mark.parametrize(
    "text",
    ["identifier = ('a')", "identifier in ('a', 'b')", "`identifier` like 'reflect%'", "url = 'java_method'"],
)
def test_a_column_or_a_value_may_have_such_a_name(text):
    views().where(text)


def test_settings_and_the_environment_do_not_stand_in_for_text(spark):
    assert spark.range(1).selectExpr("'${env:HOME}' AS x").first().x == "${env:HOME}"


NO_NAMES = ["..", ".", "", "a/b", "../../etc", "/etc", ".hidden", "nul\0", "a b", "new\nline", "a\\b"]


@pytest.mark.parametrize("name", NO_NAMES, ids=repr)
def test_no_name_can_leave_the_root(name):
    named = (
        lambda: Job(name),
        lambda: Job("shop").stream(name, sources.rate(), time="timestamp", lateness="0 seconds"),
        lambda: hourly(n="count(*)").named(name),
        lambda: views().deduplicate("url", within="1 hour", name=name),
        lambda: views().to(sinks.memory("out"), name=name),
    )
    for made in named:
        with pytest.raises(PlanError):
            made()


def test_a_step_that_is_named_after_a_key_stays_below_the_root():
    steps = (
        views().by("../../up").window(tumbling("1 hour")).agg(n="count(*)"),
        views().deduplicate("../../up", within="1 hour"),
        views().to_table("../../up"),
    )
    for step in steps:
        assert place_of(f"state/{step.node.name}/0/0-ab.arrow")


UNPICKLERS = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
EXECUTES_THE_JOB = "engine/jobfile.py"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_unpickled_or_evaluated(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {n.split(".")[0] for n in names} & UNPICKLERS, f"line {node.lineno}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            executes = called == "exec" and str(path.relative_to(ROOT)) == EXECUTES_THE_JOB
            assert called not in ("eval", "exec", "__import__", "yaml.load", "os.system") or executes, called
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert given.get("allow_pickle") != "True", called
            assert given.get("shell") != "True", called


STATEMENT = re.compile(
    r"\s*(select|insert|delete|update|create|drop|alter|copy|truncate|merge|lock|grant|comment|pragma|attach)\s", re.I
)


def statements():
    """Every SQL text for a database that is made of parts: where it stands, and its parts."""
    for path in FILES:
        tree = ast.parse(path.read_text())
        if not {"sinks", "cli.py"} & {path.parent.name, path.name}:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                if STATEMENT.match(str(node.values[0].value)):
                    parts = [v.value for v in node.values if isinstance(v, ast.FormattedValue)]
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", parts
            elif (
                isinstance(node, ast.BinOp)
                and isinstance(node.left, ast.Constant)
                and STATEMENT.match(str(node.left.value))
            ):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", [node.right]


# names of parts that were quoted where they were made, or that are only question marks
MADE_OF_QUOTED = {"marks", "parts", "columns", "names", "same", "update"}


def test_a_name_is_quoted_before_it_becomes_a_part_of_a_statement():
    found = list(statements())
    assert found
    for place, parts in found:
        for part in parts:
            text = ast.unparse(part)
            names = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)}
            safe = (
                names & {"quoted", "literal", "listed"}
                or text.isupper()
                or names & MADE_OF_QUOTED
                or "Identifier" in text
            )
            assert safe, f"{place}: {text}"


def test_what_ci_installs_is_exact():
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [p for p in pins if not re.fullmatch(r"[\w.\[\]-]+==[\w.!+]+(; python_version [<>=]+ \"[\d.]+\")?", p)] == []
