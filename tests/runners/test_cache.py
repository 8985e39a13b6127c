"""A cache may be damaged, unwritable or absent; the work goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from setpoint.runners.cache import cache_folder, cache_key, read_json, write_json


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETPOINT_CACHE", str(tmp_path / "cache"))


def test_what_is_written_is_read() -> None:
    assert read_json("choices", "k") is None
    write_json("choices", "k", {"a": [1, None, "ü"]})
    assert read_json("choices", "k") == {"a": [1, None, "ü"]}


def test_a_damaged_entry_counts_as_absent() -> None:
    write_json("choices", "k", 1)
    (cache_folder("choices") / "k.json").write_text('{"a": ')
    assert read_json("choices", "k") is None


def test_an_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("SETPOINT_CACHE", str(blocked))
    write_json("choices", "k", 1)
    assert read_json("choices", "k") is None


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_json("choices", "k", {"a": object()})
    assert list((tmp_path / "cache" / "choices").iterdir()) == []


def test_the_users_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SETPOINT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("graphs") == tmp_path / "setpoint" / "graphs"


def test_keys_do_not_depend_on_order() -> None:
    assert cache_key({"a": 1, "b": 2}) == cache_key({"b": 2, "a": 1}) != cache_key({"a": 2, "b": 1})
