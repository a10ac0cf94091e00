"""Warnings and errors that callers may want to catch by name."""

__all__ = ["NullCalibrationError", "NullCalibrationWarning"]


class NullCalibrationWarning(UserWarning):
    """No configuration could be certified, so what is returned carries no guarantee.

    Issued by ``fit`` and ``calibrate`` of both estimators when Learn Then Test rejects no
    hypothesis (section 3 of the paper: lambda is then *null*).

    Examples
    --------
    >>> import warnings
    >>> from sklearn_clm import NullCalibrationWarning
    >>> warnings.simplefilter("error", NullCalibrationWarning)  # stop at the first null
    >>> warnings.simplefilter("default", NullCalibrationWarning)
    """


class NullCalibrationError(ValueError):
    """Raised in place of :class:`NullCalibrationWarning` where ``on_null="raise"``.

    Examples
    --------
    >>> from sklearn_clm import NullCalibrationError
    >>> issubclass(NullCalibrationError, ValueError)
    True
    """
