"""What a loaded model can take: longest input, segments, and an id for padding."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from setpoint.errors import ModelError, UsageError
from setpoint.runners.encoder.options import EncoderOptions

_NO_LIMIT = 1_000_000  # transformers writes about 1e30 for a tokenizer that does not know its limit


def find_max_length(
    transformer: nn.Module, tokenizer: Any, config: Any, of_folder: int | None, options: EncoderOptions
) -> int:
    """The longest sequence in tokens: the user's, the sentence-transformers folder's, or the tokenizer's.

    The user's may exceed the folder's but not what the positions of the model allow. Raises UsageError for a length
    that the model cannot take or that leaves no room for text, ModelError where nobody names one.
    """
    limit = position_limit(transformer, config)
    least: int = tokenizer.num_special_tokens_to_add(pair=False) + 1
    if options.max_length is not None:
        if limit is not None and options.max_length > limit:
            raise UsageError(f"max_length {options.max_length} is more than the model's {limit} positions")
        if options.max_length < least:
            raise UsageError(f"max_length {options.max_length} leaves no room for text; it must be at least {least}")
        return options.max_length
    wanted = of_folder if of_folder is not None else tokenizer.model_max_length
    known = [length for length in (wanted, limit) if length is not None and 0 < length < _NO_LIMIT]
    if not known:
        raise ModelError(f"model {options.model!r} does not say how long its input may be; give max_length")
    return max(int(min(known)), least)


def position_limit(transformer: nn.Module, config: Any) -> int | None:
    """How many positions the model has, or None where it has no limit of its own.

    RoBERTa and its kin count positions from `padding_idx + 1`, so their tables hold fewer than they have rows.
    """
    for name, module in transformer.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1
    size = getattr(config, "max_position_embeddings", None)
    return size if isinstance(size, int) and size > 0 else None


def uses_type_ids(transformer: nn.Module, tokenizer: Any, config: Any) -> bool:
    """Whether the model tells segments apart: its tokenizer gives them and its forward takes them."""
    takes = "token_type_ids" in inspect.signature(transformer.forward).parameters
    several = getattr(config, "type_vocab_size", 2) != 1
    return takes and several and "token_type_ids" in tokenizer.model_input_names


def give_pad_token(tokenizer: Any, config: Any) -> None:
    """See to it that tokenizer and config agree on an id for padding, which the mask hides.

    Classifiers over decoders find the last token of a text as the last that is not padding, so where the model has no
    padding token of its own the substitute must not be the token that texts end with.
    """
    if tokenizer.pad_token_id is None:
        ids = tokenizer("a")["input_ids"]
        ending = ids[-1] if ids else None
        own = getattr(config, "pad_token_id", None)
        choices = [own, tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id, 0]
        pad = next(choice for choice in choices if choice is not None and (choice != ending or choice == 0))
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
    for part in {id(each): each for each in (config, config.get_text_config())}.values():
        if getattr(part, "pad_token_id", None) is None:
            part.pad_token_id = tokenizer.pad_token_id
