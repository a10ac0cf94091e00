"""Escalated prompts come back with the answers of others."""

import numpy as np
import pandas as pd
import pytest

from sklearn_clm import PredictionSet, PredictionSets
from sklearn_clm.caching import VerdictsWanted
from sklearn_clm.calibration import Claim
from sklearn_clm.generators import Generation
from sklearn_clm.judging import hand_over

CLAIM = Claim(0.1, 0.05, about="answers")
DRAWN = ("a", "b", "b")


def sets_of(prompts, answered):
    draws = tuple(map(Generation, DRAWN))
    sets = [
        PredictionSet(prompt, ("a",) * own, [0.9] * own, [0] * own, 3, 0.5, own, True, draws, CLAIM)
        for prompt, own in zip(prompts, answered)
    ]
    return PredictionSets(sets, 3, index=pd.Index([10 * i for i in range(len(sets))]))


SETS = sets_of(["q0", "q1", "q2", "q1"], [True, False, False, False])


def test_a_function_answers_what_is_escalated():
    frame = hand_over(SETS, lambda prompt: None if prompt == "q2" else f"about {prompt}")
    assert frame.index.tolist() == [0, 10, 20, 30]
    assert frame["response"].tolist() == ["a", "about q1", None, "about q1"]
    assert frame["by"].tolist() == ["model", *["handover"] * 3]


def test_a_file_is_written_then_read(tmp_path):
    path = tmp_path / "escalated.csv"
    assert hand_over(SETS, path)["response"].tolist() == ["a", None, None, None]
    table = pd.read_csv(path)
    assert table["prompt"].tolist() == ["q1", "q2"]
    table["response"] = ["1, or so", "None"]
    table.to_csv(path, index=False)
    expected = ["a", "1, or so", "None", "1, or so"]
    assert hand_over(SETS, path)["response"].tolist() == expected
    hand_over(sets_of(["q3"], [False]), path)  # the next day's go below
    assert pd.read_csv(path)["prompt"].tolist() == ["q1", "q2", "q3"]
    assert hand_over(SETS, path)["response"].tolist() == expected


def test_people_choose_among_the_draws(judge):
    with pytest.raises(VerdictsWanted) as wanted:
        hand_over(SETS, judge)
    pairs = [(one.asked.prompt, one.response) for one in wanted.value.wanted]
    assert pairs == [("q1", "b"), ("q2", "b")]  # what was drawn most often
    assert [one.response for one in wanted.value.later] == ["a", "a"]
    assert wanted.value.n_at_most == 4
    for pair in wanted.value.wanted:
        judge.record(pair, pair.asked.prompt == "q1")
    # only after a no the next text matters
    with pytest.raises(VerdictsWanted) as wanted:
        hand_over(SETS, judge)
    pairs = [(one.asked.prompt, one.response) for one in wanted.value.wanted]
    assert pairs == [("q2", "a")]
    assert judge.wanted() == list(wanted.value.wanted)
    judge.record(wanted.value.wanted[0], False)
    assert hand_over(SETS, judge)["response"].tolist() == ["a", "b", None, "b"]


def test_nothing_escalated_and_bad_files(tmp_path):
    assert hand_over(SETS[:1], lambda prompt: 1 / 0)["response"].tolist() == ["a"]
    (path := tmp_path / "other.csv").write_text("question\nq1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="prompt"):
        hand_over(SETS, path)
    with pytest.raises(TypeError, match="prompts"):
        hand_over(sets_of([np.ones(2)], [False]), path)
    for sets, to in ((SETS, None), (list(SETS), path)):
        with pytest.raises(TypeError, match="must be"):
            hand_over(sets, to)


@pytest.mark.parametrize(
    "text",
    [
        "prompt,response\nq1,x",  # no end of line
        "who,response,prompt\nAda,x,q1\n",
        "prompt;response\nq1;x\nq1; \n",
    ],
)
def test_new_prompts_go_below_what_people_saved(tmp_path, text):
    (path := tmp_path / "escalated.csv").write_text(text, encoding="utf-8")
    for _ in range(2):
        assert hand_over(SETS, path)["response"].tolist() == ["a", "x", None, "x"]
    assert pd.read_csv(path)["prompt"].tolist()[-1] == "q2"


def test_a_spreadsheet_takes_no_prompt_for_a_formula(tmp_path):
    prompts = ["=cmd|' /C calc'!A0", "+1", " @x", "\t-2", "two\r\nlines", "'=quoted'", "NA", "1.0"]
    sets, path = sets_of(prompts, [False] * len(prompts)), tmp_path / "escalated.csv"
    hand_over(sets, path)
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert not table["prompt"].str.strip().str[0].isin(list("=+-@")).any()
    responses = [f"-{i}" for i in range(len(prompts))]
    table.assign(response=responses).to_csv(path, index=False)
    assert hand_over(sets, path)["response"].tolist() == responses
    hand_over(sets_of(["another"], [False]), path)
    assert hand_over(sets, path)["response"].tolist() == responses
