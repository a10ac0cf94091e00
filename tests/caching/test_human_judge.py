"""Verdicts of people: kept for good, by hand or by file, the newest counting."""

import csv
import datetime as dt
import json
import os
import pickle
import random
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_clm.caching import (
    CachedGenerator,
    Context,
    HumanJudge,
    JudgedPrompt,
    VerdictsWanted,
    WantedVerdict,
)
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.scoring import admission_matrix
from tests.toy import run_sql

PROMPTS = ["2+2?", [{"role": "user", "content": "Capital\nof France?"}], "3+3?"]
REFERENCES = ["4", ["Paris", "paris"], "6"]
RESPONSES = [["4", "five", "=2+2"], ["Paris\n", "Lyon", "Paris"], ["6", "", "6"]]


@pytest.fixture
def judge(tmp_path):
    return HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")


def wanted(judge, prompts=PROMPTS, references=REFERENCES, responses=RESPONSES):
    with pytest.raises(VerdictsWanted) as caught:
        admission_matrix(judge, judge.asked(prompts, references), responses)
    return caught.value.wanted


def is_right(pair):
    return str(pair.response).strip() in pair.asked.references


def test_it_says_what_it_wants_and_goes_on_once_it_is_given(judge):
    pairs = wanted(judge)
    assert len(pairs) == 8  # "6" occurs twice
    assert pairs[0] == WantedVerdict(JudgedPrompt("2+2?", ("4",)), "4")
    for pair in pairs[:5]:
        judge.record(pair, is_right(pair))
    assert wanted(judge) == pairs[5:]
    for pair in pairs[5:]:
        judge.record(pair, is_right(pair))
    table = admission_matrix(judge, judge.asked(PROMPTS, REFERENCES), RESPONSES)
    assert table.tolist() == [[True, False, False], [True, False, True], [True, False, True]]
    assert judge(judge.asked(["2+2?"], ["4"])[0], "4") is True


def test_plain_references_are_shown_without_a_prompt(judge):
    with pytest.raises(VerdictsWanted, match="1 verdict wanted next") as caught:
        judge("Paris", "Lyon")
    assert caught.value.wanted == (WantedVerdict(JudgedPrompt(None, ("Paris",)), "Lyon"),)
    assert judge.asked(["a"]) == [JudgedPrompt("a")]


def test_corrections_are_new_rows_and_the_newest_counts(judge):
    pair = wanted(judge)[0]
    judge.record(pair, False, note="hm")
    judge.record(pair, True, judge="Grace")
    assert judge.verdicts([pair]) == [True]
    judge.record(pair, None)
    assert judge.verdicts([pair]) == [None]
    history = judge.history()
    assert [(row.verdict, row.judge, row.note) for row in history] == [
        (False, "Ada", "hm"),
        (True, "Grace", ""),
        (None, "Ada", ""),
    ]
    assert {row.id for row in history} == {pair.id}


def test_questions_are_kept_apart_and_share_a_file_with_caches(judge):
    pair = wanted(judge)[0]
    judge.record(pair, True)
    other = HumanJudge(judge.path, question="Is it polite?")
    assert other.verdicts([pair]) == [None]
    assert other.fingerprint() != judge.fingerprint()
    assert HumanJudge(judge.path).fingerprint() == judge.fingerprint()
    cached = CachedGenerator(PrecomputedGenerator(["a"], [["x"]]), judge.path)
    assert cached.sample(["a"], 1)[0][0].response == "x"
    for twin in (clone(judge), pickle.loads(pickle.dumps(judge))):
        assert twin.verdicts([pair]) == [True]


def fill(path, pairs, answers):
    """Write answers into an exported file, in any order."""
    verdicts = {pair.id: answer for pair, answer in zip(pairs, answers)}
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            records = list(csv.DictReader(file))
    else:
        records = [json.loads(line) for line in path.read_text().splitlines()]
    records = [{**record, "verdict": verdicts.get(record["id"], "")} for record in records]
    random.Random(0).shuffle(records)
    write(path, records)
    return records


def write(path, records):
    if path.suffix == ".csv":
        with open(path, "w", newline="") as file:
            table = csv.DictWriter(file, list(records[0]))
            table.writeheader()
            table.writerows(records)
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_files_come_back_partially_repeatedly_and_in_any_order(judge, tmp_path, suffix):
    pairs = wanted(judge)
    file = tmp_path / f"wanted{suffix}"
    assert judge.export(file, pairs) == 8
    truth = [is_right(pair) for pair in pairs]
    spelled = ["Yes" if right else "n" for right in truth]
    fill(file, pairs[:5], spelled[:5])
    assert judge.import_(file) == (5, 0, 3, ())
    fill(file, pairs, spelled)
    assert judge.import_(file) == (3, 5, 0, ())
    assert judge.import_(file) == (0, 8, 0, ())
    assert judge.verdicts(pairs) == truth
    judge.record(pairs[0], not truth[0])
    judge.import_(file)
    assert judge.verdicts(pairs[:1]) == [not truth[0]]


@pytest.mark.parametrize(
    ("encoding", "delimiter"),
    [("utf-8", ";"), ("utf-8-sig", ";"), ("utf-8-sig", "\t"), ("utf-16", "\t"), ("utf-16", ",")],
)
def test_tables_that_spreadsheets_save_are_read(judge, tmp_path, encoding, delimiter):
    prompt = 'Où est Zürich; "北京"?\nSagen Sie, wo!'
    pairs = wanted(judge, [prompt], ["Zürich, 北京"], [["Zürich; 北京", "=là"]])
    path = tmp_path / "wanted.csv"
    judge.export(path, pairs)
    assert path.read_bytes().startswith(b"\xef\xbb\xbfid,")  # Excel knows UTF-8 by it
    with open(path, encoding="utf-8-sig", newline="") as file:
        records = list(csv.DictReader(file))
    with open(path, "w", encoding=encoding, newline="") as file:
        table = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
        table.writeheader()
        table.writerows({**record, "verdict": "n"} for record in records)
    assert judge.import_(path) == (2, 0, 0, ())
    assert judge.verdicts(pairs) == [False, False]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_file_in_another_code_page_is_refused_and_blames_the_file(judge, tmp_path, suffix):
    pairs = wanted(judge)
    judge.record(pairs[0], True)
    path = tmp_path / f"wanted{suffix}"
    judge.export(path, pairs)
    fill(path, pairs, ["y"] * 8)
    path.write_bytes(path.read_bytes() + "größer".encode("cp1252"))
    with pytest.raises(ValueError, match="UTF-8"):
        judge.import_(path)
    assert judge.verdicts(pairs) == [True] + [None] * 7


def test_the_latest_time_counts_whatever_the_order_of_files(judge, tmp_path):
    pairs = wanted(judge)[:1]
    for name, verdict, time in [
        ("late", "n", "2024-05-02T10:00:00+02:00"),
        ("early", "y", "2024-05-02T07:59:59"),
    ]:
        file = tmp_path / f"{name}.jsonl"
        judge.export(file, pairs)
        write(file, [{"id": pairs[0].id, "verdict": verdict, "time": time, "judge": name}])
        judge.import_(file)
    assert judge.verdicts(pairs) == [False]
    assert [row.judge for row in judge.history()] == ["late", "early"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_verdict_survives_the_death_of_the_process(judge):
    child = os.fork()
    if child == 0:
        try:
            twin = HumanJudge(judge.path, judge="Ada")
            twin.record(WantedVerdict(JudgedPrompt("a"), "b"), True)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert judge.verdicts([WantedVerdict(JudgedPrompt("a"), "b")]) == [True]


def test_damaged_verdicts_are_noticed(judge):
    pair = wanted(judge)[0]
    judge.record(pair, True)
    run_sql(judge.path, "UPDATE verdicts SET verdict = 0")
    with pytest.raises(ValueError, match="a verdict by 'Ada' is not as it was written"):
        judge.verdicts([pair])


def test_arguments_are_checked(judge, tmp_path):
    pair = wanted(judge)[0]
    with pytest.raises(TypeError, match="verdict must"):
        judge.record(pair, "y")
    with pytest.raises(ValueError, match="references must"):
        judge.asked(["a", "b"], ["c"])
    with pytest.raises(TypeError, match="path must"):
        HumanJudge(None).verdicts([pair])
    judge.record(pair, np.True_)
    assert judge.verdicts([pair]) == [True]
    error = pickle.loads(pickle.dumps(VerdictsWanted([pair], 310)))
    assert str(error) == "1 verdict wanted next, at most 310 in all"
    assert error.wanted == (pair,)
    assert error.__notes__
    with pytest.raises(ValueError, match="path must end in"):
        judge.export("wanted.xlsx", [pair])
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns id and verdict"):
        judge.import_(tmp_path / "other.csv")


def test_what_is_wanted_is_in_the_file_for_other_processes(judge):
    pairs = wanted(judge)
    other = HumanJudge(judge.path)
    assert other.wanted() == list(pairs)
    judge.record(pairs[2], True)
    assert other.wanted() == [*pairs[:2], *pairs[3:]]
    with pytest.raises(VerdictsWanted):
        judge("Paris", "Lyon")
    assert other.wanted() == [WantedVerdict(JudgedPrompt(None, ("Paris",)), "Lyon")]
    assert HumanJudge(judge.path, question="Is it polite?").wanted() == []


def test_a_pair_is_found_by_its_id(judge):
    pairs = wanted(judge)
    judge.record(pairs[1], True)
    assert [judge.pair(pair.id) for pair in pairs] == list(pairs)
    assert judge.pair("00" * 32) is None
    image = WantedVerdict(JudgedPrompt(np.arange(4)), "four")
    judge.record(image, True)
    assert judge.pair(image.id) is None
    assert [row.id for row in judge.history(1)] == [image.id]


def test_a_component_is_one_wherever_it_is_found(judge, tmp_path):
    asked = judge.asked(["Weather?"])[0]
    found = replace(asked, context=Context("It is warm. It rains.", 12, 21))
    with pytest.raises(VerdictsWanted) as caught:
        judge(found, "It rains.")
    (pair,) = caught.value.wanted
    assert pair.asked.context == Context("It is warm. It rains.", 12, 21)
    # other people and processes see the response as well
    assert [one.asked.context for one in HumanJudge(judge.path).wanted()] == [pair.asked.context]
    assert judge.pair(pair.id).asked.context == pair.asked.context
    judge.record(pair, True)
    elsewhere = replace(asked, context=Context("It rains. It is cold.", 0, 9))
    assert judge(elsewhere, "It rains.") is judge(asked, "It rains.") is True
    judge.export(tmp_path / "pairs.csv", [pair])
    assert "It is warm. It rains." in (tmp_path / "pairs.csv").read_text()


def test_changed_verdicts_are_counted_once_when_they_are_used_again(judge):
    asked = judge.asked(list("abcd"))
    for one in asked:
        judge.record(WantedVerdict(one, "yes"), True)
    references = np.empty(4, dtype=object)
    references[:] = asked
    assert [*judge.judge_pairs(references, ["yes"] * 4)] == [*enumerate([True] * 4)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        judge.judge_pairs(references, ["yes"] * 4)
        judge.record(WantedVerdict(asked[0], "no"), False)
        judge.record(WantedVerdict(asked[1], "yes"), True)  # the same again
        judge.judge_pairs(references, ["yes"] * 4)
    HumanJudge(judge.path).record(WantedVerdict(asked[2], "yes"), False, note="read again")
    judge.record(WantedVerdict(asked[3], "yes"), None)
    twin = clone(judge)
    with (
        pytest.warns(UserWarning, match="2 verdicts have changed since the last use"),
        pytest.raises(VerdictsWanted),
    ):
        twin.judge_pairs(references, ["yes"] * 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdicts = dict(judge.judge_pairs(references[:3], ["yes"] * 3))
    assert verdicts == {0: True, 1: True, 2: False}


def test_a_second_question_is_answered_by_a_file_that_looks_the_same(judge, tmp_path):
    pairs = wanted(judge)[:1]
    polite = HumanJudge(judge.path, question="Is it polite?")
    path = tmp_path / "wanted.csv"
    judge.export(path, pairs)
    fill(path, pairs, ["y"])
    assert judge.import_(path)[:2] == polite.import_(path)[:2] == (1, 0)
    assert polite.verdicts(pairs) == [True]
    assert polite.import_(path)[:2] == (0, 1)


def test_what_is_said_last_counts_whatever_the_clock_says(judge, tmp_path, monkeypatch):
    pair = wanted(judge)[0]
    path = tmp_path / "said.jsonl"
    write(path, [{"id": pair.id, "verdict": "y", "time": "2999-01-01", "judge": "Grace"}])
    judge.import_(path)
    judge.record(pair, False)
    assert judge.verdicts([pair]) == [False]

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return dt.datetime(2020, 1, 1, tzinfo=tz)

    monkeypatch.setattr(dt, "datetime", Clock)
    judge.record(pair, True)
    assert judge.verdicts([pair]) == [True]
    judge.record(pair, None)
    assert judge.verdicts([pair]) == [None]
    write(path, [{"id": pair.id, "verdict": "n"}])
    judge.import_(path)
    assert judge.verdicts([pair]) == [False]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_responses_of_any_length_and_beginning_come_back(judge, tmp_path, suffix):
    responses = ["long " * 40_000, "\t'tab", "\rreturn", "\n= 1", " =1+1", "\uff1d1+1", "'quoted'"]
    pairs, path = wanted(judge, ["?"], None, [responses]), tmp_path / f"wanted{suffix}"
    judge.export(path, pairs)
    text = path.read_bytes().decode()
    if suffix == ".csv":  # cells that spreadsheets take for formulas
        assert ",'\uff1d1+1," in text
        assert ",' =1+1," in text
    filled = text.replace(",,,\r\n", ",y,,\r\n").replace('"verdict": ""', '"verdict": "y"')
    path.write_bytes(filled.encode())
    assert judge.import_(path) == (7, 0, 0, ())


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        *(({"time": time}, "") for time in ("0001-01-01T00:00:00+10:00", "soon", [1])),
        *(({name: "\ud800"}, "") for name in ("note", "judge", "verdict", "id")),
        ({"verdict": "perhaps"}, "verdict must be y, n or empty, got 'perhaps'"),
        ({"id": "00" * 32}, "of no pair that was exported here"),
        ({"id": "nonsense"}, ""),
        ({"response": "altered"}, "not the one that was exported"),
        ('{"id": ', "JSON"),
        ("[1]", "list"),
    ],
)
def test_a_broken_line_is_refused_alone(judge, tmp_path, broken, reason):
    first, second = wanted(judge)[:2]
    path = tmp_path / "said.jsonl"
    line = {"id": first.id, "verdict": "y"}
    bad = broken if isinstance(broken, str) else json.dumps(line | broken)
    path.write_text(f"{bad}\n{json.dumps(line | {'id': second.id})}\n")
    with pytest.warns(UserWarning, match="1 lines"):
        imported = judge.import_(path)
    assert imported.n_new == 1
    (refused,) = imported.refused
    assert refused.startswith("line 1: ")
    assert reason in refused
    assert judge.verdicts([first, second]) == [None, True]
