"""Text to token ids, many texts at a time, and token ids to the sequences that a model reads.

Texts are tokenized without special tokens and put together here:

    prefix  first text  suffix                     [CLS] a b c [SEP]
    prefix  first text  middle  second text  suffix

so that a text is tokenized once however many pairs or windows it goes into, and what is cut away is counted exactly.
That this gives what the tokenizer itself gives is checked when a TextTokenizer is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from setpoint.errors import ModelError
from setpoint.runners.base import IntArray, TokenSequence
from setpoint.runners.encoder.model import EncoderModel

# A longer text is tokenized piece by piece: two million characters at once would take more than a gigabyte.
_PIECE_CHARACTERS = 200_000
_SLAB_CHARACTERS = 1_000_000
_PROBES = ("a", "the", "1", "x y", "Hello, world! 42 don't")


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A text's own tokens: `ids` int32 [n], and for those who asked `offsets` int32 [n, 2], characters of the text."""

    ids: IntArray
    offsets: IntArray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> Content:
        """The tokens from `start` to before `stop`."""
        return Content(self.ids[start:stop], None if self.offsets is None else self.offsets[start:stop])


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """Special tokens around one text (no `middle`) or two, and the segment ids of every part."""

    prefix: IntArray
    suffix: IntArray
    middle: IntArray | None
    type_ids: tuple[IntArray, int, IntArray, int, IntArray]  # of prefix, first text, middle, second text, suffix

    @property
    def num_special(self) -> int:
        """How many tokens it adds."""
        return len(self.prefix) + len(self.suffix) + (0 if self.middle is None else len(self.middle))


class TextTokenizer:
    """The model's tokenizer without its saved truncation and padding. Safe to use from several threads."""

    def __init__(self, model: EncoderModel) -> None:
        self._backend = _plain_copy(model.tokenizer)
        self._uses_type_ids = model.uses_type_ids
        self._unk_id: int | None = model.tokenizer.unk_token_id
        self.max_length = model.max_length
        self.keeps_end = model.tokenizer.truncation_side == "left"
        self.num_embeddings = _num_embeddings(model)
        self.single = _find_template(self._backend, pair=False)
        self.double = _find_template(self._backend, pair=True)
        self._check_against(model.tokenizer)

    def tokenize(self, texts: Sequence[str], *, offsets: bool = False) -> list[Content]:
        """Tokenize texts, in order, without special tokens and without a limit. Texts must be valid Unicode."""
        pieces = [(index, start, piece) for index, text in enumerate(texts) for start, piece in _pieces(text)]
        parts: list[list[Content]] = [[] for _ in texts]
        for slab in _slabs(pieces):
            encode = self._backend.encode_batch if offsets else self._backend.encode_batch_fast
            encodings = encode([piece for _, _, piece in slab], add_special_tokens=False)
            for (index, start, _), encoding in zip(slab, encodings, strict=True):
                parts[index].append(_content(encoding, start, offsets=offsets))
        return [found[0] if len(found) == 1 else _join(found) for found in parts]

    def join(self, first: IntArray, second: IntArray | None = None) -> TokenSequence:
        """The sequence that a model reads: one text or two with special tokens around them."""
        template = self.single if second is None else self.double
        pieces = [template.prefix, first, template.suffix]
        if second is not None:
            pieces[2:2] = [_given(template.middle), second]
        ids = np.concatenate(pieces, dtype=np.int32)
        return TokenSequence(ids, self._type_ids(template, len(first), second) if self._uses_type_ids else None)

    def is_unknown(self, ids: IntArray) -> bool:
        """Whether the tokenizer knows no part of a text: every token is the unknown one, or there is none."""
        return len(ids) == 0 or (self._unk_id is not None and bool((ids == self._unk_id).all()))

    def outside(self, ids: IntArray) -> int | None:
        """A token id that the model has no embedding for, or None."""
        if self.num_embeddings is None or len(ids) == 0:
            return None
        largest = int(ids.max())
        return largest if largest >= self.num_embeddings else None

    def _type_ids(self, template: Template, num_first: int, second: IntArray | None) -> IntArray:
        prefix, of_first, middle, of_second, suffix = template.type_ids
        pieces = [prefix, np.full(num_first, of_first), suffix]
        if second is not None:
            pieces[2:2] = [middle, np.full(len(second), of_second)]
        return np.concatenate(pieces, dtype=np.int32, casting="unsafe")

    def _check_against(self, tokenizer: Any) -> None:
        """Refuse a tokenizer whose Python class does more than its fast backend."""
        for text in _PROBES:
            for pair in (None, "b c"):
                whole = self._backend.encode(text, pair)
                wanted = (whole.ids, whole.type_ids if self._uses_type_ids else None)
                theirs = tokenizer(text, pair, truncation=False, padding=False)["input_ids"]
                contents = self.tokenize([text] if pair is None else [text, pair])
                ours = self.join(*(content.ids for content in contents))
                types = None if ours.type_ids is None else ours.type_ids.tolist()
                if (ours.ids.tolist(), types) != wanted or ours.ids.tolist() != theirs:
                    raise ModelError(
                        f"the tokenizer {type(tokenizer).__name__} places special tokens in a way that is not supported"
                    )


def _plain_copy(tokenizer: Any) -> Tokenizer:
    """The fast backend, its own copy: folders save truncation and padding (all-MiniLM-L6-v2 cuts at 128 tokens)."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


def _num_embeddings(model: EncoderModel) -> int | None:
    """How many token ids the model knows, where its tokenizer can give more; else None."""
    table = model.network.model.get_input_embeddings()  # type: ignore[operator]
    size = int(table.weight.shape[0])
    return size if max(model.tokenizer.get_vocab().values(), default=0) >= size else None


def _find_template(backend: Tokenizer, *, pair: bool) -> Template:
    """Read the special tokens off an example."""
    example = next(text for text in _PROBES if backend.encode(text, add_special_tokens=False).ids)
    encoding = backend.encode(example, example) if pair else backend.encode(example)
    owners = encoding.sequence_ids  # None for special tokens, else 0 or 1
    first = [position for position, owner in enumerate(owners) if owner == 0]
    second = [position for position, owner in enumerate(owners) if owner == 1]
    last = (second or first)[-1]
    ids = np.array(encoding.ids, dtype=np.int32)
    types = np.array(encoding.type_ids, dtype=np.int32)
    between = slice(first[-1] + 1, second[0]) if pair else slice(0, 0)
    return Template(
        prefix=ids[: first[0]],
        suffix=ids[last + 1 :],
        middle=ids[between] if pair else None,
        type_ids=(
            types[: first[0]],
            int(types[first[0]]),
            types[between],
            int(types[second[0]]) if pair else 0,
            types[last + 1 :],
        ),
    )


def _given(middle: IntArray | None) -> IntArray:
    if middle is None:
        raise ValueError("a template for one text was used for two")
    return middle


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """(first character, piece) of a text; cut before white space, which no token reaches across from the left."""
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        stop = start + _PIECE_CHARACTERS
        stop = next((at for at in range(stop, max(stop - 1_000, start), -1) if text[at].isspace()), stop)
        yield start, text[start:stop]
        start = stop
    yield start, text[start:]


def _slabs(pieces: Sequence[tuple[int, int, str]]) -> Iterator[Sequence[tuple[int, int, str]]]:
    """Cut the work so that what the tokenizer returns for one slab stays small."""
    begin = size = 0
    for position, (_, _, piece) in enumerate(pieces):
        if size and size + len(piece) > _SLAB_CHARACTERS:
            yield pieces[begin:position]
            begin, size = position, 0
        size += len(piece)
    if begin < len(pieces):
        yield pieces[begin:]


def _content(encoding: Any, start: int, *, offsets: bool) -> Content:
    ids = np.array(encoding.ids, dtype=np.int32)
    if not offsets:
        return Content(ids)
    places: npt.NDArray[np.int32] = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    return Content(ids, places + np.int32(start))


def _join(parts: Sequence[Content]) -> Content:
    offsets = [part.offsets for part in parts if part.offsets is not None]
    return Content(np.concatenate([part.ids for part in parts]), np.concatenate(offsets) if offsets else None)
