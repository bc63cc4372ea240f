"""Write results to tables of a PostgreSQL database, all outputs of a batch in one transaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.plan.errors import PlanError, RunError
from penstock.plan.secrets import is_reference
from penstock.plan.written import written_at
from penstock.sinks.base import Owner, Sink, Target

if TYPE_CHECKING:
    from penstock.sinks.postgres_database import Database
    from penstock.sinks.postgres_writer import PostgresWriter

STEP = "sinks.postgres"
LONGEST_NAME = 63  # bytes; PostgreSQL cuts a longer one, and two could become one
SETTING = re.compile(r"(?P<name>\w+)\s*=\s*(?P<value>'(?:[^'\\]|\\.)*'|\S*)")


def postgres(table: str, url: str = "env:PENSTOCK_POSTGRES_URL", *, schema: str | None = None) -> PostgresTable:
    """Write to a table of a PostgreSQL database (15 or newer): a Stream is appended, a Table upserted by its key.

    ``url`` names the address, ``env:NAME`` or ``file:PATH``, and is read when the job runs. Without ``schema``
    the table is in the first one of the user's search path. The first batch makes the table, with PostgreSQL's
    own types: timestamps of an instant are ``timestamptz``, decimals ``numeric`` of their precision, intervals
    ``interval`` in microseconds, arrays, structs and maps ``jsonb``. Null is a key like any other. Text that
    holds a NUL, which PostgreSQL has no place for, stops the job before anything is written.

    A batch is copied into temporary tables; then rows, deletes and the ledger ``_penstock_ledger``, which stands
    beside the tables, change in one transaction, for all outputs in one database. A batch that is there already
    is skipped, and a run that a newer one has replaced is refused. Needs ``pip install penstock[postgres]``, and a
    connection of its own: a pooler must keep one for the whole session.

    >>> postgres("ctr").describe()
    'table ctr in env:PENSTOCK_POSTGRES_URL'
    >>> postgres("ctr", "postgresql://ann:hush@db:5432/shop", schema="reports").describe()
    'table reports.ctr in postgresql://db:5432/shop'
    """
    for what, name in (("table", table), ("schema", schema)):
        if name is not None:
            _check_name(what, name, f"{STEP}({table!r})")
    if table.startswith("_penstock_"):
        raise PlanError(f"{STEP}({table!r}): names that begin so are ours. Give another. ({written_at()})")
    if schema is None and "." in table:
        before, _, after = table.partition(".")
        raise PlanError(f"{STEP}({table!r}): write {STEP}({after!r}, schema={before!r}). ({written_at()})")
    return PostgresTable(table, _checked(url, f"{STEP}({table!r})"), schema)


@dataclass(frozen=True)
class PostgresTable(Sink):
    """A table of a PostgreSQL database."""

    table: str
    url: str = field(repr=False)  # it may hold a password
    schema: str | None = None

    upserts: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.table

    @property
    def place(self) -> str:
        return self.database().place

    def describe(self) -> str:
        table = self.table if self.schema is None else f"{self.schema}.{self.table}"
        return f"table {table} in {without_secrets(self.url)}"

    def database(self) -> Database:
        """Where it leads, its address read now."""
        try:
            from penstock.sinks.postgres_database import Database
        except ImportError as error:
            raise RunError(
                f"{STEP}({self.table!r}) needs psycopg 3, which cannot be imported ({error}): "
                f"pip install penstock[postgres]."
            ) from None
        return Database.of(self.url, f"{STEP}({self.table!r})")

    def writer(self, targets: Sequence[Target], owner: Owner) -> PostgresWriter:
        database = self.database()
        from penstock.sinks.postgres_writer import PostgresWriter

        return PostgresWriter(database, targets, owner)


def without_secrets(url: str) -> str:
    """An address as people may see it: no user, no password, no option.

    >>> without_secrets("host=db dbname=shop user=ann password='it''s hush'")
    'postgresql://db/shop'
    """
    if is_reference(url):
        return url
    if "://" in url:
        authority, slash, rest = url.partition("://")[2].partition("?")[0].partition("/")
        return f"postgresql://{authority.rpartition('@')[2]}{slash}{rest}"
    known = {found["name"]: found["value"] for found in SETTING.finditer(url)}
    port = f":{known['port']}" if "port" in known else ""
    return f"postgresql://{known.get('host', '')}{port}/{known.get('dbname', '')}"


def _check_name(what: str, name: str, step: str) -> None:
    if not isinstance(name, str) or not name or "\0" in name:
        raise PlanError(f"{step}: the {what} must be text that is not empty. ({written_at()})")
    if len(name.encode()) > LONGEST_NAME:
        raise PlanError(f"{step}: the {what}'s name is longer than {LONGEST_NAME} bytes. Shorten it. ({written_at()})")


def _checked(url: str, step: str) -> str:
    """The address, refused without being shown when it cannot be one: it may hold a password."""
    if not isinstance(url, str) or not url:
        raise PlanError(f"{step}: url must be text, such as 'env:DATABASE_URL'. ({written_at()})")
    scheme, colon, rest = url.partition("://")
    if colon and not is_reference(url):
        authority, _, path = rest.partition("?")[0].partition("/")
        if (
            scheme not in ("postgresql", "postgres")
            or re.search(r"\s", rest)
            or "@" in path
            or authority.count("@") > 1
        ):
            raise PlanError(
                f"{step}: url is no address of PostgreSQL's. Write postgresql://user@host:5432/database, with "
                f"percent signs for what a password has of its own; better, give 'env:NAME'. ({written_at()})"
            )
    return url
