from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from pathlib import Path

import pytest
import zstandard

from setpoint.errors import InputError, UsageError
from setpoint.score.sources import open_source
from setpoint.score.sources.files import COMPRESSIONS, MIB, Pipe, StoredFile
from setpoint.score.sources.find import Format, find_files, parse_format, without_password
from tests.score.sources.reading import all_chunks, places_of, rows_of

CSV = "id,text\n1,a\n2,b\n"


def write(path: Path, content: bytes | str = CSV) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("ending", sorted(COMPRESSIONS))
def test_every_compression_is_read_as_a_stream(tmp_path: Path, ending: str) -> None:
    import pyarrow as pa

    path = tmp_path / f"t.csv{ending}"
    with pa.CompressedOutputStream(str(path), COMPRESSIONS[ending]) as out:
        out.write(CSV.encode())
    source = open_source(str(path))
    assert rows_of(source) == [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}]
    assert source.estimate().num_rows == 2
    assert source.estimate().size_bytes == path.stat().st_size


def test_files_made_of_several_compressed_parts(tmp_path: Path) -> None:
    parts = [b"id,text\n", b"1,a\n", b"2,b\n"]
    for name, compress in (("t.csv.gz", gzip.compress), ("t.csv.zst", zstandard.compress)):
        write(tmp_path / name, b"".join(map(compress, parts)))
        assert len(rows_of(open_source(str(tmp_path / name)))) == 2


def test_a_missing_file_names_its_nearest_sibling(tmp_path: Path) -> None:
    write(tmp_path / "tickets.csv")
    with pytest.raises(InputError, match=r"no file .*ticket\.csv \(did you mean 'tickets\.csv'\?\)"):
        open_source(str(tmp_path / "ticket.csv"))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    write(tmp_path / "data" / "t.csv")
    with pytest.raises(InputError, match=r"there is no folder 'dta' \(did you mean 'data'\?\)"):
        open_source(str(tmp_path / "dta" / "t.csv"))


def test_endings_that_are_not_known(tmp_path: Path) -> None:
    write(tmp_path / "t.xlsx")
    with pytest.raises(InputError, match=r"from its ending '\.xlsx'.*save the sheet as CSV; known endings: \.csv"):
        open_source(str(tmp_path / "t.xlsx"))
    write(tmp_path / "t.jsonll")
    with pytest.raises(InputError, match=r"did you mean '\.jsonl'\?.*--input-format"):
        open_source(str(tmp_path / "t.jsonll"))
    write(tmp_path / "t.log")
    assert len(rows_of(open_source(str(tmp_path / "t.log"), format="text"))) == 3


def test_formats_by_name() -> None:
    assert parse_format("NDJSON") is Format.JSONL
    assert parse_format(".csv") is Format.CSV
    with pytest.raises(UsageError, match=r"unknown input format 'jsnl' \(did you mean 'jsonl'\?\)"):
        parse_format("jsnl")


def test_parquet_is_not_compressed_from_outside(tmp_path: Path) -> None:
    write(tmp_path / "t.parquet.gz")
    with pytest.raises(InputError, match="compressed inside; unpack it first"):
        open_source(str(tmp_path / "t.parquet.gz"))


def test_no_permission(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(InputError, match="no permission to read"):
        open_source(str(path)).columns()


def test_a_folder_is_its_files_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    write(folder / "b.csv", "text,id\nfrom b,3\n")
    write(folder / "a.csv.gz", gzip.compress(CSV.encode()))
    write(folder / "sub" / "c.csv", "id,text,extra\n4,from c,x\n5\n")
    write(folder / "notes.md", "not rows")
    write(folder / "_SUCCESS", "")
    write(folder / ".hidden.csv", CSV)
    source = open_source(str(folder))
    assert source.columns() == ["id", "text", "extra"]
    assert source.estimate().num_rows == 5
    assert rows_of(source) == [
        {"id": "1", "text": "a"},
        {"id": "2", "text": "b"},
        {"id": "3", "text": "from b"},
        {"id": "4", "text": "from c", "extra": "x"},
        {"!": "invalid_record: data/sub/c.csv:3 has 1 cell, the header has 3"},
    ]
    assert places_of(source) == [
        "data/a.csv.gz:2",
        "data/a.csv.gz:3",
        "data/b.csv:2",
        "data/sub/c.csv:2",
        "data/sub/c.csv:3",
    ]
    assert source.notes() == (f"1 of the 4 files in {folder} are left out: data/notes.md",)
    assert [chunk.num_rows for chunk in source.chunks(max_rows=2)] == [2, 2, 1]
    assert rows_of(source, start_row=2, max_rows=2) == rows_of(source)[2:]


def test_chunks_say_how_far_they_are(tmp_path: Path) -> None:
    for name in "abcd":
        write(tmp_path / f"{name}.csv")
    fractions = [chunk.fraction for chunk in open_source(str(tmp_path)).chunks(max_rows=2)]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert 0 < fractions[0] <= 0.5


def test_a_folder_of_several_formats_needs_a_choice(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    write(tmp_path / "b.csv")
    write(tmp_path / "c.jsonl", '{"text": "x"}\n')
    with pytest.raises(InputError, match=r"several formats \(2 csv, 1 jsonl\); choose one with --input-format"):
        open_source(str(tmp_path))
    assert rows_of(open_source(str(tmp_path), format="jsonl")) == [{"text": "x"}]


def test_a_folder_without_rows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file of a known format"):
        open_source(str(tmp_path))
    write(tmp_path / "a.bin")
    with pytest.raises(InputError, match=r"it holds: .*a\.bin; known endings"):
        open_source(str(tmp_path))


def test_a_folder_of_text_files_is_a_row_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    write(folder / "b.txt", "two\r\nlines\n")
    write(folder / "a.txt", b"\xef\xbb\xbfcaf\xe9")
    write(folder / "c.txt", "")
    source = open_source(str(folder))
    assert source.columns() == ["path", "text"]
    assert source.estimate().num_rows == 3
    assert rows_of(source) == [
        {"path": "docs/a.txt", "text": "caf\udce9"},
        {"path": "docs/b.txt", "text": "two\r\nlines\n"},
        {"path": "docs/c.txt", "text": ""},
    ]
    assert rows_of(source, start_row=2) == [{"path": "docs/c.txt", "text": ""}]
    assert "each file in" in source.notes()[0]
    lines = open_source(str(folder), format="text")
    assert [row["text"] for row in rows_of(lines)] == ["caf\udce9", "two", "lines"]


def test_a_text_file_is_a_row_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", b"one\r\n\n\xff two \x0b\xe2\x80\xa8x\n\nlast")
    source = open_source(str(path))
    assert [row["text"] for row in rows_of(source)] == ["one", "", "\udcff two \x0b\u2028x", "", "last"]
    assert places_of(source)[2] == "t.txt:3"
    assert rows_of(open_source(str(write(tmp_path / "e.txt", "")))) == []


def test_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a1.csv", "a2.csv", "b1.csv", ".a3.csv", "sub/a4.csv", "sub/deep/a5.csv", "a6.jsonl"):
        write(tmp_path / name)
    monkeypatch.chdir(tmp_path)

    def names(pattern: str) -> list[str]:
        return [file.name for file in find_files(pattern).files]

    assert names("a*.csv") == ["a1.csv", "a2.csv"]
    assert names("./[ab]1.csv") == ["./a1.csv", "./b1.csv"]
    assert names("[!a]?.csv") == ["b1.csv"]
    assert names("*/a*.csv") == ["sub/a4.csv"]
    assert names("**/*.csv") == ["a1.csv", "a2.csv", "b1.csv", "sub/a4.csv", "sub/deep/a5.csv"]
    assert names(str(tmp_path / "sub" / "*.csv")) == [str(tmp_path / "sub" / "a4.csv")]
    with pytest.raises(InputError, match=r"no file matches z\*\.csv; the folder holds: \.a3\.csv, a1\.csv"):
        find_files("z*.csv")
    with pytest.raises(InputError, match="there is no folder 'nope'"):
        find_files("nope/*.csv")


def test_a_file_whose_name_looks_like_a_glob(tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].csv")
    write(tmp_path / "a1.csv", "other\nx\n")
    assert open_source(str(path)).columns() == ["id", "text"]


def test_several_inputs_in_the_order_given(tmp_path: Path) -> None:
    second, first = write(tmp_path / "b.csv"), write(tmp_path / "a.csv")
    assert places_of(open_source([second, first])) == ["b.csv:2", "b.csv:3", "a.csv:2", "a.csv:3"]
    with pytest.raises(InputError, match="several formats: csv, text"):
        open_source([first, write(tmp_path / "c.txt")])
    with pytest.raises(UsageError, match="no input was named"):
        open_source([])


def test_urls_of_files_and_of_fsspec(tmp_path: Path) -> None:
    import fsspec

    path = write(tmp_path / "t.csv")
    assert len(rows_of(open_source(f"file://{path}"))) == 2
    memory = fsspec.filesystem("memory")
    for name in ("a.csv", "b.csv"):
        with memory.open(f"/bucket/{name}", "wb") as file:
            file.write(CSV.encode())
    assert len(rows_of(open_source("memory://bucket/a.csv"))) == 2
    assert [file.name for file in find_files("memory://bucket/*.csv").files] == [
        "memory://bucket/a.csv",
        "memory://bucket/b.csv",
    ]
    assert len(rows_of(open_source("memory://bucket"))) == 4
    with pytest.raises(InputError, match=r"no file memory://bucket/c\.csv \(did you mean"):
        open_source("memory://bucket/c.csv")
    with pytest.raises(InputError, match="unknown kind of URL sthree://"):
        open_source("sthree://bucket/a.csv")


def test_secrets_in_urls_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    with memory.open("/user:secret@bucket/a.csv", "wb") as file:
        file.write(CSV.encode())
    source = open_source("memory://user:secret@bucket/a.csv")
    assert "secret" not in source.name
    assert "secret" not in str(source.identity())


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", stream)


def test_stdin_with_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, CSV.encode())
    source = open_source("-", format="csv")
    assert source.name == "stdin"
    assert source.columns() == ["id", "text"]
    assert source.estimate().num_rows == 2
    assert rows_of(source, start_row=1) == [{"id": "2", "text": "b"}]
    assert source.identity() == {"kind": "files", "format": "csv", "files": [{"path": "stdin"}]}
    assert places_of(source) == ["stdin:2", "stdin:3"]


def test_stdin_that_looks_like_json_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b'\n {"text": "a"}\n{"text": "b"}\n')
    source = open_source("-")
    assert rows_of(source) == [{"text": "a"}, {"text": "b"}]
    assert source.notes() == ("stdin starts with an object, so it is read as JSON lines",)


def test_compressed_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    for compress in (gzip.compress, zstandard.compress):
        feed(monkeypatch, compress(CSV.encode()))
        assert len(rows_of(open_source("-", format="csv"))) == 2


def test_stdin_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for content in (CSV.encode(), b"", b"[1]"):
        feed(monkeypatch, content)
        with pytest.raises(UsageError, match="say what it is with --input-format"):
            open_source("-")
    with pytest.raises(UsageError, match="parquet cannot be read from stdin; save it to a file"):
        open_source("-", format="parquet")


def test_a_long_pipe_is_read_once_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"".join(b'{"text": "row %d %s"}\n' % (i, b"x" * 100) for i in range(30_000))
    assert len(body) > 3 * MIB
    feed(monkeypatch, body)
    source = open_source("-")
    assert source.columns() == ["text"]
    assert source.estimate().rows is None
    assert sum(chunk.num_rows for chunk in source.chunks()) == 30_000
    with pytest.raises(InputError, match="stdin can be read only once"):
        all_chunks(source)


def test_a_fifo(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(CSV.encode()), daemon=True)
    writer.start()
    source = open_source(str(path), format="csv")
    assert len(rows_of(source)) == 2
    writer.join(timeout=10)


def test_an_arrow_stream_from_a_pipe() -> None:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as out:
        out.write_table(pa.table({"text": ["a", None]}))
    pipe = Pipe(name="p", opener=lambda: io.BufferedReader(io.BytesIO(sink.getvalue().to_pybytes())))  # type: ignore[arg-type]
    assert pipe.head(4).data == b"\xff\xff\xff\xff"


def test_identity_follows_the_content(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv")
    source = open_source(str(path))
    before = source.identity()
    assert before == open_source(str(path)).identity()
    os.utime(path, (0, 0))
    assert source.identity() == before
    write(path, CSV.replace("b", "c"))
    assert open_source(str(path)).identity() != before


def test_identity_of_a_huge_file_takes_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.score.sources.files.FULL_DIGEST_BYTES", 1000)
    path = tmp_path / "t.csv"
    size = 200 * MIB
    with open(path, "wb") as file:
        file.truncate(size)
    file_of = find_files(str(path)).files[0]
    assert isinstance(file_of, StoredFile)
    before = file_of.identity()
    for place in (0, size - 1, size // 2):
        with open(path, "r+b") as file:
            file.seek(place)
            file.write(b"x")
        after = file_of.identity()
        # the blocks cover a third of this file: its ends, and 64 places between
        if place != size // 2:
            assert after != before
        before = after


def test_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the input has no name"):
        open_source("")
    with pytest.raises(UsageError, match="--query is for databases"):
        open_source(str(write(tmp_path / "t.csv")), query="SELECT 1")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:p@ss@host/db?sslmode=require&password=x", "postgresql://me@host/db?sslmode=require"),
        ("postgresql:///db?host=/run/pg", "postgresql:///db?host=/run/pg"),
        ("s3://id:secret@bucket/a.csv?region=eu&session_token=t", "s3://id@bucket/a.csv?region=eu"),
        ("https://host/a.csv?sig=abc", "https://host/a.csv"),
        ("file:///a b.csv", "file:///a b.csv"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")
    try:
        write(Path(name))
    except OSError:
        pytest.skip("this filesystem takes UTF-8 names alone")
    for spec in (name, str(tmp_path), str(tmp_path / "*.csv")):
        with pytest.raises(InputError, match="is not UTF-8; rename it"):
            open_source(spec)
    with pytest.raises(UsageError, match="has no name"):
        open_source("a\0b.csv")


def test_a_link_that_leads_nowhere_is_not_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "gone.csv")
    for spec in (tmp_path, tmp_path / "*.csv"):
        with pytest.raises(InputError, match=r"b\.csv leads to a file that is not there"):
            open_source(spec)


def test_no_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="stdin is closed"):
        open_source("-", format="csv")
