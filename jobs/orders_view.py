"""Orders as people ask for them, from the logs of three tables: one row with its customer and what is in it.

The shop's database keeps orders, customers and items apart, and Debezium says what happens to each. The view joins
them again and stays right: a customer who is renamed changes every order of theirs, an item that is taken out
changes its order's total, an order that moves to another customer moves between their totals, and an order that
is deleted leaves nothing behind. Messages may come twice, out of order and in any mix of the three tables: what
counts is their place in the database's log. To run it over files of your own,

    ORDERS_IN=in/orders CUSTOMERS_IN=in/customers ITEMS_IN=in/items VIEW_OUT=out penstock run jobs/orders_view.py --once

whose lines are Debezium's messages, such as

    {"op": "c", "after": {"id": 1, "customer_id": 7, "status": "open"}, "source": {"lsn": 101, "ts_ms": 1773396000000}}
    {"op": "d", "before": {"id": 1}, "source": {"lsn": 140, "ts_ms": 1773396060000}}
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources

ORDERS = "id long not null, customer_id long, status string"
CUSTOMERS = "id long not null, name string, city string"
ITEMS = "id long not null, order_id long, product string, pieces int, price decimal(10,2)"


def orders_view(orders_in: str, customers_in: str, items_in: str, out: str) -> Job:
    """The job over the messages that appear in three folders; its results are tables of ``out``/results.db."""
    job = Job("orders_view")
    database = f"{out}/results.db"
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    orders = job.table("orders", sources.files(orders_in, format="debezium", schema=ORDERS), key="id")
    customers = job.table("customers", sources.files(customers_in, format="debezium", schema=CUSTOMERS), key="id")
    items = job.table("items", sources.files(items_in, format="debezium", schema=ITEMS), key="id")

    contents = items.by("order_id").agg(
        lines="count(*)",
        total="sum(pieces * price)",
        products="sort_array(collect_set(product))",
    )
    view = (
        orders.join(contents.rename(order_id="id"), on="id", how="left", name="with_contents")
        .join(customers.rename(id="customer_id"), on="customer_id", how="left", name="with_customer")
        .with_columns(total="coalesce(total, 0)", lines="coalesce(lines, 0)")
    )
    # one database: readers see both views of the same moment
    view.to(sinks.sqlite(database, "orders_view"))
    view.where("status <> 'cancelled'").by("customer_id").agg(
        name="max(name)", orders="count(*)", spent="sum(total)", dearest="max(total)"
    ).to(sinks.sqlite(database, "customer_totals"))
    return job


job = orders_view(
    os.environ.get("ORDERS_IN", "data/orders"),
    os.environ.get("CUSTOMERS_IN", "data/customers"),
    os.environ.get("ITEMS_IN", "data/items"),
    os.environ.get("VIEW_OUT", ".penstock/orders_view"),
)

if __name__ == "__main__":
    job.run()
