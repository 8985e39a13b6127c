from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.errors import InputError
from setpoint.score.sources import jsontext, lines, open_source
from tests.score.sources.reading import all_chunks, places_of, rows_of, same, table_of


def write(folder: Path, content: bytes | str, name: str = "file.jsonl") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_bad_lines_fail_alone_with_file_and_line(tmp_path: Path) -> None:
    content = '{"text": "a"}\n{"text": \n\n"just text"\n[1, 2]\n7\nnull\ntrue\n{"text": "b"}\n'
    source = open_source(write(tmp_path, content))
    assert rows_of(source) == [
        {"text": "a"},
        {"!": "invalid_record: file.jsonl:2: Expecting value at column 10"},
        {"text": "just text"},
        {"!": "invalid_record: file.jsonl:5: expected an object, found a list"},
        {"!": "invalid_record: file.jsonl:6: expected an object, found a number"},
        {"!": "invalid_record: file.jsonl:7: expected an object, found null"},
        {"!": "invalid_record: file.jsonl:8: expected an object, found true or false"},
        {"text": "b"},
    ]
    assert places_of(source)[0] == "file.jsonl:1"
    assert places_of(source)[-1] == "file.jsonl:9"


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"a": ' * 100_000, "1" * 5_000, '{"a": ' + "9" * 5_000 + "}", '"\\u12"', "{'a': 1}", "\0"]
)
def test_lines_that_make_parsers_stumble(tmp_path: Path, line: str) -> None:
    found = rows_of(open_source(write(tmp_path, f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n')))
    assert found[0] == {"text": "a"}
    assert found[1]["!"].startswith("invalid_record: file.jsonl:2: ")
    assert found[2] == {"text": "b"}


def test_lone_surrogates_and_bad_bytes(tmp_path: Path) -> None:
    content = b'{"text": "\\ud800"}\n{"text": "caf\xe9"}\n{"text": "\\ud83d\\ude00"}\n{"tags": ["ok", "\\udfff"]}\n'
    (chunk,) = all_chunks(open_source(write(tmp_path, content)))
    assert chunk.values("text") == ["\ud800", "caf\udce9", "\N{GRINNING FACE}", None]
    assert chunk.table.column("text").to_pylist() == ["\ufffd", "caf\ufffd", "\N{GRINNING FACE}", None]
    assert chunk.values("tags")[3] == ["ok", "\udfff"]
    assert chunk.table.column("tags").to_pylist()[3] == ["ok", "\ufffd"]


def test_a_field_name_that_is_not_unicode_is_that_rows_failure(tmp_path: Path) -> None:
    found = rows_of(open_source(write(tmp_path, '{"\\ud800": 1}\n{"text": "a"}\n')))
    assert found == [{"!": "invalid_record: file.jsonl:1: a field name is not valid Unicode"}, {"text": "a"}]


def test_null_and_absent_are_told_apart_and_nan_is_read(tmp_path: Path) -> None:
    content = '{"text": null, "n": NaN}\n{"n": Infinity}\n{"text": "a", "n": 1}\n'
    (chunk,) = all_chunks(open_source(write(tmp_path, content)))
    assert [chunk.is_absent("text", i) for i in range(3)] == [False, True, False]
    assert chunk.is_absent("nowhere", 0)
    assert chunk.values("nowhere") == [None, None, None]
    numbers = chunk.values("n")
    assert math.isnan(numbers[0])
    assert numbers[1:] == [math.inf, 1.0]


def test_mixed_kinds_become_text_and_keep_what_they_were(tmp_path: Path) -> None:
    content = (
        '{"x": "a"}\n{"x": 1}\n{"x": 2.5}\n{"x": true}\n{"x": null}\n{"x": [1, "b"]}\n{"x": {"k": 1}}\n{"x": NaN}\n'
    )
    (chunk,) = all_chunks(open_source(write(tmp_path, content)))
    assert chunk.table.column("x").to_pylist() == ["a", "1", "2.5", "true", None, '[1, "b"]', '{"k": 1}', None]
    assert same(chunk.values("x"), ["a", 1, 2.5, True, None, [1, "b"], {"k": 1}, math.nan])


def test_new_fields_may_come_late(tmp_path: Path) -> None:
    first = "".join(json.dumps({"text": f"t{i}"}) + "\n" for i in range(1_500))
    path = write(tmp_path, first + '{"text": "z", "late": 1}\n')
    source = open_source(path)
    assert source.columns() == ["text"]
    last = all_chunks(source, max_rows=1000)[-1]
    assert last.table.column_names == ["text", "late"]
    assert table_of(source, max_rows=1000).column("late").to_pylist() == [None] * 1_500 + [1]


def test_an_object_used_as_a_map_does_not_make_a_thousand_columns(tmp_path: Path) -> None:
    content = "".join(json.dumps({"text": "a", "by_user": {f"user{i}": i}}) + "\n" for i in range(1000))
    table = table_of(open_source(write(tmp_path, content)), max_rows=100)
    assert str(table.schema.field("by_user").type) == "string"
    assert json.loads(table.column("by_user")[7].as_py()) == {"user7": 7}


def test_empty_and_blank_files_are_no_rows(tmp_path: Path) -> None:
    for content in ("", "\n\n  \n", "\ufeff"):
        source = open_source(write(tmp_path, content))
        assert source.columns() == []
        assert all_chunks(source) == []
        assert source.estimate().num_rows == 0


def test_rows_without_any_column_are_still_rows(tmp_path: Path) -> None:
    (chunk,) = all_chunks(open_source(write(tmp_path, "nope\n{}\n")))
    assert (chunk.num_rows, list(chunk.failures)) == (2, [0])


def test_a_line_longer_than_the_limit_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_RECORD_CHARS", 50)
    path = write(tmp_path, '{"text": "a"}\n{"text": "' + "x" * 500 + '"}\n{"text": "b"}\n')
    found = rows_of(open_source(path))
    assert [found[0], found[2]] == [{"text": "a"}, {"text": "b"}]
    assert found[1]["!"].startswith("invalid_record: file.jsonl:2 is longer than")


def test_a_cell_of_two_million_characters(tmp_path: Path) -> None:
    huge = "y" * 2_000_000
    source = open_source(write(tmp_path, json.dumps({"text": huge}) + '\n{"text": "b", "n": 1}\n'))
    assert source.columns() == ["text", "n"]
    assert rows_of(source)[0]["text"] == huge


def test_an_array_file(tmp_path: Path) -> None:
    path = write(tmp_path, '[\n  {"text": "a, b]"},\n  "plain",\n  5,\n  {"text": "c",\n "n": 1}\n]\n', "a.json")
    source = open_source(path)
    assert source.columns() == ["text", "n"]
    assert rows_of(source) == [
        {"text": "a, b]"},
        {"text": "plain"},
        {"!": "invalid_record: a.json:4: expected an object, found a number"},
        {"text": "c", "n": 1},
    ]
    assert places_of(source) == ["a.json:2", "a.json:3", "a.json:4", "a.json:5"]
    assert source.estimate().num_rows == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"a": 1}\n{"a": 2}]', r"a\.json:2: expected a comma between two elements, found '{'"),
        ('[{"a": 1},\n{"a": ]', r"a\.json:2: Expecting value; the rest of the array cannot be read"),
        ('[{"a": 1},\n{"a": 2}\n', r"a\.json:3: the array is not closed"),
        ('[{"a": 1}]\n[{"a": 2}]', r"a\.json:2: there is more after the end of the array"),
    ],
)
def test_a_broken_array_names_the_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        rows_of(open_source(write(tmp_path, content, "a.json")))


def test_a_single_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.json is one JSON object; it must be an array"):
        open_source(write(tmp_path, '{\n "data": [1, 2]\n}\n', "a.json")).columns()


def test_json_lines_named_json(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, '{"a": 1}\n{"a": 2}\n', "a.json"))
    assert rows_of(source) == [{"a": 1}, {"a": 2}]
    assert source.notes() == ("a.json holds no array; it is read as JSON lines",)


def test_an_array_larger_than_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsontext, "BLOCK_BYTES", 7)
    items = [{"text": "\N{GRINNING FACE}" * n, "n": 10**n} for n in range(15)]
    source = open_source(write(tmp_path, json.dumps(items, ensure_ascii=False, indent=1), "a.json"))
    assert rows_of(source) == items


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=True) | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
records = st.lists(st.dictionaries(st.sampled_from(["text", "n", "x"]), values, max_size=3), max_size=20)


@settings(max_examples=100, deadline=None)
@given(items=records, max_rows=st.integers(1, 8), start=st.integers(0, 20), as_array=st.booleans())
def test_every_kind_of_record_is_kept_and_told_the_same_from_any_row(
    tmp_path_factory: pytest.TempPathFactory, items: list[dict[str, Any]], max_rows: int, start: int, as_array: bool
) -> None:
    folder = tmp_path_factory.mktemp("json")
    text = json.dumps(items) if as_array else "".join(json.dumps(item) + "\n" for item in items)
    source = open_source(write(folder, text, "x.json" if as_array else "x.jsonl"))
    found = rows_of(source, max_rows=max_rows)
    assert [set(row) for row in found] == [set(item) for item in items]
    for row, item in zip(found, items):
        for key, value in item.items():
            if isinstance(value, str | bool | int | float):
                assert row[key] == value or (row[key] != row[key] and value != value)
    # boundaries are the same from any boundary, so are the types
    bound = start - start % max_rows
    assert same(rows_of(source, max_rows=max_rows, start_row=bound), found[bound:])
    if any(items):
        assert table_of(source, max_rows=max_rows).num_rows == len(items)
