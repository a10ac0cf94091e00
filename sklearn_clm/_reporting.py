"""The method ``report`` of a calibrated sampler."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn_clm.inspection._report import CalibrationReport

__all__ = ["ReportMixin"]


class ReportMixin:
    """Explains what calibration found."""

    def report(self) -> "CalibrationReport":
        """Explain the calibration: the guarantee in words, and the numbers behind it.

        Returns
        -------
        CalibrationReport
            Guarantee, warnings, split, thresholds, tests along the frontier, achievable band,
            expected size and draws, and what more prompts would gain; shown as HTML in a
            notebook, printed as Markdown, saved by ``save(path)``.

        Raises
        ------
        NotFittedError
            If there is no calibration data: before ``fit`` or ``calibrate``, and after
            ``load_calibration``.

        Examples
        --------
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from sklearn_clm import ConformalSampler
        >>> from sklearn_clm.generators import EstimatorGenerator
        >>> X, y = load_digits(return_X_y=True)
        >>> generator = EstimatorGenerator(GaussianNB(var_smoothing=0.1))
        >>> sampler = ConformalSampler(generator, k_max=5, epsilon=0.2, random_state=0).fit(X, y)
        >>> print(sampler.report().to_markdown()[:104])
        # Calibration report
        <BLANKLINE>
        ## Guarantee
        <BLANKLINE>
        With confidence 95 % over the calibration prompts, the set for a new
        """
        from sklearn_clm.inspection._report import CalibrationReport

        return CalibrationReport.from_estimator(self)
