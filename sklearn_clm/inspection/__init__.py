"""Inspection: reports and figures of calibrations.

| class | what it shows |
|---|---|
| :class:`CalibrationReport` | the guarantee in words, thresholds, what to expect, pictures |
| :class:`FrontierDisplay` | which configurations were tested, and where the tests stopped |
| :class:`AchievableBandDisplay` | errors of the first k draws: which epsilon, which K |
| :class:`RiskCurveDisplay` | loss and costs against epsilon or alpha, over random splits |
| :class:`TradeOffDisplay` | prompts answered, or the price of a cascade, at other levels |
| :class:`RiskMonitorDisplay` | the watch on the risk in use |

Reports are of samplers and of selectors. In a notebook they are HTML with pictures, in print
Markdown, and ``report.save("report.html")`` writes a file:

>>> from sklearn.datasets import load_digits
>>> from sklearn.naive_bayes import GaussianNB
>>> from sklearn.utils import shuffle
>>> from sklearn_clm import ConformalSampler
>>> from sklearn_clm.generators import EstimatorGenerator
>>> from sklearn_clm.inspection import CalibrationReport
>>> X, y = shuffle(*load_digits(return_X_y=True), random_state=0)
>>> generator = EstimatorGenerator(GaussianNB(var_smoothing=3.0))
>>> sampler = ConformalSampler(generator, k_max=5, epsilon=0.2, random_state=0).fit(X, y)
>>> report = CalibrationReport.from_estimator(sampler)
>>> [section.heading for section in report.sections][:3]
['Guarantee', 'What to expect of predict', 'Were these prompts enough?']

Figures need matplotlib (``pip install "sklearn-clm[plot]"``) and follow scikit-learn's displays:
``FrontierDisplay.from_estimator(sampler)`` draws, ``.figure_`` and ``.ax_`` (``.axes_`` of several)
are what was drawn.
"""

import sklearn_clm.evaluation  # noqa: F401 - whole, before parts of it
from sklearn_clm.inspection._band import AchievableBandDisplay
from sklearn_clm.inspection._curves import RiskCurveDisplay
from sklearn_clm.inspection._frontier import FrontierDisplay
from sklearn_clm.inspection._monitor import RiskMonitorDisplay
from sklearn_clm.inspection._report import CalibrationReport
from sklearn_clm.inspection._sections import Section
from sklearn_clm.inspection._tiers import TradeOffDisplay

__all__ = [
    "AchievableBandDisplay",
    "CalibrationReport",
    "FrontierDisplay",
    "RiskCurveDisplay",
    "RiskMonitorDisplay",
    "Section",
    "TradeOffDisplay",
]
