"""What tables may be joined and grouped by, what the key is then, and what is refused."""

from __future__ import annotations

import pytest

from penstock import Job, PlanError, sinks, sources
from penstock.windows import tumbling


def table(job: Job, name: str, schema: str, key: str | tuple[str, ...]):
    return job.table(name, sources.files(name, format="json", schema=schema), key=key)


def shop():
    job = Job("shop")
    orders = table(job, "orders", "id long, customer long, sku string", "id")
    customers = table(job, "customers", "no long, name string", "no")
    lines = table(job, "lines", "order_id long, line int, item string", ("order_id", "line"))
    return orders, customers, lines


def test_a_reference_keeps_the_key_and_other_columns_add_the_right_one():
    orders, customers, lines = shop()
    named = orders.join(customers, on={"customer": "no"}, how="left")
    assert (named.key, named.columns) == (("id",), ("id", "customer", "sku", "name"))
    assert orders.join(lines, on={"id": "order_id"}).key == ("id", "line")
    assert orders.join(lines, on={"sku": "item"}).key == ("id", "order_id", "line")
    assert lines.join(orders.rename(id="order_id"), on="order_id").key == ("order_id", "line")
    assert customers.join(orders.select("id as no", "sku"), how="full").key == ("no",)


def test_the_key_of_the_first_rows_is_the_group_and_the_tables_own():
    orders, _, lines = shop()
    assert orders.by("customer").top(3, by="id desc").key == ("customer", "id")
    assert lines.by("order_id").top(3, by="line", ties=True).key == ("order_id", "line")
    assert lines.by("item").agg(n="count(*)").key == ("item",)


def test_explain_says_what_is_kept():
    orders, customers, _ = shop()
    named = orders.join(customers, on={"customer": "no"}, how="left")
    named.by("name").agg(n="count(*)", most="max(id)").to(sinks.memory("a"))
    orders.by("customer").agg(n="count(*)").named("counts").to(sinks.memory("b"))
    orders.by("customer").top(1, by="id").to(sinks.memory("c"))
    orders.by("sku").agg(ids="sum(id)").to(sinks.memory("e"))
    orders.changes().to(sinks.memory("d"))
    told = orders.job.explain()
    for line in (
        "left join of tables 'join_by_customer' on customer = no",
        "keeps the rows of both tables, as long as these have them",
        "keeps what the aggregates read of every row of the table",
        "keeps partial aggregates per key, as long as the table has rows of it",
        "keeps a part per key, as long as the table has rows of it; of floats what is read of every row",
        "keeps the rows of the table",
        "changes 'changes_of_orders' by id",
        "output 'd' to memory d (append)",
    ):
        assert line in told, told


def test_state_depends_on_the_row_steps_before_it():
    orders, _, _ = shop()
    counts = [orders.where(p).by("sku").agg(n="count(*)") for p in ("id > 1", "id > 2")]
    told = [count.node.state_depends_on()["table's rows"] for count in counts]
    assert told == [["where id > 1"], ["where id > 2"]]


REFUSED = {
    "a stream": (lambda o, c, n: o.join(c.changes(), on="no"), "joined with a Table, not Stream"),
    "how": (lambda o, c, n: o.join(c, on={"customer": "no"}, how="semi"), "there is inner, left, right, full"),
    "right by a reference": (
        lambda o, c, n: o.join(c, on={"customer": "no"}, how="right"),
        "by the right table's key alone there is inner and left",
    ),
    "left by no key": (
        lambda o, c, n: o.join(n, on={"sku": "item"}, how="left"),
        r"only inner \(the left table's key is id, the right one's order_id, line\)",
    ),
    "no such column": (lambda o, c, n: o.join(c), "on='no': no such column"),
    "both have it": (lambda o, c, n: o.join(c.rename(name="sku"), on={"customer": "no"}), "'sku' stands on both"),
    "by nothing": (lambda o, c, n: o.by(), "at least one column"),
    "Spark's own aggregate": (
        lambda o, c, n: o.by("customer").agg(n="approx_count_distinct(sku)"),
        "approx_count_distinct is Spark's own aggregate",
    ),
    "a window over changes": (lambda o, c, n: o.changes().window(tumbling("1 hour")), "no event time"),
    "the time of day": (
        lambda o, c, n: o.where("customer > unix_timestamp()"),
        r"CURRENT_TIMESTAMP\(\) gives another value each time",
    ),
    "chance": (lambda o, c, n: o.by("customer").agg(n="sum(id * rand())"), r"RAND\(\) gives another value"),
    "changes without repeats": (lambda o, c, n: o.changes().deduplicate("id", within="1 hour"), "no event time"),
    "a stream and a table": (
        lambda o, c, n: o.changes().join(c, on="id"),
        r"a Table is no stream; a stream meets a table by \.lookup",
    ),
    "another job's": (lambda o, c, n: o.join(shop()[1], on={"customer": "no"}), "belongs to the job 'shop'"),
    "a total": (lambda o, c, n: o.by(), r"\.with_columns\(all_rows='1'\)"),
    "a column op": (lambda o, c, n: o.rename(sku="op").changes(), "a column 'op' of its own"),
    "asof of a join": (
        lambda o, c, n: o.job.stream(
            "s", sources.files("s", format="json", schema="id long, at timestamp"), time="at", lateness="1 hour"
        ).asof(o.join(c, on={"customer": "no"})),
        "joined or aggregated table has no history",
    ),
}


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED)
def test_refused(make, told):
    with pytest.raises(PlanError, match=told):
        make(*shop())
