"""Guarantees within groups of prompts."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import StrOptions

from sklearn_clm.calibration.checks import noting_arguments
from sklearn_clm.calibration.rows import Part, check_groups, parts_to_test
from sklearn_clm.generators.draws import Prompt
from sklearn_clm.generators.identity import score_fingerprint
from sklearn_clm.generators.prompts import CheckedPrompts


class Groups(BaseEstimator):
    """A guarantee within each group of prompts.

    One path is searched on the optimisation part of all groups, and tested for each group on its
    own calibration prompts. The group must depend on the prompt alone. ``predict`` refuses a group
    without calibration prompts.

    Parameters
    ----------
    by : callable, default=None
        ``by(prompt) -> group``. None: groups are given, to ``fit(X, y, groups=...)`` and
        ``predict(X, groups=...)``, as text, numbers or other hashable values.
    guarantee : {"each", "all"}, default="each"
        "each": the claim for any one group holds with probability 1 - delta over the calibration
        prompts. "all": the claims for all groups hold together with it; each is tested at delta
        divided by their number.

    Examples
    --------
    >>> from sklearn_clm import ConformalSampler
    >>> from sklearn_clm.policies import Groups
    >>> sampler = ConformalSampler(groups=Groups(by=lambda prompt: len(prompt) > 100))
    >>> sampler.get_params()["groups__guarantee"]
    'each'
    """

    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "by": [None, callable],
        "guarantee": [StrOptions({"each", "all"})],
    }

    def __init__(
        self,
        by: Callable[[Prompt], Hashable] | None = None,
        *,
        guarantee: Literal["each", "all"] = "each",
    ) -> None:
        self.by = by
        self.guarantee = guarantee

    def parts(
        self,
        searched: np.ndarray,
        tested: np.ndarray,
        delta: float,
        groups: Sequence[Hashable] | None,
    ) -> list[Part]:
        """The tested parts: each group, and last all prompts."""
        return parts_to_test(searched, tested, delta, groups, together=self.guarantee == "all")

    def level(self, delta: float, groups: Sequence[Hashable] | None, rows: np.ndarray) -> float:
        """The level at which each group is tested.

        The prompts at `rows` calibrate, and `groups` are those of all prompts.
        """
        if groups is None or self.guarantee == "each":
            return delta
        # the union bound over the groups that calibrate
        n_groups = len({groups[i] for i in rows})
        return delta / n_groups


def given_or_computed(name: str, by: str, values: object, computed: object) -> object:
    """Values that are either given or computed, not both."""
    # of two sources either could be a mistake, and nothing tells which
    if (values is None) == (computed is None):
        raise ValueError(
            f"{name} must be passed, {name}= with one for each prompt, or computed by {by} from "
            f"prompts, got {'neither' if values is None else 'both'} instead."
        )
    return computed if values is None else values


def parameters_of_groups(options: Groups | None) -> dict[str, Any]:
    """Parameters of groups that a file must agree with.

    Without groups the guarantee is None: it is taken over from the file, whatever that says.
    """
    if options is None:
        return {"groups": None, "groups__by": "none"}
    # a file holds no function: by its fingerprint another one is refused
    by = "none" if options.by is None else score_fingerprint(options.by)
    return {"groups": options.guarantee, "groups__by": by}


def groups_of(
    options: Groups | None, groups: object, n_prompts: int, prompts: CheckedPrompts | None
) -> list[Hashable] | None:
    """The group of each prompt, given or computed, or None.

    The prompts are None if they are not known.
    """
    if groups is None and options is None:
        return None
    # data without prompts (arrays, a file) need groups that are given
    by = None if options is None else options.by
    computed = None
    if by is not None and prompts is not None:
        computed = []
        for prompt in prompts:
            with noting_arguments("groups", prompt):
                computed.append(by(prompt))
    names = given_or_computed("groups", "Groups(by=function)", groups, computed)
    return check_groups(names, n_prompts)
