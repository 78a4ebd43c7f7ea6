"""How each default was chosen: one module a choice, each run by its name.

python -m gemjax.evaluation.tuning.rules        the protection rules, by cross-validation over trajectories
python -m gemjax.evaluation.tuning.frontier     what the settings of the compressor cost and keep
python -m gemjax.evaluation.tuning.relevance    weights of the distiller's order, leaving conversations out
python -m gemjax.evaluation.tuning.unasked      what a selection without a question keeps
gemjax eval locomo --tune                       the memory's settings (`retrieval`), leaving conversations out
"""

from gemjax.evaluation.tuning.retrieval import OBJECTIVE, cross_validate, default_grid

__all__ = ["OBJECTIVE", "cross_validate", "default_grid"]
