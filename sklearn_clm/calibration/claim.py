"""Claims: the guarantee of a rule, or why none holds.

Sets, reports, monitors and files carry a claim and quote it.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict

import numpy as np

from sklearn_clm.calibration._binomial import marginal_prompts_needed, prompts_needed
from sklearn_clm.calibration.risk import Risk, risk_about
from sklearn_clm.calibration.rows import describe_repetitions, size_that_leaves
from sklearn_clm.calibration.words import percent, rounded_up

NO_GUARANTEE = "no guarantee"
MOST_NAMED = 5  # null groups that a message names in full
_AVERAGE = (
    "This is an average over new {unit}s, not a statement about any one of them, and it is about "
    "{scope} that were calibrated."
)


class Promise(TypedDict):
    """What is promised, and at which level."""

    level: float
    guarantee: Literal["pac", "marginal"]
    about: str


@dataclass(frozen=True)
class Claim:
    """What may be said of the sets of a rule.

    Parameters
    ----------
    level : float
        The tolerated risk: epsilon of responses, alpha of components and of answers.
    delta : float
        Level of the tests; it has no part in a marginal guarantee.
    about : str
        The name of the risk, which :meth:`sentence` puts in words: by default "responses", where a
        set holds an admissible one; "components", of which a set holds only admissible ones (but
        for `max_wrong`); "answers"; and so on. Or that of a risk of yours.
    guarantee : {"pac", "marginal"}
        With confidence 1 - delta over the calibration prompts, or on average over calibration and
        new prompts together.
    group, within_groups
        The group within which it holds, None for all prompts together; and where there is one,
        whether "each" claim holds with confidence 1 - delta or "all" do.
    shifted, approximate, losses : bool, bool, dict
        Whether prompts are distributed as weights describe, and whether these were estimated; and
        levels of other losses that are kept with the same confidence, by name.
    unknown, judge, audit, answered
        With what the data were collected as far as that is not known, by name; who gave the
        verdicts, None where a judge of the package did; what the people judged who audited the
        judge, as a sentence; and the share of the calibration prompts that were answered.
    repeated : str, default=None
        What it means that many of the prompts repeat that tested it, or taught what it is about;
        None where few do, or where prompts are not known.
    max_wrong : int, default=0
        How many components of a selection may be inadmissible.
    null : str, default=None
        Why nothing is claimed; None where something is.
    of_one_set : bool, default=False
        Whether nothing is claimed of one set alone, whose rule is certified.

    Examples
    --------
    >>> from sklearn_clm.calibration import Claim
    >>> claim = Claim(level=0.1, delta=0.05, group="French")
    >>> claim.holds, claim.remarks()
    (True, ["group 'French'"])
    """

    level: float
    delta: float
    about: str = "responses"
    guarantee: Literal["pac", "marginal"] = "pac"
    group: Hashable | None = None
    within_groups: Literal["each", "all"] | None = None
    shifted: bool = False
    approximate: bool = False
    losses: Mapping[str, float] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    judge: str | None = None
    audit: str | None = None
    answered: float | None = None
    repeated: str | None = None
    max_wrong: int = 0
    null: str | None = None
    of_one_set: bool = False

    @property
    def holds(self) -> bool:
        """Whether the claim is no null."""
        return self.null is None

    @property
    def risk(self) -> Risk:
        """What is an error, who counts, and words."""
        return risk_about(self.about).of_claim(self.max_wrong)

    @property
    def level_name(self) -> str:
        """Name of the parameter that gave the level."""
        return self.risk.level_name

    @property
    def fewest_prompts(self) -> int:
        """Smallest number of calibration prompts that can certify anything."""
        if self.guarantee == "marginal":
            return marginal_prompts_needed(self.level)
        return prompts_needed(self.level, self.delta)

    def tested_on(
        self,
        rows: np.ndarray,
        digests: np.ndarray | None,
        untested: np.ndarray,
        left_out: np.ndarray,
    ) -> "Claim":
        """This claim, tested on some rows, with others that taught.

        `digests` are those of all prompts, if they are known, and `left_out` those of the prompts
        that trained a generator or a score.
        """
        if digests is None:
            return replace(self, repeated=None)
        # every promise has to hold, and fewer rows err at the lowest level
        lowest = min([self.level, *self.losses.values()])
        taught = np.concatenate((digests[untested], left_out))
        return replace(self, repeated=describe_repetitions(digests[rows], lowest, taught))

    def nullified(self, why: str) -> "Claim":
        """This claim as a null, with its reason."""
        return replace(self, null=why)

    def withdrawn(self, why: str) -> "Claim":
        """This claim as a null of one set."""
        return replace(self, null=why, of_one_set=True)

    def advised(self, advice: str) -> "Claim":
        """This claim, with advice where it is a null."""
        return self if self.null is None else self.nullified(f"{self.null} {advice}".rstrip())

    def why_null(self) -> str | None:
        """The reason for a null, as a sentence, or None."""
        if self.null is None:
            return None
        subject = self.risk.calibrated if self.group is None else f"Group {self.group!r}"
        return f"{subject} is null: {self.null} {self.repeated or ''}".rstrip()

    def sentence(self) -> str:
        """The guarantee in words."""
        if not self.holds:
            return self._sentence_of_null()
        who = self._who()
        promise = self.risk.promise.format(who=who)
        if self.audit is not None:
            promise += ", by people's standard,"
        how_much = self.risk.how_much.format(share=percent(1 - self.level), level=f"{self.level:g}")
        text = f"{promise} {how_much}"
        if self.guarantee == "marginal":
            together = "on average over calibration prompts and new prompts together"
            # the mean is over all calibrations: near the floor those that hold are the lucky ones
            nulls = "calibrations that certify nothing count as right"
            text = f"{text[0].upper()}{text[1:]}, {together} (marginal guarantee; {nulls})"
        else:
            confidence = percent(1 - self.delta)
            text = f"With confidence {confidence} over the {self.risk.tested_on}, {text}"
        # of all groups together: which of their claims hold at once
        if self.within_groups is not None and self.group is None:
            each = self.within_groups == "each"
            how = "each certified group on its own" if each else "all certified groups at once"
            text = f"For {how}: {text[0].lower()}{text[1:]}"
        average = _AVERAGE.format(unit=self.risk.unit, scope=self.risk.scope)
        text += f". {average}"
        if self.answered is not None and self.group is None:
            text += f" About {percent(self.answered)} of the prompts are {self.risk.answered}."
        if self.losses:
            text += (
                " With it, and with the same confidence for both, the mean of each loss below is "
                "at most its level."
            )
        return text

    def _sentence_of_null(self) -> str:
        if self.of_one_set:
            return f"Nothing is guaranteed of this set: {self.null}"
        unit = self.risk.unit
        if self.group is None:
            return self.risk.null.format(of="", each=f"each {unit}")
        return self.risk.null.format(of=f" for group {self.group!r}", each=f"each of its {unit}s")

    def _who(self) -> str:
        who = f"a new {self.risk.unit}"
        if self.group is not None:
            who += f" of group {self.group!r}"
        elif self.within_groups is not None:
            who += " of the group"
        if self.shifted:
            return f"{who}, distributed as the weights describe,"
        return f"{who} from the same distribution"

    def conditions(self) -> tuple[str, ...]:
        """Conditions from audit, repetitions, weights and provenance, in sentences."""
        texts = [text for text in (self.audit, self.risk.condition, self.repeated) if text]
        texts += self.named_judge()
        if self.approximate:
            texts.append("The guarantee is approximate: weights are estimated.")
        if self.unknown == ("admission",):
            texts.append(
                "The data do not say who judged them (provenance unknown): the guarantee is about "
                "what that judge calls right."
            )
        elif self.unknown:
            texts.append(
                f"The data do not say with which {', '.join(self.unknown)} they were collected "
                "(provenance unknown): the guarantee holds only if these are the estimator's own."
            )
        return tuple(texts)

    def named_judge(self) -> list[str]:
        """Who said what is admissible, in a sentence, if named."""
        return [] if self.judge is None else [f"Right is what {self.judge} judged to be right."]

    def remarks(self) -> list[str]:
        """Short remarks for one set; empty for the usual guarantee."""
        remarks = self.common_remarks() if self.holds else [NO_GUARANTEE]
        if self.group is not None:
            remarks.insert(0, f"group {self.group!r}")
        return remarks

    def common_remarks(self) -> list[str]:
        """The remarks that hold for all groups."""
        remarks = {
            "guaranteed on average": self.guarantee == "marginal",
            "approximate: weights are estimated": self.approximate,
            "tested on repeated prompts": self.repeated is not None,
            "provenance unknown": bool(self.unknown),
        }
        return [remark for remark, applies in remarks.items() if applies and self.holds]


def too_few(n: int, claim: Claim, searched: float = 0.0) -> str:
    """Why n prompts are too few, and how many suffice.

    `searched` is the share of all prompts that is spent on a search.
    """
    at = f"{claim.level_name}={claim.level:g}"
    needed = claim.fewest_prompts
    reason = f"no p-value can reach delta={claim.delta:g} at {at}"
    if claim.guarantee == "marginal":
        reason = f"no level is certified on average at {at}"
    text = f"the number of {claim.risk.tested_on} is {n}, and {reason} with fewer than {needed}."
    if searched:
        in_all = size_that_leaves(needed, searched)
        text += f" With this split at least {in_all} prompts are needed, even without an error."
    return text


def refuse_too_few(n: int, claim: Claim, searched: float = 0.0) -> None:
    """Refuse too few prompts to certify anything."""
    if n < claim.fewest_prompts:
        raise ValueError(f"data must hold more prompts: {too_few(n, claim, searched)}")


def nothing_passed(
    claim: Claim, n: int, what: str, smallest: float, *, exact: bool = True, advice: str = ""
) -> str:
    """Why no test passed, and which level would have.

    That level is NaN where it is not known, and a lower bound where it is not `exact`.
    """
    delta = "" if claim.guarantee == "marginal" else f", delta={claim.delta:g}"
    text = (
        f"no {what} is certified at {claim.level_name}={claim.level:g}{delta} with {n} "
        f"{claim.risk.tested_on}."
    )
    if not math.isnan(smallest):
        rounded = rounded_up(smallest)
        bound = "" if exact else "at least "
        worked = f"The smallest {claim.level_name} that would have worked is {bound}{rounded:g}."
        text += f" {worked}" if rounded < 1 else f" No {claim.level_name} would have worked."
    return f"{text} {advice}".rstrip()


def reasons_of_nulls(claims: Iterable[Claim]) -> str | None:
    """Reasons of null claims, a line each; None without nulls."""
    whys = [claim.why_null() for claim in claims]
    # hundreds of groups would bury the message
    nulls = [why for why in whys if why is not None]
    lines = nulls[:MOST_NAMED]
    n_more = len(nulls) - len(lines)
    if n_more:
        lines.append(f"So are {n_more} more, {len(nulls)} of {len(whys)} in all.")
    return "\n".join(lines) or None


def sentence_of_nulls(claims: Iterable[Claim]) -> str:
    """What follows from null claims; "" without nulls."""
    nulls = [claim for claim in claims if not claim.holds]
    if len(nulls) < 2:
        return "".join(claim.sentence() for claim in nulls)
    risk = nulls[0].risk
    return risk.null.format(of=" for these groups", each=f"each of their {risk.unit}s")


def repetitions_of(claims: Iterable[Claim]) -> str | None:
    """What repeated prompts mean for claims of groups, or None."""
    concerned = [claim for claim in claims if claim.repeated is not None]
    texts = [f"Group {claim.group!r}: {claim.repeated}" for claim in concerned[:MOST_NAMED]]
    if n_more := len(concerned) - len(texts):
        texts.append(f"So do tested prompts of {n_more} more groups.")
    return " ".join(texts) or None
