"""Which coder does which task."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from setpoint.domain.task import Task
from setpoint.runners.encoder.tasks.base import Context, TaskCoder
from setpoint.runners.encoder.tasks.embedding import FeatureExtraction
from setpoint.runners.encoder.tasks.ranking import TextRanking
from setpoint.runners.encoder.tasks.text_classification import TextClassification
from setpoint.runners.encoder.tasks.token_classification import TokenClassification
from setpoint.runners.encoder.tasks.zero_shot import ZeroShotClassification

_CODERS: Mapping[Task, Callable[[Context], TaskCoder]] = {
    Task.TEXT_CLASSIFICATION: TextClassification,
    Task.ZERO_SHOT_CLASSIFICATION: ZeroShotClassification,
    Task.TOKEN_CLASSIFICATION: TokenClassification,
    Task.FEATURE_EXTRACTION: FeatureExtraction,
    Task.TEXT_RANKING: TextRanking,
}


def make_coder(context: Context) -> TaskCoder:
    """The coder of a model's task. Raises UsageError or ModelError where model and options do not go together."""
    return _CODERS[context.options.task](context)
