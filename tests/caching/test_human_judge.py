"""Verdicts of people: kept for good, by hand or by file, the newest counting."""

import csv
import json
import os
import pickle
import random
import signal
import sqlite3
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
from sklearn_clm.caching.verdict_files import write_lines
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.scoring import admission_matrix
from tests.toy import run_sql

PROMPTS = ["2+2?", [{"role": "user", "content": "Capital\nof France?"}], "3+3?"]
REFERENCES = ["4", ["Paris", "paris"], "6"]
RESPONSES = [["4", "five", "=2+2"], ["Paris\n", "Lyon", "Paris"], ["6", "", "6"]]


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
    assert judge.fingerprint().startswith("HumanJudge:")  # which a report shows
    assert HumanJudge(judge.path).fingerprint() == judge.fingerprint()
    cached = CachedGenerator(PrecomputedGenerator(["a"], [["x"]]), judge.path)
    assert cached.sample(["a"], 1)[0][0].response == "x"
    for twin in (clone(judge), pickle.loads(pickle.dumps(judge))):
        assert twin.verdicts([pair]) == [True]


def fill(path, pairs, answers, *, encoding="utf-8-sig", delimiter=","):
    """Write answers into an exported file, in any order."""
    verdicts = {pair.id: answer for pair, answer in zip(pairs, answers)}
    with open(path, encoding="utf-8-sig", newline="") as file:
        records = list(csv.DictReader(file))
    records = [{**record, "verdict": verdicts.get(record["id"], "")} for record in records]
    random.Random(0).shuffle(records)
    with open(path, "w", encoding=encoding, newline="") as file:
        table = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
        table.writeheader()
        table.writerows(records)


def test_files_come_back_partially_repeatedly_and_in_any_order(judge, tmp_path):
    pairs = wanted(judge)
    file = tmp_path / "wanted.csv"
    judge.export(file, pairs)
    truth = [is_right(pair) for pair in pairs]
    spelled = ["Yes" if right else "n" for right in truth]
    fill(file, pairs[:5], spelled[:5])
    assert judge.import_(file) == 5
    fill(file, pairs, spelled)
    assert judge.import_(file) == 3
    assert judge.import_(file) == 0
    assert judge.verdicts(pairs) == truth
    judge.record(pairs[0], not truth[0])
    judge.import_(file)
    assert judge.verdicts(pairs[:1]) == [not truth[0]]
    judge.record(pairs[0], None)  # taken back
    assert judge.import_(file) == 1
    assert judge.verdicts(pairs) == truth


@pytest.mark.parametrize(
    ("encoding", "delimiter"), [("utf-8", ";"), ("utf-8-sig", ";"), ("utf-8-sig", "\t")]
)
def test_tables_that_spreadsheets_save_are_read(judge, tmp_path, encoding, delimiter):
    prompt = 'Où est Zürich; "北京"?\nSagen Sie, wo!'
    pairs = wanted(judge, [prompt], ["Zürich, 北京"], [["Zürich; 北京", "=là"]])
    path = tmp_path / "wanted.csv"
    judge.export(path, pairs)
    assert path.read_bytes().startswith(b"\xef\xbb\xbfid,")  # Excel knows UTF-8 by it
    fill(path, pairs, "nn", encoding=encoding, delimiter=delimiter)
    assert judge.import_(path) == 2
    assert judge.verdicts(pairs) == [False, False]


def test_a_file_in_another_code_page_is_refused_and_blames_the_file(judge, tmp_path):
    pairs = wanted(judge)
    judge.record(pairs[0], True)
    path = tmp_path / "wanted.csv"
    judge.export(path, pairs)
    fill(path, pairs, ["y"] * 8)
    path.write_bytes(path.read_bytes() + "größer".encode("cp1252"))
    with pytest.raises(ValueError, match="UTF-8"):
        judge.import_(path)
    assert judge.verdicts(pairs) == [True] + [None] * 7


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
    run_sql(judge.path, "UPDATE keys SET content = replace(content, 'five', 'four')")
    with pytest.raises(ValueError, match="'four' was altered"):
        judge.wanted()


def test_arguments_are_checked(judge, tmp_path):
    pair = wanted(judge)[0]
    with pytest.raises(TypeError, match="verdict must"):
        judge.record(pair, "y")
    with pytest.raises(ValueError, match="references must"):
        judge.asked(["a", "b"], ["c"])
    judge.record(pair, np.True_)
    assert judge.verdicts([pair]) == [True]
    error = pickle.loads(pickle.dumps(VerdictsWanted([pair], 310)))
    assert str(error) == "1 verdict wanted next, at most 310 in all"
    assert error.wanted == (pair,)
    assert error.__notes__
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns id and verdict"):
        judge.import_(tmp_path / "other.csv")


def test_a_machine_that_knows_no_user_is_told_who_judges(judge, monkeypatch):
    def unknown():
        raise KeyError("uid not found: 1000")

    monkeypatch.setattr("getpass.getuser", unknown)
    pair = wanted(judge)[0]
    with pytest.raises(ValueError, match="judge must be given"):
        HumanJudge(judge.path).record(pair, True)
    HumanJudge(judge.path).record(pair, True, judge="Ada")
    assert judge.history()[-1].judge == "Ada"


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
    beside = Context("It is hot. So.", 0, 10, ("Passage one.", "Two."))
    with pytest.raises(VerdictsWanted) as caught:
        judge(replace(asked, context=beside), "It is hot.")
    (wanted_elsewhere,) = HumanJudge(judge.path).wanted()
    assert wanted_elsewhere.asked.context == caught.value.wanted[0].asked.context == beside
    judge.export(tmp_path / "pairs.csv", caught.value.wanted)
    assert "Passage one." in (tmp_path / "pairs.csv").read_text()


def test_files_without_passages_are_read(judge):
    asked = replace(judge.asked(["Weather?"])[0], context=Context("It rains.", 0, 9))
    judge.want([WantedVerdict(asked, "It rains.")])
    with sqlite3.connect(judge.path) as file:
        (content,) = file.execute("SELECT content FROM keys").fetchone()
        prompt, references, response, (text, start, stop, passages) = json.loads(content)
        assert passages == []
        before = json.dumps([prompt, references, response, [text, start, stop]])
        file.execute("UPDATE keys SET content = ?", (before,))
    file.close()
    assert [pair.asked.context for pair in judge.wanted()] == [asked.context]


def test_a_second_question_is_answered_by_a_file_that_looks_the_same(judge, tmp_path):
    pairs = wanted(judge)[:1]
    polite = HumanJudge(judge.path, question="Is it polite?")
    path = tmp_path / "wanted.csv"
    judge.export(path, pairs)
    fill(path, pairs, ["y"])
    assert judge.import_(path) == polite.import_(path) == 1
    assert polite.verdicts(pairs) == [True]
    assert polite.import_(path) == 0


def test_responses_of_any_length_and_beginning_come_back(judge, tmp_path):
    responses = ["x" * 200_000, "\t'tab", "\rreturn", "\n= 1", " =1+1", "'quoted'", "＝TODAY()"]
    pairs, path = wanted(judge, ["?"], None, [responses]), tmp_path / "wanted.csv"
    judge.export(path, pairs)
    table = path.read_bytes()
    assert b",' =1+1," in table  # no formula, which a spreadsheet would compute
    assert ",＝".encode() not in table
    path.write_bytes(table.replace(b",,,\r\n", b",y,,\r\n"))
    assert judge.import_(path) == 7
    assert judge.verdicts(pairs) == [True] * 7


def test_numbers_are_no_formulas(tmp_path):
    write_lines(tmp_path / "table.csv", [{"text": "-0.5", "number": -0.5}], ["text", "number"])
    assert b"'-0.5,-0.5\r\n" in (tmp_path / "table.csv").read_bytes()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("{id},perhaps,{response}", "verdict must be y, n or empty, got 'perhaps'"),
        (f"{'00' * 32},y,", "of no pair that was exported here"),
        ("nonsense,y,", ""),
        ("{id},y,altered", "not the one that was exported"),
    ],
)
def test_a_broken_line_is_left_out_with_a_warning(judge, tmp_path, broken, reason):
    first, second = wanted(judge)[:2]
    path = tmp_path / "said.csv"
    bad = broken.format(id=first.id, response=first.response)
    path.write_text(f"id,verdict,response\n{second.id},y,{second.response}\n{bad}\n")
    with pytest.warns(UserWarning, match=f"line 3.*{reason}"):
        assert judge.import_(path) == 1
    assert judge.verdicts([first, second]) == [None, True]
