"""What tests ask of a source: all of its rows, and that it gives the same ones however it is read."""

from __future__ import annotations

from typing import Any

from setpoint.score.formats import cast_table, unify_schemas
from setpoint.score.sources import Chunk, Source


def all_chunks(source: Source, **options: Any) -> list[Chunk]:
    return list(source.chunks(**options))


def rows_of(source: Source, **options: Any) -> list[dict[str, Any]]:
    """Each row's cells as they came, a failure under the key `!`, absent fields left out."""
    rows: list[dict[str, Any]] = []
    for chunk in source.chunks(**options):
        assert chunk.first_row == options.get("start_row", 0) + len(rows)
        columns = {name: chunk.values(name) for name in chunk.table.column_names}
        for i in range(chunk.num_rows):
            if i in chunk.failures:
                assert all(values[i] is None for values in columns.values())
                rows.append({"!": str(chunk.failures[i])})
            else:
                rows.append({name: v[i] for name, v in columns.items() if not chunk.is_absent(name, i)})
    return rows


def table_of(source: Source, **options: Any) -> Any:
    """The whole input as one table, as a job would store it."""
    import pyarrow as pa

    tables = [chunk.table for chunk in source.chunks(**options)]
    schema = unify_schemas(table.schema for table in tables)
    return pa.concat_tables([cast_table(table, schema) for table in tables])


def places_of(source: Source, **options: Any) -> list[str]:
    return [chunk.where(i) for chunk in source.chunks(**options) for i in range(chunk.num_rows)]


def same(first: Any, second: Any) -> bool:
    """Equality under which NaN equals itself."""
    return repr(first) == repr(second)
