from __future__ import annotations

import builtins
import importlib
import time
from pathlib import Path
from typing import Any

import pytest

from setpoint.errors import InputError, MissingDependency, UsageError
from setpoint.score.sources import open_source, sql
from tests.score.sources.reading import all_chunks, places_of, rows_of, table_of

QUERY = "SELECT id, body AS text FROM tickets ORDER BY id"


@pytest.fixture
def database(tmp_path: Path) -> str:
    import duckdb

    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE tickets AS SELECT range AS id, 'ticket ' || range AS body FROM range(5000)")
        connection.execute("UPDATE tickets SET body = NULL WHERE id = 7")
    return str(path)


def test_duckdb_query(database: str) -> None:
    source = open_source(database, query=QUERY + ";")
    assert source.columns() == ["id", "text"]
    assert source.estimate().rows == 5000
    assert source.notes() == ()
    found = rows_of(source, max_rows=700)
    assert found[7] == {"id": 7, "text": None}
    assert found[4999] == {"id": 4999, "text": "ticket 4999"}
    assert [chunk.num_rows for chunk in source.chunks(max_rows=2000)] == [2000, 2000, 1000]
    assert rows_of(source, max_rows=700, start_row=3000) == found[3000:]
    assert places_of(source, start_row=4998) == [f"{database} row 4999", f"{database} row 5000"]


def test_duckdb_by_url(database: str) -> None:
    assert len(rows_of(open_source(f"duckdb://{database}", query=QUERY))) == 5000


def test_duckdb_with_a_single_table_needs_no_query(database: str) -> None:
    import duckdb

    source = open_source(database)
    assert source.columns() == ["id", "body"]
    assert len(rows_of(source)) == 5000
    assert source.identity()["query"] == 'FROM "tickets"'
    with duckdb.connect(database) as connection:
        connection.execute('CREATE SCHEMA s; CREATE TABLE s."Other one" (a INT)')
    with pytest.raises(UsageError, match=r'has 2 tables; choose rows with --query .* "tickets", "s"\."Other one"'):
        source.columns()


def test_duckdb_without_tables_or_rows(tmp_path: Path) -> None:
    import duckdb

    path = str(tmp_path / "e.duckdb")
    duckdb.connect(path).close()
    with pytest.raises(InputError, match="has no tables"):
        open_source(path).columns()
    source = open_source(path, query="SELECT 1 AS a WHERE false")
    assert all_chunks(source) == []
    assert source.estimate().rows == 0


def test_duckdb_types(database: str) -> None:
    query = (
        "SELECT 1::HUGEINT h, [1, 2] l, {'a': 1} s, INTERVAL 1 DAY i, 'a'::ENUM('a', 'b') e, 1.50::DECIMAL(4, 2) d, "
        "DATE '2020-01-02' AS t, MAP {'k': 1} m, 'x'::BLOB b, NULL n, 'NaN'::DOUBLE f"
    )
    (chunk,) = all_chunks(open_source(database, query=query))
    (row,) = chunk.table.to_pylist()
    assert (row["h"], row["l"], row["s"], row["e"], row["m"], row["b"], row["n"]) == (
        1,
        [1, 2],
        {"a": 1},
        "a",
        [("k", 1)],
        b"x",
        None,
    )
    assert str(row["d"]) == "1.50"
    assert row["i"] is not None


def test_duckdb_is_opened_for_reading(database: str, tmp_path: Path) -> None:
    for query in (
        "DELETE FROM tickets RETURNING *",
        "SELECT 1; SELECT 2",
        f"COPY tickets TO '{tmp_path}/x.csv'",
        "-- ",
    ):
        with pytest.raises(UsageError, match="must be one SELECT statement"):
            open_source(database, query=query).columns()
    with pytest.raises(UsageError, match="--query is empty"):
        open_source(database, query=" ; ")
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nope FROM tickets", "nope"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM ticket", "ticket does not exist"),
        ("SELECT id, body AS id FROM tickets", "column names repeat: 'id'"),
    ],
)
def test_duckdb_queries_that_are_wrong(database: str, query: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(database, query=query).columns()


def test_duckdb_query_that_fails_on_the_way(database: str) -> None:
    query = "SELECT CASE WHEN id < 4500 THEN id ELSE error('broken row') END AS id FROM tickets ORDER BY tickets.id"
    with pytest.raises(InputError, match="broken row"):
        rows_of(open_source(database, query=query))


def test_duckdb_files_that_are_not(tmp_path: Path, database: str) -> None:
    with pytest.raises(InputError, match=r"no file .*shp\.duckdb \(did you mean 'shop\.duckdb'\?\)"):
        open_source(str(tmp_path / "shp.duckdb")).columns()
    (tmp_path / "fake.duckdb").write_text("no database")
    with pytest.raises(InputError, match="not a valid DuckDB database"):
        open_source(str(tmp_path / "fake.duckdb")).columns()


def test_a_query_without_an_order_is_noted(database: str) -> None:
    assert "has no ORDER BY" in open_source(database, query="SELECT * FROM tickets").notes()[0]
    assert open_source(database, query="SELECT * FROM tickets order\n  by id").notes() == ()


def test_identity_is_the_query(database: str) -> None:
    first = open_source(database, query=QUERY).identity()
    assert first == {"kind": "query", "database": database, "query": QUERY}
    assert open_source(database, query=QUERY + " DESC").identity() != first


def test_options_that_do_not_fit(database: str) -> None:
    with pytest.raises(UsageError, match="--input-format csv does not go with a database"):
        open_source(database, format="csv")
    with pytest.raises(UsageError, match=r"postgresql://me@host/db is a database; say which rows with --query"):
        open_source("postgresql://me:secret@host/db")


def test_a_missing_driver_is_named_with_its_install_line(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import, real_import_module = builtins.__import__, importlib.import_module

    def no_duckdb(name: str, *args: Any, **options: Any) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return real_import(name, *args, **options)

    def no_driver(name: str) -> Any:
        if name.startswith("adbc_driver"):
            raise ImportError(name)
        return real_import_module(name)

    monkeypatch.setattr(builtins, "__import__", no_duckdb)
    monkeypatch.setattr(sql.importlib, "import_module", no_driver)
    with pytest.raises(MissingDependency, match=r"needs the package 'duckdb'; .* pip install 'setpoint\[sql\]'"):
        open_source(database).columns()
    with pytest.raises(MissingDependency, match=r"'adbc-driver-postgresql'; .* pip install 'setpoint\[sql\]'"):
        open_source("postgresql://h/db", query="SELECT 1").columns()
    with pytest.raises(MissingDependency, match=r"'adbc-driver-snowflake'; .* pip install adbc-driver-snowflake"):
        open_source("snowflake://h/db", query="SELECT 1").columns()


def test_a_driver_that_nobody_knows() -> None:
    with pytest.raises(InputError, match="oracle://h/db"):
        open_source("oracle://me:secret@h/db".replace("me:secret@", ""), query="SELECT 1").columns()


@pytest.fixture(scope="module")
def filled_url(postgres_url: str) -> str:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres_url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE tickets AS SELECT i AS id, CASE WHEN i = 7 THEN NULL ELSE 'ticket ' || i END AS body "
            "FROM generate_series(0, 4999) AS i"
        )
        cursor.execute(
            "CREATE TABLE kinds AS SELECT 1.50::numeric AS n, '{\"a\": 1}'::jsonb AS j, now() AS t, "
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid AS u, ARRAY['x', 'y'] AS a, true AS b, "
            "'\\xff'::bytea AS y, 1.5::float4 AS f, date '2020-01-02' AS d, 'é ☃'::varchar AS v"
        )
        cursor.execute("CREATE SEQUENCE numbers")
        connection.commit()
    return postgres_url


def test_postgresql_query(filled_url: str) -> None:
    source = open_source(filled_url, query=QUERY)
    assert source.columns() == ["id", "text"]
    assert source.estimate().rows == 5000
    found = rows_of(source, max_rows=700)
    assert len(found) == 5000
    assert found[7] == {"id": 7, "text": None}
    assert found[4999] == {"id": 4999, "text": "ticket 4999"}
    assert rows_of(source, max_rows=700, start_row=3000) == found[3000:]
    assert [chunk.num_rows for chunk in source.chunks(max_rows=2000)] == [2000, 2000, 1000]
    assert places_of(source, start_row=4999) == [f"{filled_url} row 5000"]
    assert rows_of(source, columns=["text"], start_row=4999) == [{"text": "ticket 4999"}]


def test_postgresql_types(filled_url: str) -> None:
    table = table_of(open_source(filled_url, query="SELECT * FROM kinds -- all\n;"))
    (row,) = table.to_pylist()
    assert row["n"] == "1.50"
    assert row["j"] == '{"a": 1}'
    assert row["a"] == ["x", "y"]
    assert (row["b"], row["y"], row["f"], row["v"]) == (True, b"\xff", 1.5, "é ☃")
    assert str(row["d"]) == "2020-01-02"


def test_postgresql_is_read_only(filled_url: str) -> None:
    query = "SELECT * FROM set_config('transaction_read_only', 'off', true)"
    with pytest.raises(InputError, match="transaction read-write mode must be set before any query"):
        all_chunks(open_source(filled_url, query=query))
    source = open_source(filled_url, query="DELETE FROM tickets RETURNING *")
    with pytest.raises(InputError, match=r"postgresql://setpoint@127"):
        source.columns()
    with pytest.raises(InputError, match="read-only transaction"):
        all_chunks(open_source(filled_url, query="SELECT nextval('numbers')"))
    assert open_source(filled_url, query=QUERY).estimate().rows == 5000


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nope FROM tickets", "nope"),
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM ticket", 'relation "ticket" does not exist'),
        ("SELECT id, body AS id FROM tickets", "column names repeat: 'id'|specified more than once"),
    ],
)
def test_postgresql_queries_that_are_wrong(filled_url: str, query: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(filled_url, query=query).columns()


def test_postgresql_query_that_fails_on_the_way(filled_url: str) -> None:
    query = "SELECT 1 / (4500 - id) AS x FROM tickets ORDER BY id"
    with pytest.raises(InputError, match="division by zero"):
        rows_of(open_source(filled_url, query=query))


def test_postgresql_that_is_not_there(filled_url: str) -> None:
    with pytest.raises(InputError, match=r'database "nowhere" does not exist'):
        open_source(filled_url.replace("/postgres", "/nowhere"), query="SELECT 1").columns()
    started = time.monotonic()
    with pytest.raises(InputError, match="refused") as caught:
        open_source("postgresql://me:secret@127.0.0.1:1/db", query="SELECT 1").columns()
    assert "secret" not in str(caught.value)
    assert time.monotonic() - started < 20


def test_postgresql_empty_result(filled_url: str) -> None:
    source = open_source(filled_url, query="SELECT * FROM tickets WHERE id < 0")
    assert source.columns() == ["id", "body"]
    assert all_chunks(source) == []


def test_postgresql_memory_does_not_grow_with_the_result(filled_url: str) -> None:
    import psutil

    query = "SELECT i AS id, repeat('some text ', 40) AS text FROM generate_series(1, 200000) AS i"
    process, first, peak, seen = psutil.Process(), 0, 0, 0
    for chunk in open_source(filled_url, query=query).chunks():
        seen += chunk.num_rows
        peak = max(peak, process.memory_info().rss)
        first = first or peak
    assert seen == 200_000
    assert peak - first < 40 * 1024 * 1024  # the result has 80
