"""Sources over databases: DuckDB embedded, and whatever has an ADBC driver. Read-only, streamed as record batches.

Rows are numbered as the query returns them. A query without `ORDER BY` may return them in another order next time,
and a job that is resumed would then find other rows in the place of those it has finished (it notices, by their
digests, and refuses): end the query with an `ORDER BY` over something unique.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pyarrow as pa

from setpoint.errors import InputError, MissingDependency, UsageError, nearest
from setpoint.score.sources.base import DEFAULT_CHUNK_ROWS, JSON, Chunk, SourceEstimate
from setpoint.score.sources.columnar import check_unique, select_names, sliced
from setpoint.score.sources.find import without_password
from setpoint.score.sources.rows import Skip, chunks_from_pieces

DUCKDB_SCHEME = "duckdb"
DUCKDB_ENDINGS = (".duckdb", ".ddb")
ADBC_DRIVERS = {
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
    "sqlite": "adbc_driver_sqlite",
    "snowflake": "adbc_driver_snowflake",
    "bigquery": "adbc_driver_bigquery",
    "grpc": "adbc_driver_flightsql",
    "grpc+tls": "adbc_driver_flightsql",
}
IN_EXTRA = ("adbc_driver_postgresql",)  # drivers that the extra `sql` brings
CONNECT_TIMEOUT_S = 15


def is_database(spec: str) -> bool:
    """Whether the specification names a database that needs no hint to be known as one."""
    scheme = spec.partition("://")[0] if "://" in spec else ""
    return scheme == DUCKDB_SCHEME or scheme in ADBC_DRIVERS or spec.lower().endswith(DUCKDB_ENDINGS)


class _Query:
    """What the two kinds of database share: a query, its columns, its rows."""

    def __init__(self, name: str, query: str | None) -> None:
        self._name = name
        self._query = None if query is None else query.strip().rstrip(";").rstrip()
        if query is not None and not self._query:
            raise UsageError("--query is empty; give a SELECT statement")

    @property
    def name(self) -> str:
        """The database, without a password."""
        return self._name

    def notes(self) -> tuple[str, ...]:
        """Say when the order of rows is left to the database."""
        if self._query is not None and "order by" not in " ".join(self._query.lower().split()):
            return ("the query has no ORDER BY; to resume safely, order by something unique",)
        return ()

    def identity(self) -> Mapping[str, JSON]:
        """The database and the text of the query; not its rows, which only reading would tell."""
        return {"kind": "query", "database": self._name, "query": self._query}

    def chunks(
        self, *, start_row: int = 0, max_rows: int = DEFAULT_CHUNK_ROWS, columns: Sequence[str] | None = None
    ) -> Iterator[Chunk]:
        """Run the query and read on from `start_row`; the rows before come too and are dropped."""
        selected = select_names(self.columns(), columns)
        return chunks_from_pieces(
            sliced(self._batches(max_rows), selected, self._name, Skip(start_row)),
            start_row=start_row,
            max_rows=max_rows,
            known=selected,
            fraction=lambda _rows: None,
        )

    def columns(self) -> list[str]:
        """The columns of the result."""
        raise NotImplementedError

    def _batches(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class DuckDBSource(_Query):
    """A query (or the only table) of a DuckDB file, `path` or `duckdb://path`."""

    def __init__(self, spec: str, query: str | None) -> None:
        super().__init__(spec, query)
        self._path = os.path.expanduser(spec.removeprefix(f"{DUCKDB_SCHEME}://"))

    def columns(self) -> list[str]:
        """The columns of the result. Raises InputError for a query that DuckDB refuses."""
        with self._relation() as relation:
            names = list(relation.columns)
        check_unique(names, f"the result of the query on {self._name}")
        return names

    def estimate(self) -> SourceEstimate:
        """Count the rows of the result."""
        with self._relation() as relation:
            return SourceEstimate(approx_rows=int(relation.aggregate("count(*)").fetchall()[0][0]))

    def identity(self) -> Mapping[str, JSON]:
        """The file as it was named, and the query: the given one, or the one for the only table."""
        with self._connected() as connection:
            query = self._select(connection)
        return {**super().identity(), "query": query}

    def _batches(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        with self._relation() as relation:
            # renamed in DuckDB 1.4
            read = relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_record_batch
            yield from read(max_rows)

    @contextlib.contextmanager
    def _relation(self) -> Iterator[Any]:
        with self._connected() as connection:
            yield connection.sql(self._select(connection))

    def _select(self, connection: Any) -> str:
        if self._query is None:
            return self._only_table(connection)
        import duckdb

        statements = connection.extract_statements(self._query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageError(f"--query must be one SELECT statement: {self._query!r} is not")
        return self._query

    def _only_table(self, connection: Any) -> str:
        tables = [
            f'"{schema}"."{table}"' if schema != "main" else f'"{table}"'
            for schema, table in connection.execute(
                "SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL"
            ).fetchall()
        ]
        if len(tables) == 1:
            return f"FROM {tables[0]}"
        if not tables:
            raise InputError(f"{self._name} has no tables")
        raise UsageError(
            f"{self._name} has {len(tables)} tables; choose rows with --query 'SELECT ... FROM {tables[0]}'. "
            f"The tables are: {', '.join(tables)}"
        )

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            import duckdb
        except ImportError:
            raise MissingDependency("duckdb", extra="sql", purpose="reading a DuckDB file") from None
        if not os.path.exists(self._path):
            folder = os.path.dirname(self._path) or "."
            siblings = os.listdir(folder) if os.path.isdir(folder) else []
            raise InputError(f"no file {self._path}{nearest(os.path.basename(self._path), siblings)}")
        try:
            with duckdb.connect(self._path, read_only=True) as connection:
                yield connection
        except (duckdb.Error, OSError, pa.ArrowException) as error:  # the latter two while rows are coming
            raise InputError(f"{self._name}: {_message(error)}") from error


class AdbcSource(_Query):
    """A query on any database that has an ADBC driver, such as `postgresql://user@host/db`.

    The transaction is read-only where the database can promise that (PostgreSQL does).
    """

    def __init__(self, url: str, query: str | None) -> None:
        super().__init__(without_password(url), query)
        if query is None:
            raise UsageError(f"{self._name} is a database; say which rows with --query 'SELECT ... ORDER BY ...'")
        self._url = url
        self._scheme = url.partition("://")[0]

    def columns(self) -> list[str]:
        """The columns of the result, without running the query. Raises InputError for one that is refused."""
        with self._run(f"SELECT * FROM (\n{self._query}\n) AS setpoint_rows LIMIT 0") as reader:
            names = list(reader.schema.names)
        check_unique(names, f"the result of the query on {self._name}")
        return names

    def estimate(self) -> SourceEstimate:
        """Count the rows of the result."""
        with self._run(f"SELECT count(*) FROM (\n{self._query}\n) AS setpoint_rows") as reader:
            return SourceEstimate(approx_rows=int(reader.read_all().column(0)[0].as_py()))

    def _batches(self, max_rows: int) -> Iterator[pa.RecordBatch]:
        with self._run(f"{self._query}\n") as reader:  # the break ends a comment on the last line
            yield from reader

    @contextlib.contextmanager
    def _run(self, statement: str) -> Iterator[pa.RecordBatchReader]:
        dbapi = self._driver()
        try:
            with self._connect(dbapi) as connection, connection.cursor() as cursor:
                if self._scheme in ("postgresql", "postgres"):
                    cursor.execute("SET TRANSACTION READ ONLY")
                cursor.execute(statement)
                with cursor.fetch_record_batch() as reader:
                    yield reader
        except (dbapi.Error, OSError, pa.ArrowException) as error:  # the latter two while rows are coming
            raise InputError(f"{self._name}: {_message(error)}") from error

    def _driver(self) -> Any:
        module = ADBC_DRIVERS.get(self._scheme)
        try:
            return importlib.import_module(f"{module or 'adbc_driver_manager'}.dbapi")
        except ImportError:
            package = (module or "adbc_driver_manager").replace("_", "-")
            extra = "sql" if module is None or module in IN_EXTRA else None
            purpose = f"reading from {self._scheme}"
            raise MissingDependency(package, extra=extra, purpose=purpose) from None

    def _connect(self, dbapi: Any) -> Any:
        if self._scheme not in ADBC_DRIVERS:  # a driver that is installed for the driver manager under this name
            return dbapi.connect(driver=self._scheme, uri=self._url)
        if self._scheme == "sqlite":
            return dbapi.connect(f"file:{self._url.removeprefix('sqlite://')}?mode=ro")
        return dbapi.connect(self._with_timeout())

    def _with_timeout(self) -> str:
        """Bound the wait for a PostgreSQL server that does not answer, unless the URL does so itself."""
        parts = urlsplit(self._url)
        options = dict(parse_qsl(parts.query))
        if self._scheme not in ("postgresql", "postgres") or "connect_timeout" in options:
            return self._url
        return parts._replace(query=urlencode({**options, "connect_timeout": CONNECT_TIMEOUT_S})).geturl()


def _message(error: Exception) -> str:
    """What the database itself says, on one line, without what drivers wrap around it."""
    paragraph = " ".join(str(error).strip().split("\n\n")[0].split())
    return paragraph[paragraph.find("ERROR:") :] if "ERROR:" in paragraph else paragraph
