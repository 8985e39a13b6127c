"""From scored tokens to entities: the four ways of transformers' token-classification pipeline, and none at all.

none      every token by itself                     simple   neighbours of one kind joined, B- begins anew
first     a word gets the label of its first token  average  a word gets the label of the mean of its tokens' scores
max       a word gets the label of its surest token

Most tokens are no entity, so labels are found for all tokens at once and words are spelled only for what is given out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tokens:
    """The tokens of one text: ids, characters [n][2], scores [n, labels], the first one's index in the sequence."""

    text: str
    ids: Sequence[int]
    offsets: Sequence[Sequence[int]]
    scores: Scores
    first_index: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Units:
    """Tokens or words: unit i is the tokens `starts[i]` to before `starts[i + 1]`, its label and score are arrays'."""

    starts: Sequence[int]
    labels: Sequence[int]
    scores: Sequence[float]


class EntityReader:
    """Aggregates the tokens of one text at a time. Safe to use from several threads."""

    def __init__(self, *, tokenizer: Any, labels: Sequence[str], aggregation: str, ignored: frozenset[str]) -> None:
        self._tokenizer = tokenizer
        self._unk_id: int | None = tokenizer.unk_token_id
        self._labels = labels
        self._aggregation = aggregation
        self._ignored = ignored
        self._begins = [label.startswith("B-") for label in labels]
        self._tags = [label[2:] if label[:2] in ("B-", "I-") else label for label in labels]
        self._groups = [label.split("-", 1)[-1] for label in labels]
        # Only a tokenizer that marks the pieces within a word knows where words begin.
        self._marks_pieces = bool(getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None))
        self._spelled: dict[int, str] = {}

    def read(self, tokens: Tokens) -> list[dict[str, Any]]:
        """Entities in order: `entity_group` (the label of the token under "none"), score, word, start, end.

        Under "none" each has the token's `index` in the sequence as well.
        """
        if not len(tokens.ids):
            return []
        if self._aggregation == "none":
            return list(self._alone(tokens))
        units = self._units(tokens)
        return [
            self._entity(tokens, units, first, last)
            for first, last in self._joined(units)
            if self._groups[units.labels[first]] not in self._ignored
        ]

    def _alone(self, tokens: Tokens) -> Iterator[dict[str, Any]]:
        units = self._units(tokens)
        for position, (label, score) in enumerate(zip(units.labels, units.scores)):
            if self._labels[label] in self._ignored:
                continue
            start, end = tokens.offsets[position]
            yield {
                "entity_group": self._labels[label],
                "score": score,
                "word": self._word(tokens, position),
                "start": start,
                "end": end,
                "index": tokens.first_index + position,
            }

    def _units(self, tokens: Tokens) -> _Units:
        if self._aggregation in ("none", "simple"):
            starts, scores = list(range(len(tokens.ids))), tokens.scores
        else:
            starts = [at for at in range(len(tokens.ids)) if at == 0 or not self._continues(tokens, at)]
            scores = self._of_words(tokens.scores, starts)
        labels = scores.argmax(axis=-1)
        best = np.take_along_axis(scores, labels[:, None], axis=-1)[:, 0]
        return _Units(starts=[*starts, len(tokens.ids)], labels=labels.tolist(), scores=best.tolist())

    def _of_words(self, scores: Scores, starts: Sequence[int]) -> Scores:
        """Scores [words, labels] of the tokens' scores."""
        if self._aggregation == "first":
            return scores[starts]
        if self._aggregation == "average":
            counts = np.diff([*starts, len(scores)]).astype(scores.dtype)
            mean: Scores = np.add.reduceat(scores, starts, axis=0) / counts[:, None]
            return mean
        sureness = scores.max(axis=-1)
        ends = [*starts[1:], len(scores)]
        return scores[[start + int(sureness[start:end].argmax()) for start, end in zip(starts, ends)]]

    def _joined(self, units: _Units) -> Iterator[tuple[int, int]]:
        """First and last of neighbours with the same tag; one that begins an entity never joins the one before."""
        first = 0
        for at in range(1, len(units.labels) + 1):
            if at < len(units.labels):
                label, before = units.labels[at], units.labels[at - 1]
                if not self._begins[label] and self._tags[label] == self._tags[before]:
                    continue
            yield first, at - 1
            first = at

    def _entity(self, tokens: Tokens, units: _Units, first: int, last: int) -> dict[str, Any]:
        words = []
        for unit in range(first, last + 1):
            pieces = [self._word(tokens, at) for at in range(units.starts[unit], units.starts[unit + 1])]
            is_token = self._aggregation == "simple"
            words.append(pieces[0] if is_token else self._tokenizer.convert_tokens_to_string(pieces))
        return {
            "entity_group": self._groups[units.labels[first]],
            "score": float(np.mean(units.scores[first : last + 1])),
            "word": self._tokenizer.convert_tokens_to_string(words),
            "start": tokens.offsets[units.starts[first]][0],
            "end": tokens.offsets[units.starts[last + 1] - 1][1],
        }

    def _word(self, tokens: Tokens, at: int) -> str:
        """A piece as the vocabulary writes it; an unknown one as the text does."""
        if tokens.ids[at] == self._unk_id:
            start, end = tokens.offsets[at]
            return tokens.text[start:end]
        return self._spell(tokens.ids[at])

    def _spell(self, token_id: int) -> str:
        piece = self._spelled.get(token_id)
        if piece is None:
            piece = self._spelled[token_id] = str(self._tokenizer.convert_ids_to_tokens(token_id))
        return piece

    def _continues(self, tokens: Tokens, at: int) -> bool:
        """Whether a token goes on with the word before it; without marks, where no space stands before it."""
        if tokens.ids[at] == self._unk_id:
            return False
        start, end = tokens.offsets[at]
        if self._marks_pieces:
            return len(self._spell(tokens.ids[at])) != end - start
        return start > 0 and " " not in tokens.text[start - 1 : start + 1]
