from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.errors import InputError
from setpoint.score.sources import delimited, lines, open_source
from tests.score.sources.reading import all_chunks, places_of, rows_of


def write(folder: Path, content: bytes | str, name: str = "tickets.csv") -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_rows_are_strings_kept_verbatim(tmp_path: Path) -> None:
    path = write(tmp_path, 'id,text\n007, a b \n1e5,""\n3,"x ""y"", z"\n')
    source = open_source(path)
    assert source.columns() == ["id", "text"]
    assert rows_of(source) == [
        {"id": "007", "text": " a b "},
        {"id": "1e5", "text": ""},
        {"id": "3", "text": 'x "y", z'},
    ]
    assert source.notes() == ()


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    assert open_source(write(tmp_path, b"\xef\xbb\xbftext\r\na\r\n")).columns() == ["text"]


def test_line_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, '\n\nid,text\n1,a\n\n2,"b\nb\nb"\n3\n4,d\r\n5,e')
    source = open_source(path)
    assert places_of(source) == [f"tickets.csv:{n}" for n in (4, 6, 9, 10, 11)]
    assert rows_of(source)[1] == {"id": "2", "text": "b\nb\nb"}
    assert rows_of(source)[2] == {"!": "invalid_record: tickets.csv:9 has 1 cell, the header has 2"}


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path, ending.join(["id,text", "1,a", '2,"x\r\ny"', "3,c"]))
    assert [row["text"] for row in rows_of(open_source(path))] == ["a", "x\r\ny", "c"]


def test_a_ragged_row_fails_alone(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, "a,b\n1,2\n1,2,3,4,5\n1\n3,4\n"))
    found = rows_of(source)
    assert found[0] == {"a": "1", "b": "2"}
    assert found[1] == {"!": "invalid_record: tickets.csv:3 has 5 cells, the header has 2"}
    assert found[2] == {"!": "invalid_record: tickets.csv:4 has 1 cell, the header has 2"}
    assert found[3] == {"a": "3", "b": "4"}


def test_bytes_that_are_not_utf8_are_kept_beside_the_table(tmp_path: Path) -> None:
    (chunk,) = all_chunks(open_source(write(tmp_path, b"id,text\n1,caf\xe9\n2,ok\n")))
    assert chunk.table.column("text").to_pylist() == ["caf\ufffd", "ok"]
    assert chunk.values("text") == ["caf\udce9", "ok"]
    assert not chunk.failures


def test_nul_and_a_cell_of_two_million_characters(tmp_path: Path) -> None:
    huge = "x" * 2_000_000
    found = rows_of(open_source(write(tmp_path, f'id,text\n1,{huge}\n2,"{huge}\n{huge}"\n3,a\0b\n')))
    assert [len(row["text"]) for row in found] == [2_000_000, 4_000_001, 3]
    assert found[2]["text"] == "a\0b"


def test_a_huge_first_line_still_gives_the_header(tmp_path: Path) -> None:
    name = "x" * 2_000_000
    assert open_source(write(tmp_path, f"id,{name}\n1,2\n")).columns() == ["id", name]


def test_header_only_is_no_rows(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, "id,text\n"))
    assert source.columns() == ["id", "text"]
    assert all_chunks(source) == []
    assert source.estimate().num_rows == 0


@pytest.mark.parametrize("content", ["", "\n\n\n", "\ufeff"])
def test_an_empty_file_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InputError, match=r"tickets\.csv is empty; it needs a header"):
        open_source(write(tmp_path, content)).columns()


def test_repeated_column_names_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tickets\.csv:1: column names repeat: 'text'"):
        open_source(write(tmp_path, "text,id,text\n1,2,3\n")).columns()


def test_a_header_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column name 'caf\\udce9' is not UTF-8.*iconv"):
        open_source(write(tmp_path, b"caf\xe9,id\n1,2\n")).columns()


def test_utf16_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="UTF-16; convert it first: iconv"):
        open_source(write(tmp_path, "text\na\n".encode("utf-16"))).columns()


@pytest.mark.parametrize(("sign", "word"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_delimiter_is_noticed_and_said(tmp_path: Path, sign: str, word: str) -> None:
    source = open_source(write(tmp_path, f"id{sign}text\n1{sign}a, b\n"))
    assert rows_of(source) == [{"id": "1", "text": "a, b"}]
    assert source.notes() == (f"the header of tickets.csv has no commas, so {word} separate its cells",)


def test_tsv_splits_at_tabs_alone(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, 'id,x\ttext\n1\ta;b\n2\t"c\td"\n', "t.tsv"))
    assert rows_of(source) == [{"id,x": "1", "text": "a;b"}, {"id,x": "2", "text": "c\td"}]
    assert source.notes() == ()


def test_blank_lines_are_cells_only_in_a_single_column(tmp_path: Path) -> None:
    one = open_source(write(tmp_path, "text\na\n\n\nb\n\n\n", "one.csv"))
    assert [row["text"] for row in rows_of(one)] == ["a", "", "", "b"]
    assert places_of(one) == [f"one.csv:{n}" for n in (2, 3, 4, 5)]
    two = open_source(write(tmp_path, "id,text\n1,a\n\n\n2,b\n\n", "two.csv"))
    assert [row["text"] for row in rows_of(two)] == ["a", "b"]


def test_a_quote_that_is_never_closed_costs_one_row(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, 'id,text\n1,a\n2,"open\n3,c\n4,d\n'))
    found = rows_of(source)
    assert found[1] == {"!": "invalid_record: tickets.csv:3 opens a quote that is never closed"}
    assert [found[0], *found[2:]] == [{"id": str(n), "text": c} for n, c in ((1, "a"), (3, "c"), (4, "d"))]
    assert places_of(source) == [f"tickets.csv:{n}" for n in (2, 3, 4, 5)]


def test_a_record_beyond_the_limit_costs_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "MAX_RECORD_CHARS", 100)
    long_line = "y" * 950
    path = write(tmp_path, f'id,text\n1,"open\n{"2,b" * 10}\n' + "3,c\n" * 50 + f"4,{long_line}\n5,e\n")
    found = rows_of(open_source(path))
    assert found[0]["!"].startswith("invalid_record: tickets.csv:2 is longer than 100 characters")
    assert found[2:52] == [{"id": "3", "text": "c"}] * 50
    assert found[52]["!"].startswith("invalid_record: tickets.csv:54 is longer than 100")
    assert found[53:] == [{"id": "5", "text": "e"}]


def test_a_file_of_broken_quotes_ends_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "MAX_QUOTE_REPAIRS", 3)
    with pytest.raises(InputError, match=r"opens a quote that is never closed, as are 3 rows before"):
        rows_of(open_source(write(tmp_path, "a\n" + 'a"b,"c\n' * 10)))


def test_a_compressed_file_that_is_cut_off(tmp_path: Path) -> None:
    content = gzip.compress(b"id,text\n" + b"".join(b"%d,%x\n" % (i, i**3) for i in range(100_000)))
    path = write(tmp_path, content[: len(content) // 2], "t.csv.gz")
    source = open_source(path)
    with pytest.raises(InputError, match=r"t\.csv\.gz is cut off: its compressed data end too early"):
        rows_of(source)


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    path = write(tmp_path, "text\na\n")
    source = open_source(path)
    Path(path).unlink()
    with pytest.raises(InputError, match="not there any more; put it back and run the same command again"):
        source.columns()


def test_the_estimate_is_exact_for_a_small_file_and_near_for_a_large_one(tmp_path: Path) -> None:
    assert open_source(write(tmp_path, "a,b\n1,2\n3\n\n5,6\n")).estimate().num_rows == 3
    body = "".join(f'{i},"text of row {i}\nwith a break"\n' for i in range(100_000))
    large = open_source(write(tmp_path, "id,text\n" + body, "l.csv")).estimate()
    assert large.num_rows is None
    assert large.rows == pytest.approx(100_000, rel=0.1)
    packed = open_source(write(tmp_path, gzip.compress(("id,text\n" + body).encode()), "l.csv.gz")).estimate()
    assert packed.num_rows is None
    assert packed.rows == pytest.approx(100_000, rel=0.3)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    padding = "and some text " * 20
    with open(path, "w") as file:
        file.write("id,text\n")
        file.writelines(f"{i},row number {i} {padding}\n" for i in range(200_000))
    assert path.stat().st_size > 55 * lines.MIB
    process, num_rows, first, peak = psutil.Process(), 0, 0, 0
    for i, chunk in enumerate(open_source(str(path)).chunks(max_rows=1024)):
        num_rows += chunk.num_rows
        if i % 10 == 0:
            peak = max(peak, process.memory_info().rss)
            first = first or peak
    assert num_rows == 200_000
    assert peak - first < 20 * lines.MIB


cells = st.text(st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, cells, cells), max_size=30),
    max_rows=st.integers(1, 12),
    start=st.integers(0, 30),
    crlf=st.booleans(),
)
def test_what_a_csv_writer_wrote_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    max_rows: int,
    start: int,
    crlf: bool,
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n" if crlf else "\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b", "c"), *rows])
    source = open_source(write(tmp_path_factory.mktemp("csv"), out.getvalue()))
    expected = [dict(zip("abc", row)) for row in rows]
    assert rows_of(source, max_rows=max_rows) == expected
    assert rows_of(source, max_rows=max_rows, start_row=start) == expected[start:]
    whole = places_of(source)
    assert places_of(source, max_rows=max_rows, start_row=start) == whole[start:]


@settings(max_examples=80, deadline=None)
@given(
    content=st.text(st.sampled_from('a,"\n\r\0 x'), max_size=60), max_rows=st.integers(1, 5), start=st.integers(0, 9)
)
def test_any_text_at_all_is_read_the_same_way_from_any_row(
    tmp_path_factory: pytest.TempPathFactory, content: str, max_rows: int, start: int
) -> None:
    source = open_source(write(tmp_path_factory.mktemp("csv"), "h,i\n" + content))
    whole = rows_of(source)
    assert rows_of(source, max_rows=max_rows, start_row=start) == whole[start:]
    assert source.estimate().num_rows == len(whole)
