"""Every kind of claim says what holds, for whom, and with which confidence."""

from dataclasses import replace

import pytest

from sklearn_clm.calibration import Claim
from sklearn_clm.calibration.claim import (
    NO_GUARANTEE,
    nothing_passed,
    reasons_of_nulls,
    sentence_of_nulls,
    too_few,
)

USUAL = Claim(level=0.1, delta=0.05)


@pytest.mark.parametrize(
    ("changes", "words", "remarks"),
    [
        (
            {},
            [
                "With confidence 95 % over the calibration prompts, the set for a new prompt from "
                "the same distribution holds an admissible response with probability at least 90 %."
            ],
            [],
        ),
        ({"about": "components"}, ["all components selected for a new prompt", "least 90 %"], []),
        (
            {"guarantee": "marginal"},
            ["The set for a new prompt", "on average over calibration prompts and new prompts"],
            ["guaranteed on average"],
        ),
        (
            {"group": "French", "within_groups": "each"},
            ["for a new prompt of group 'French' from the same distribution"],
            ["group 'French'"],
        ),
        (
            {"within_groups": "all"},
            ["For all certified groups at once: with", "of the group from"],
            [],
        ),
        (
            {"shifted": True, "approximate": True},
            ["distributed as the weights describe"],
            ["approximate: weights are estimated"],
        ),
        ({"losses": {"cost": 0.2}}, ["an admissible response", "each loss below"], []),
        ({"unknown": ("generator",)}, ["an admissible response"], ["provenance unknown"]),
    ],
)
def test_what_is_claimed(changes, words, remarks):
    claim = replace(USUAL, **changes)
    assert claim.holds
    assert claim.why_null() is None
    sentence = claim.sentence()
    assert all(some in sentence for some in words)
    assert ("confidence 95 %" in sentence) == (claim.guarantee == "pac")
    assert claim.remarks() == remarks


@pytest.mark.parametrize(
    ("changes", "who"),
    [
        ({}, "Calibration"),
        ({"about": "components"}, "Calibration of components"),
        ({"group": "a"}, "Group 'a'"),
    ],
)
def test_a_null_claims_nothing(changes, who):
    claim = replace(USUAL, **changes).nullified("there are too few.")
    assert not claim.holds
    assert claim.why_null() == f"{who} is null: there are too few."
    assert "certified" in claim.sentence()
    assert "confidence" not in claim.sentence()
    assert claim.remarks() == [*(["group 'a'"] if claim.group else []), NO_GUARANTEE]
    # of one set whose rule is certified something else is true
    alone = replace(USUAL, **changes).withdrawn("it trained the model.")
    assert alone.sentence() == "Nothing is guaranteed of this set: it trained the model."
    assert (alone.holds, alone.remarks()) == (False, claim.remarks())


def test_what_follows_from_several_nulls():
    claims = [replace(USUAL, group=group, about="answers") for group in "abc"]
    assert sentence_of_nulls(claims) == ""
    claims[1] = claims[1].nullified("there are too few.")
    assert sentence_of_nulls(claims) == claims[1].sentence()
    assert "for group 'b', so predict escalates each of its prompts" in claims[1].sentence()
    claims[2] = claims[2].nullified("there are too few.")
    words = "for these groups, so predict escalates each of their prompts"
    assert words in sentence_of_nulls(claims)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"shifted": True, "approximate": True}, ["approximate"]),
        ({"unknown": ("generator", "seed")}, ["generator, seed"]),
    ],
)
def test_conditions(changes, words):
    conditions = replace(USUAL, **changes).conditions()
    assert len(conditions) == len(words)
    assert all(word in condition for word, condition in zip(words, conditions))


@pytest.mark.parametrize(
    ("smallest", "exact", "words"),
    [
        (0.123401, True, "smallest epsilon that would have worked is 0.1235"),
        (1.0, True, "No epsilon would have worked."),
        (0.5, False, "would have worked is at least 0.5"),
        (float("nan"), True, "with 40 calibration prompts."),
    ],
)
def test_why_nothing_passed(smallest, exact, words):
    text = nothing_passed(USUAL, 40, "configuration", smallest, exact=exact, advice="Look.")
    assert text.startswith("no configuration is certified at epsilon=0.1, delta=0.05 with 40")
    assert words in text
    assert text.endswith("Look.")
    on_average = nothing_passed(replace(USUAL, guarantee="marginal"), 40, "exit level", 0.5)
    assert "delta" not in on_average


def test_too_few_prompts():
    text = too_few(7, USUAL, searched=1 / 3)
    assert "with fewer than 29." in text
    assert "at least 43 prompts" in text
    assert "on average" in too_few(7, replace(USUAL, guarantee="marginal"))


def test_nulls_of_many():
    claims = [replace(USUAL, group=g).nullified("x") for g in range(7)]
    assert reasons_of_nulls([USUAL]) is None
    assert reasons_of_nulls([USUAL, claims[0]]) == "Group 0 is null: x"
    assert reasons_of_nulls([USUAL, *claims]).endswith("So are 2 more, 7 of 8 in all.")
