"""The scorers of this package by name; a helper process imports them once for all its work."""

from collections.abc import Mapping

from app.scorers.base import Scorer
from app.scorers.bertscore import BertScore
from app.scorers.callback import Callback
from app.scorers.choice import Choice
from app.scorers.differential import Differential
from app.scorers.embedding import Embedding
from app.scorers.exact import Exact, Includes
from app.scorers.judge import Judge
from app.scorers.numeric import Closeness, Numeric
from app.scorers.overlap import METRICS, SpanF1
from app.scorers.pattern import Extract, Pattern
from app.scorers.readability import Readability

SCORERS: Mapping[str, type[Scorer]] = {
    **METRICS,
    "bertscore": BertScore,
    "callback": Callback,
    "choice": Choice,
    "closeness": Closeness,
    "differential": Differential,
    "embedding": Embedding,
    "exact": Exact,
    "extract": Extract,
    "includes": Includes,
    "judge": Judge,
    "numeric": Numeric,
    "pattern": Pattern,
    "readability": Readability,
    "span_f1": SpanF1,
}
