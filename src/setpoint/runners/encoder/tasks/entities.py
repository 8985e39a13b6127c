"""From scored tokens to entities: the four ways of transformers' token-classification pipeline, and none at all.

none      every token by itself                     simple   neighbours of one kind joined, B- begins anew
first     a word gets the label of its first token  average  a word gets the label of the mean of its tokens' scores
max       a word gets the label of its surest token
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Token:
    """One token: its scores [labels], its characters in the text, its index in the sequence."""

    id: int
    scores: npt.NDArray[Any]
    start: int
    end: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Unit:
    """A token or a word with the label it got."""

    label: str
    score: float
    word: str
    start: int
    end: int
    index: int


class EntityReader:
    """Aggregates the tokens of one text at a time."""

    def __init__(self, *, tokenizer: Any, labels: Sequence[str], aggregation: str, ignored: frozenset[str]) -> None:
        self._tokenizer = tokenizer
        self._labels = labels
        self._aggregation = aggregation
        self._ignored = ignored
        # Only a tokenizer that marks the pieces within a word knows where words begin.
        self._marks_pieces = bool(getattr(tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None))

    def read(self, text: str, tokens: Sequence[Token]) -> list[dict[str, Any]]:
        """Entities in order: `entity_group` (the label of the token under "none"), score, word, start, end.

        Under "none" each has the token's `index` in the sequence as well.
        """
        if self._aggregation in ("none", "simple"):
            units = [self._unit([token], [self._word(token, text)]) for token in tokens]
        else:
            units = [
                self._unit(word, [self._word(token, text) for token in word]) for word in self._words(text, tokens)
            ]
        if self._aggregation == "none":
            return [{**_as_entity(unit), "index": unit.index} for unit in units if unit.label not in self._ignored]
        groups = (self._join(group) for group in _groups(units))
        return [_as_entity(group) for group in groups if group.label not in self._ignored]

    def _word(self, token: Token, text: str) -> str:
        """The piece as the vocabulary writes it; an unknown one as the text does."""
        if token.id == self._tokenizer.unk_token_id:
            return text[token.start : token.end]
        return str(self._tokenizer.convert_ids_to_tokens(token.id))

    def _words(self, text: str, tokens: Sequence[Token]) -> Iterable[list[Token]]:
        """Tokens grouped into words."""
        word: list[Token] = []
        for token in tokens:
            if word and not self._continues(token, text):
                yield word
                word = []
            word.append(token)
        if word:
            yield word

    def _continues(self, token: Token, text: str) -> bool:
        """Whether a token goes on with the word before it; without marks, where no space stands before it."""
        if token.id == self._tokenizer.unk_token_id:
            return False
        if self._marks_pieces:
            return len(self._tokenizer.convert_ids_to_tokens(token.id)) != token.end - token.start
        return token.start > 0 and " " not in text[token.start - 1 : token.start + 1]

    def _unit(self, tokens: Sequence[Token], words: Sequence[str]) -> _Unit:
        scores = self._scores(tokens)
        best = int(scores.argmax())
        alone = self._aggregation in ("none", "simple")
        return _Unit(
            label=self._labels[best],
            score=float(scores[best]),
            word=words[0] if alone else self._tokenizer.convert_tokens_to_string(list(words)),
            start=tokens[0].start,
            end=tokens[-1].end,
            index=tokens[0].index,
        )

    def _scores(self, tokens: Sequence[Token]) -> npt.NDArray[Any]:
        if self._aggregation == "max":
            return max(tokens, key=lambda token: float(token.scores.max())).scores
        if self._aggregation == "average":
            mean: npt.NDArray[Any] = np.mean([token.scores for token in tokens], axis=0)
            return mean
        return tokens[0].scores

    def _join(self, group: Sequence[_Unit]) -> _Unit:
        return _Unit(
            label=group[0].label.split("-", 1)[-1],
            score=float(np.mean([np.float32(unit.score) for unit in group])),
            word=self._tokenizer.convert_tokens_to_string([unit.word for unit in group]),
            start=group[0].start,
            end=group[-1].end,
            index=group[0].index,
        )


def _groups(units: Sequence[_Unit]) -> Iterable[list[_Unit]]:
    """Neighbours with the same tag; one that begins an entity (B-) never joins the one before."""
    group: list[_Unit] = []
    for unit in units:
        begins, tag = _tag(unit.label)
        if group and (begins or tag != _tag(group[-1].label)[1]):
            yield group
            group = []
        group.append(unit)
    if group:
        yield group


def _tag(label: str) -> tuple[bool, str]:
    """Whether a label begins an entity, and its tag without B- or I-."""
    if label[:2] in ("B-", "I-"):
        return label[0] == "B", label[2:]
    return False, label


def _as_entity(unit: _Unit) -> dict[str, Any]:
    return {
        "entity_group": unit.label,
        "score": unit.score,
        "word": unit.word,
        "start": unit.start,
        "end": unit.end,
    }
