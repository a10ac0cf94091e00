"""Metrics: quality and costs of sets on data with references.

| question | of sets | of selected components |
|---|---|---|
| does the promise hold? | :func:`set_loss`, :func:`set_coverage` | :func:`component_loss` |
| what does it cost? | ``sets.sizes``, ``sets.n_samples``, :func:`set_outcomes` | ``sets.sizes`` |
| what is it worth? | ``sampler.score`` (Eq. 7) | :func:`component_precision`, `component_recall` |

:func:`normalized_auc` summarises a curve over epsilon, as the paper's tables do.

>>> from sklearn.datasets import load_digits
>>> from sklearn.naive_bayes import GaussianNB
>>> from sklearn.utils import shuffle
>>> from sklearn_clm import ConformalSampler
>>> from sklearn_clm.generators import EstimatorGenerator
>>> from sklearn_clm.metrics import set_coverage
>>> X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
>>> generator = EstimatorGenerator(GaussianNB(var_smoothing=3.0))
>>> sampler = ConformalSampler(generator, k_max=5, epsilon=0.2, random_state=0)
>>> sets = sampler.fit(X[:1000], y[:1000]).predict(X[1000:])
>>> bool(set_coverage(y[1000:], sets) > 0.8), bool(sets.sizes.mean() <= sets.n_samples.mean())
(True, True)

## Parameter searches

``sampler.score`` is minus the objective of Eq. 7, so `GridSearchCV`, `cross_validate` and
`learning_curve` work as with any estimator; :data:`SCORERS` (and :data:`COMPONENT_SCORERS` for a
selector) give all measures at once. A fit that certifies nothing warns, and scores -inf. Draws are
keyed and kept, so a search over `k_max` makes each of them once where the generator stands in a
:class:`sklearn_clm.caching.CachedGenerator`.

>>> from sklearn.model_selection import cross_validate
>>> from sklearn_clm.metrics import SCORERS
>>> scores = cross_validate(sampler, X[:600], y[:600], scoring=SCORERS, cv=2)
>>> sorted(name for name in scores if name.startswith("test_"))[:2]
['test_coverage', 'test_neg_excess']

Search on a part of its own. The budget that looks best on the prompts that then calibrate was
chosen by their noise, and its certificate is too good. With groups, `score` counts all draws of a
group that is null, so that a budget may look best that fails a group: compare the ``groups_`` of
each budget, or fix `k_max`.

## Where steps of a pipeline belong

Steps that learn from references (a selection of features, say) must not stand before the sampler:
they would have seen what calibrates. They belong to the estimator inside the generator, which is
trained on prompts of its own; so does a vectoriser, since prompts are texts and not its counts.

``cross_val_predict`` joins the predictions of its folds to an array of shape (n, `k_max`): each row
holds the responses of a set, padded with None (numbers with NaN), without scores or guarantees. For
these, predict with the estimators of ``cross_validate(..., return_estimator=True)``.
"""

from sklearn_clm.metrics._components import (
    COMPONENT_SCORERS,
    component_loss,
    component_precision,
    component_recall,
)
from sklearn_clm.metrics._sets import SCORERS, normalized_auc, set_coverage, set_loss, set_outcomes

__all__ = [
    "COMPONENT_SCORERS",
    "SCORERS",
    "component_loss",
    "component_precision",
    "component_recall",
    "normalized_auc",
    "set_coverage",
    "set_loss",
    "set_outcomes",
]
