"""Views of tables: after every batch of changes each equals the same query over the current tables, in DuckDB."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import duckdb
import pyarrow as pa
import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.testing import JobCrashed, JobTester

TABLES = {
    "orders": {"id": pa.int64(), "customer": pa.int64(), "sku": pa.string(), "total": pa.int64()},
    "customers": {"no": pa.int64(), "name": pa.string()},
    "addresses": {"person": pa.int64(), "city": pa.string()},
}
DDL = {pa.int64(): "long", pa.string(): "string"}

QUERIES = {
    "named": "select o.*, c.name from orders o left join customers c on o.customer = c.no",
    "living": """
        select o.*, c.name, a.city from orders o join customers c on o.customer = c.no
        join addresses a on o.customer = a.person where o.total > 2""",
    "homes": """
        select coalesce(c.no, a.person) as no, c.name, a.city from customers c
        full join addresses a on c.no = a.person""",
    "also": "select o.*, p.id as other from orders o join orders p on o.sku = p.sku where p.total > 5",
    "spent": """
        select name, count(*) as n, sum(total)::bigint as spent, max(total) as most, count(distinct sku) as skus,
          coalesce(list(total order by id) filter (total is not null), []) as totals
        from (select o.*, c.name from orders o left join customers c on o.customer = c.no) group by name""",
    "counted": "select customer, count(*) as n, sum(total) / count(total) as mean from orders group by customer",
    "best": """
        select * from (select o.*, row_number() over (partition by customer order by total desc nulls last, id) as rank
        from orders o) where rank <= 2""",
    "narrow": "select id, customer from orders",
}


def shop(views: Iterable[str] = (*QUERIES, "moves")) -> Job:
    """One job with every kind of view, or some of them."""
    job = Job("shop")
    job.dead_letters(sinks.memory("dead"))
    read = {}
    for name, columns in TABLES.items():
        source = sources.files(name, format="json", schema=schema_of(columns))
        table = job.table(name, source, key=next(iter(columns)), sequence="seq", delete_when="gone")
        read[name] = table.drop("seq", "gone")
    orders, customers, addresses = read.values()
    named = orders.join(customers, on={"customer": "no"}, how="left", name="named_orders")
    met = orders.join(customers, on={"customer": "no"}, name="met")
    living = met.join(addresses, on={"customer": "person"}, name="living_orders")
    dear = orders.where("total > 5").select("id as other", "sku as its")
    narrow = orders.select("id", "customer")
    made = {
        "named": named,
        "living": living.where("total > 2"),
        "homes": customers.join(addresses, on={"no": "person"}, how="full", name="all_homes"),
        "also": orders.join(dear, on={"sku": "its"}, name="same_sku"),
        "spent": named.by("name").agg(
            n="count(*)", spent="sum(total)", most="max(total)", skus="count(distinct sku)",
            totals="collect_list(total)",
        ),
        "counted": orders.by("customer").agg(n="count(*)", mean="avg(total)").named("counts"),
        "best": orders.by("customer").top(2, by="total desc nulls last, id"),
        "narrow": narrow,
        "moves": narrow.changes(),
    }  # fmt: skip
    for view in views:
        made[view].to(sinks.memory(view))
    return job


def schema_of(columns: dict[str, pa.DataType]) -> str:
    return ", ".join(f"{c} {DDL[kind]}" for c, kind in columns.items()) + ", seq long, gone boolean"


class History:
    """Random changes of the tables: inserts, updates, deletes and moves, out of order and repeated."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seq = 0
        self.tables: dict[str, dict[int, dict]] = {name: {} for name in TABLES}
        self.newest: dict[str, dict[int, dict]] = {name: {} for name in TABLES}
        self.sent: dict[str, list[dict]] = {name: [] for name in TABLES}

    def row(self, name: str) -> dict:
        pick = self.random.choice
        values = {
            "orders": lambda: {"customer": pick([None, 1, 2, 3]), "sku": pick("xyz"), "total": pick([None, 1, 4, 7])},
            "customers": lambda: {"name": pick(["ann", "bob", None])},
            "addresses": lambda: {"city": pick(["Ulm", "Bonn"])},
        }[name]()
        self.seq += 1
        key = self.random.randint(1, 8 if name == "orders" else 4)
        return {next(iter(TABLES[name])): key, **values, "seq": self.seq, "gone": self.random.random() < 0.25}

    def push(self, name: str, count: int) -> list[dict]:
        """New rows of a table in any order, and some that were there before."""
        rows = [self.row(name) for _ in range(count)]
        self.random.shuffle(rows)
        held_back = self.sent[name]
        again = self.random.sample(held_back, min(2, len(held_back)))
        self.sent[name] += rows
        for row in [*rows, *again]:
            key = row[next(iter(TABLES[name]))]
            if key not in self.newest[name] or self.newest[name][key]["seq"] < row["seq"]:
                self.newest[name][key] = row
        return [*rows, *again]

    def asked(self, query: str) -> list[dict]:
        """The answer of DuckDB over the tables as they are."""
        database = duckdb.connect()
        for name, columns in TABLES.items():
            living = [{c: r[c] for c in columns} for r in self.newest[name].values() if not r["gone"]]
            database.register(name, pa.Table.from_pylist(living, pa.schema(list(columns.items()))))
        return database.sql(query).to_arrow_table().to_pylist()


def counted(rows: list[dict]) -> Counter:
    return Counter(str(sorted(row.items())) for row in rows)


def played(job: Job, spark, seed: int, pushes: int, crashes: bool, **options) -> tuple[History, dict[str, list]]:
    """A history pushed through a job, every view checked after every push; what the outputs hold at the end."""
    history = History(seed)
    moved: Counter = Counter()
    with JobTester(job, spark=spark, **options) as t:
        for number in range(pushes):
            name = history.random.choice(list(TABLES))
            rows = history.push(name, history.random.randint(1, 6))
            if crashes and history.random.random() < 0.3:
                t.crash(history.random.choice(["before_sink", "during_sink", "after_sink"]))
            try:
                t.push(name, rows)
            except JobCrashed:
                t.restart()
            views = [output.name for output in job.outputs if output.name in QUERIES]
            for view in views:
                assert counted(t.read(view)) == counted(history.asked(QUERIES[view])), (seed, number, view)
            for change in t.new("moves"):
                row = (change["id"], change["customer"])
                if change["op"] != "insert":
                    moved = Counter({k: n for k, n in moved.items() if k[0] != change["id"]})
                if change["op"] != "delete":
                    moved[row] += 1
            assert moved == Counter((r["id"], r["customer"]) for r in history.asked(QUERIES["narrow"]))
        return history, {view: t.read(view) for view in views}


@pytest.mark.parametrize("seed", [1, 2])
def test_every_view_is_the_query_over_the_current_tables(spark, seed):
    played(shop(), spark, seed, pushes=9, crashes=seed == 2, buckets=3)


def test_the_cluster_and_a_bounded_run_give_the_same_views(spark):
    views = ("spent", "homes", "narrow", "moves")  # each kernel once: a step on the cluster takes a second
    history, there = played(shop(views), spark, 3, pushes=2, crashes=False, cluster=True, partitions=2)
    frames = {
        name: spark.createDataFrame(
            [tuple(r[c] for c in (*columns, "seq", "gone")) for r in history.sent[name]], schema_of(columns)
        )
        for name, columns in TABLES.items()
    }
    bounded = shop(views[:3]).run_batch(frames, spark)
    for view, rows in there.items():
        assert counted(bounded[view].toArrow().to_pylist()) == counted(rows), view


@pytest.mark.parametrize("cluster", [False, True])
def test_an_update_that_changes_nothing_is_not_shown(tester, cluster):
    t = tester(shop(["narrow", "moves"]), cluster=cluster)
    t.push("orders", [{"id": 1, "customer": 1, "sku": "x", "total": 4, "seq": 1, "gone": False}])
    t.new("narrow"), t.new("moves")
    t.push("orders", [{"id": 1, "customer": 1, "sku": "y", "total": 4, "seq": 2, "gone": False}])
    assert t.new("narrow") == t.new("moves") == []
    t.push("orders", [{"id": 1, "customer": 2, "sku": "y", "total": 4, "seq": 3, "gone": False}])
    assert t.new("moves") == [{"op": "update", "id": 1, "customer": 2}]
    t.push("orders", [{"id": 1, "customer": None, "sku": None, "total": None, "seq": 4, "gone": True}])
    assert t.new("moves") == [{"op": "delete", "id": 1, "customer": 2}]
    assert t.read("narrow") == []


def test_a_deleted_key_is_forgotten_when_its_time_is_over(tester):
    job = Job("forgets")
    source = sources.files("in", format="json", schema="id long, v string, gone boolean, at timestamp")
    table = job.table(
        "rows", source, key="id", time="at", lateness="0 seconds", delete_when="gone", tombstones="1 hour"
    )
    table.select("id", "v").to(sinks.memory("now"))
    assert "of deleted keys that they are, for 1 hour of event time" in job.explain()
    t = tester(job, buckets=1)
    t.push("rows", {"id": 1, "v": None, "gone": True, "at": "2026-01-01 10:00"})
    t.push("rows", {"id": 1, "v": "older", "gone": False, "at": "2026-01-01 09:00"})
    assert t.read("now") == []
    t.advance("rows", "2026-01-01 11:00:01")
    t.push("rows", {"id": 1, "v": "older", "gone": False, "at": "2026-01-01 09:00"})
    assert t.read("now") == [{"id": 1, "v": "older"}]


def two(left: str, right: str, how: str) -> Job:
    job = Job("two")
    a = job.table("a", sources.files("a", format="json", schema=f"id {left}, x string"), key="id")
    b = job.table("b", sources.files("b", format="json", schema=f"id {right}, y string"), key="id")
    a.join(b, on="id", how=how).to(sinks.memory("out"))
    return job


def test_keys_of_two_types_meet_where_both_hold_the_same_numbers(tester):
    t = tester(two("int", "long", "full"))
    t.push("a", {"id": 1, "x": "one"})
    t.push("b", {"id": 1, "y": "uno"}, {"id": 10**12, "y": "mucho"})
    assert sorted((r["id"], r["x"], r["y"]) for r in t.read("out")) == [(1, "one", "uno"), (10**12, None, "mucho")]
    t = tester(two("int", "double", "inner"))
    with pytest.raises(PlanError, match="id is int and id is double; cast one of them first"):
        t.push("a", {"id": 1, "x": "one"})
