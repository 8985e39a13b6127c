"""Setpoint from Python: `load` a model once, call it with anything that holds texts.

    classify = setpoint.load("text-classification", "./my-classifier")
    classify(["works well", "crashes"])                   a list gives a list
    for answer in classify(row["text"] for row in rows):  an iterable gives an iterator, in input order
    embed = setpoint.load("feature-extraction", "sentence-transformers/all-MiniLM-L6-v2")
    embed.encode(["a text"])                              as sentence-transformers

Answers have the shapes of transformers' pipelines. A row without an answer is None, and a RowsFailedWarning says why.
"""

from setpoint.api.failures import RowsFailedWarning
from setpoint.api.scorer import Scorer, load

__all__ = ["RowsFailedWarning", "Scorer", "load"]
