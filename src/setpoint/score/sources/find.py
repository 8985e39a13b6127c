"""From what a person wrote (a path, a folder, a glob, a URL, `-`) to the files that it means and their format."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.fs as pafs

from setpoint.errors import InputError, MissingDependency, UsageError, nearest, unknown
from setpoint.score.sources.files import InputFile, Pipe, StoredFile, first_line, reading, split_ending

STDIN = "-"
SECRET = re.compile("pass|pwd|secret|token|key|sig|cred|auth", re.IGNORECASE)
GLOB_SIGNS = re.compile(r"[*?\[]")


class Format(StrEnum):
    """File formats that rows are read from."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"
    TEXT = "text"  # one row a line
    DOCUMENTS = "documents"  # one row a file


ENDINGS = {
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSON,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
}
ALIASES = {"ndjson": Format.JSONL, "feather": Format.ARROW, "ipc": Format.ARROW, "txt": Format.TEXT}
RANDOM_ACCESS = (Format.PARQUET,)
NOT_COMPRESSED = (Format.PARQUET, Format.ARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a specification means. `name` is for people; `notes` says what was guessed or left out."""

    name: str
    files: tuple[InputFile, ...]
    format: Format
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    shown: str
    size_bytes: int | None
    is_dangling: bool = False  # a link to what is not there


def parse_format(name: str) -> Format:
    """Return the format for a name or alias; raises UsageError that names the nearest."""
    key = name.strip().lower().lstrip(".")
    if key in ALIASES:
        return ALIASES[key]
    try:
        return Format(key)
    except ValueError:
        raise UsageError(unknown("input format", name, list(Format))) from None


def find_files(spec: str, *, format_name: str | None = None) -> Found:
    """Find the files that `spec` means. Raises InputError with the nearest name when there are none.

    - a file: its format by its ending (`.csv`, `.jsonl.gz`, ...), or `format_name`; a `.txt` file gives a row a line;
    - a folder: every file in it and below, sorted by path, all of one format; hidden files (`.x`, `_x`) are left
      out; a folder of `.txt` files gives a row a *file* (columns `path` and `text`), unless `format_name` is `text`;
    - a glob: the files that match, sorted; `*.txt` gives a row a file, as a folder does;
    - `-`: stdin, which needs `format_name` unless it starts as JSON lines do;
    - a URL: the same, through pyarrow's filesystems or fsspec.
    """
    wanted = parse_format(format_name) if format_name is not None else None
    if spec == STDIN:
        if sys.stdin is None:
            raise InputError("stdin is closed; name a file")
        return _found_pipe(Pipe(name="stdin", opener=lambda: sys.stdin.buffer, borrowed=True), wanted)
    if not spec or "\0" in spec:
        raise UsageError("the input has no name; name a file, a folder, a glob, a URL, or - for stdin")
    if "://" not in spec:
        local = os.path.expanduser(spec)
        if os.path.exists(local) and not (os.path.isfile(local) or os.path.isdir(local)):
            return _found_pipe(Pipe(name=spec, opener=_binary_opener(local)), wanted)
    filesystem, path, pattern = _locate(spec)
    with reading(spec):
        if pattern is not None:
            return _found_many(spec, filesystem, _match(filesystem, path, pattern, spec), wanted)
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.Directory:
            return _found_many(spec, filesystem, _walk(filesystem, path, _base_name(spec)), wanted)
        if info.type != pafs.FileType.File:
            raise InputError(_missing(spec, filesystem, path))
    return _found_one(spec, filesystem, path, info.size, wanted)


def without_password(url: str) -> str:
    """The URL without what may be secret: the password before the `@`, and parameters named like one."""
    head, _, query = url.partition("?")
    scheme, _, rest = head.partition("://")
    account, at, place = rest.rpartition("@")
    public = "&".join(part for part in query.split("&") if part and not SECRET.search(part.partition("=")[0]))
    return f"{scheme}://{account.partition(':')[0]}{at}{place}{'?' if public else ''}{public}"


def _binary_opener(path: str) -> Callable[[], BinaryIO]:
    return lambda: open(path, "rb")


def _found_pipe(pipe: Pipe, wanted: Format | None) -> Found:
    notes: tuple[str, ...] = ()
    if wanted is None:
        start = pipe.head(1).data
        while start.isspace() and not pipe.head(len(start)).is_whole:
            start = pipe.head(len(start) + 1).data
        if not start.strip().startswith(b"{"):
            raise UsageError(
                f"{pipe.name} does not start like JSON lines; say what it is with --input-format ({', '.join(Format)})"
            )
        wanted, notes = Format.JSONL, (f"{pipe.name} starts with an object, so it is read as JSON lines",)
    if wanted in RANDOM_ACCESS or wanted is Format.DOCUMENTS:
        raise UsageError(f"{wanted} cannot be read from {pipe.name}; save it to a file and name that")
    return Found(name=pipe.name, files=(pipe,), format=wanted, notes=notes)


def _found_one(
    spec: str, filesystem: pafs.FileSystem, path: str, size_bytes: int | None, wanted: Format | None
) -> Found:
    ending, _ = split_ending(path)
    kind = wanted or ENDINGS.get(ending)
    if kind is None:
        hint = "; save the sheet as CSV" if ending in (".xlsx", ".xls", ".ods") else "; name it with --input-format"
        raise InputError(
            f"cannot tell the format of {spec} from its ending {ending!r}{nearest(ending, ENDINGS)}{hint}; known "
            f"endings: {', '.join(ENDINGS)}, each also with .gz, .zst, .bz2 or .lz4"
        )
    file = _stored(_Entry(path, _base_name(spec), size_bytes), spec, filesystem, kind)
    return Found(name=without_password(spec) if "://" in spec else spec, files=(file,), format=kind)


def _found_many(spec: str, filesystem: pafs.FileSystem, entries: Sequence[_Entry], wanted: Format | None) -> Found:
    kinds = [ENDINGS.get(split_ending(entry.path)[0]) for entry in entries]
    ending_of_wanted = Format.TEXT if wanted is Format.DOCUMENTS else wanted
    if wanted is not None and ending_of_wanted not in kinds:
        chosen = [entry for entry, kind in zip(entries, kinds) if kind is None]
    else:
        known = Counter(kind for kind in kinds if kind is not None)
        if wanted is None and len(known) > 1:
            counts = ", ".join(f"{count} {kind}" for kind, count in known.most_common())
            raise InputError(f"{spec} holds files of several formats ({counts}); choose one with --input-format")
        only = ending_of_wanted if wanted is not None else next(iter(known), None)
        chosen = [entry for entry, kind in zip(entries, kinds) if kind is not None and kind is only]
    if not chosen:
        found = f"; it holds: {', '.join(entry.shown for entry in entries[:5])}" if entries else ""
        raise InputError(f"no file of a known format in {spec}{found}; known endings: {', '.join(ENDINGS)}")
    for entry in chosen:
        if entry.is_dangling:
            raise InputError(f"{entry.shown} leads to a file that is not there")
    kind = wanted or ENDINGS[split_ending(chosen[0].path)[0]]
    if wanted is None and kind is Format.TEXT:
        kind = Format.DOCUMENTS
    shown = without_password(spec) if "://" in spec else spec
    notes = []
    if len(chosen) < len(entries):
        left = [entry.shown for entry in entries if entry not in set(chosen)]
        more = ", ..." if len(left) > 3 else ""
        notes.append(f"{len(left)} of the {len(entries)} files in {shown} are left out: {', '.join(left[:3])}{more}")
    if wanted is None and kind is Format.DOCUMENTS:
        notes.append(f"each file in {shown} is one row; for one row a line use --input-format text")
    files = tuple(_stored(entry, entry.shown, filesystem, kind) for entry in chosen)
    return Found(name=f"{shown} ({len(files)} files)", files=files, format=kind, notes=tuple(notes))


def _stored(entry: _Entry, spec: str, filesystem: pafs.FileSystem, kind: Format) -> StoredFile:
    compression = split_ending(entry.path)[1]
    if compression is not None and kind in NOT_COMPRESSED:
        raise InputError(f"{entry.shown}: {kind} files are compressed inside; unpack it first")
    return StoredFile(
        name=entry.shown,
        spec=without_password(spec) if "://" in spec else spec,
        path=entry.path,
        filesystem=filesystem,
        size_bytes=entry.size_bytes,
        compression=compression,
    )


def _locate(spec: str) -> tuple[pafs.FileSystem, str, str | None]:
    """Return the filesystem, the path in it, and the glob pattern below that path if there is one."""
    if "://" not in spec:
        path = os.path.abspath(os.path.expanduser(spec))
        if not GLOB_SIGNS.search(spec) or os.path.exists(path):  # a file may really be called `a[1].csv`
            return pafs.LocalFileSystem(), path, None
        base, pattern = _split_glob(path)
        return pafs.LocalFileSystem(), base or "/", pattern
    scheme, _, rest = spec.partition("://")
    is_glob = GLOB_SIGNS.search(rest) is not None and not scheme.startswith("http")
    base, pattern = _split_glob(rest) if is_glob else (rest, None)
    filesystem, path = _open_filesystem(f"{scheme}://{base}", scheme)
    return filesystem, path, pattern


def _split_glob(path: str) -> tuple[str, str | None]:
    """Split a path into the folders before the first wildcard (possibly none) and the rest."""
    parts = path.split("/")
    first = next(i for i, part in enumerate(parts) if GLOB_SIGNS.search(part))
    return "/".join(parts[:first]), "/".join(parts[first:])


def _open_filesystem(url: str, scheme: str) -> tuple[pafs.FileSystem, str]:
    try:
        filesystem, path = pafs.FileSystem.from_uri(url)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem" not in str(error):
            raise InputError(f"{without_password(url)} is not a valid URL: {first_line(error)}") from error
    except (OSError, NotImplementedError) as error:
        raise InputError(f"{without_password(url)} cannot be reached: {first_line(error)}") from error
    else:
        return filesystem, path
    try:
        import fsspec
    except ImportError:
        raise MissingDependency("fsspec", extra="cloud", purpose=f"reading {scheme}:// URLs") from None
    try:
        other, path = fsspec.core.url_to_fs(url)
    except ValueError as error:
        raise InputError(f"unknown kind of URL {scheme}://: {first_line(error)}") from error
    except ImportError as error:
        raise InputError(f"reading {scheme}:// URLs needs one more package: {first_line(error)}") from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(other)), path


def _walk(filesystem: pafs.FileSystem, path: str, shown: str) -> list[_Entry]:
    entries = [
        _Entry(entry.path, f"{shown.rstrip('/')}/{entry.shown}", entry.size_bytes, entry.is_dangling)
        for entry in _list(filesystem, path, recursive=True)
        if not re.search(r"(^|/)[._]", entry.shown)
    ]
    return sorted(entries, key=lambda entry: entry.path)


def _list(filesystem: pafs.FileSystem, folder: str, *, recursive: bool) -> list[_Entry]:
    """All files below the folder, named by their path below it."""
    base = folder.rstrip("/") + "/"
    entries = [
        _Entry(info.path, _relative(info.path, base), info.size)
        for info in filesystem.get_file_info(pafs.FileSelector(folder, recursive=recursive))
        if info.type == pafs.FileType.File
    ]
    if isinstance(filesystem, pafs.LocalFileSystem):  # which leaves out links that lead nowhere
        for place, _, names in os.walk(folder):
            links = (os.path.join(place, name) for name in names)
            broken = (link for link in links if os.path.islink(link) and not os.path.exists(link))
            entries += [_Entry(link, _relative(link, base), None, is_dangling=True) for link in broken]
            if not recursive:
                break
    return entries


def _match(filesystem: pafs.FileSystem, base: str, pattern: str, spec: str) -> list[_Entry]:
    info = filesystem.get_file_info(base)
    if info.type == pafs.FileType.NotFound:
        raise InputError(_missing(spec, filesystem, base))
    regex, given = _glob_regex(pattern), _split_glob(spec)[0]
    entries = [
        _Entry(entry.path, f"{given}/{entry.shown}" if given else entry.shown, entry.size_bytes, entry.is_dangling)
        for entry in _list(filesystem, base, recursive="/" in pattern)
        if regex.fullmatch(entry.shown)
    ]
    if not entries:
        raise InputError(f"no file matches {spec}{_names_in(filesystem, base)}")
    return sorted(entries, key=lambda entry: entry.path)


def _glob_regex(pattern: str) -> re.Pattern[str]:
    """`*` and `?` stay within a path segment and do not match a leading dot; `**` spans segments."""
    out = []
    for part in pattern.split("/"):
        if part == "**":
            out.append("(?:[^/.][^/]*/)*")
            continue
        piece = re.sub(r"\\\[(!?)(.*?)\\\]", lambda m: f"[{'^' if m[1] else ''}{m[2]}]", re.escape(part))
        piece = piece.replace(r"\-", "-").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
        out.append(("" if part.startswith(".") else r"(?!\.)") + piece + "/")
    return re.compile("".join(out).removesuffix("/"))


def _relative(path: str, base: str) -> str:
    """The path below `base`; filesystems differ in whether they lead with a slash."""
    path, base = path.lstrip("/"), base.lstrip("/")
    return path[len(base) :] if path.startswith(base) else path


def _base_name(spec: str) -> str:
    return spec.rstrip("/").rpartition("/")[2] or spec


def _missing(spec: str, filesystem: pafs.FileSystem, path: str) -> str:
    """Say that `path` does not exist: its nearest sibling, or the first folder on the way that does not exist."""
    while True:
        parent, _, name = path.rstrip("/").rpartition("/")
        info = filesystem.get_file_info(parent or "/")
        if info.type == pafs.FileType.Directory or not parent:
            break
        path = parent
    is_spec = _base_name(spec) == name
    siblings = [] if info.type == pafs.FileType.NotFound else _siblings(filesystem, parent or "/")
    shown = without_password(spec) if "://" in spec else spec
    what = f"no file {shown}" if is_spec else f"no file {shown}: there is no folder {name!r}"
    return f"{what}{nearest(name, siblings)}"


def _siblings(filesystem: pafs.FileSystem, folder: str) -> list[str]:
    return [info.base_name for info in filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))]


def _names_in(filesystem: pafs.FileSystem, folder: str) -> str:
    names: list[Any] = sorted(_siblings(filesystem, folder))
    if not names:
        return "; the folder is empty"
    return f"; the folder holds: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
