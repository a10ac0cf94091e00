"""The order of pairs, what is kept, what is taken back, and when a calibration goes on."""

import threading
from functools import partial

import numpy as np
import pytest

from sklearn_clm.caching import Context, HumanJudge, JudgedPrompt, VerdictsWanted, WantedVerdict
from sklearn_clm.judging import JudgingSession, wanted_from_file
from tests.toy import together

PAIRS = [WantedVerdict(JudgedPrompt("prompt", ("a",)), f"response {i}") for i in range(6)]


def test_pairs_come_in_order_and_verdicts_are_kept(judge):
    session = JudgingSession(judge, PAIRS)
    turn = session.turn("a")
    for k, pair in enumerate(PAIRS):
        assert turn.pair == pair
        assert (turn.n_judged, turn.n_more, turn.estimate) == (k, 6 - k, f"{6 - k} left.")
        turn = session.act("a", pair.id, "yn"[k % 2])
        assert judge.verdicts([pair]) == [k % 2 == 0]
    assert turn.pair is None
    assert turn.conclusion.startswith("Nothing is left to judge: 6 of 6 judged. Now run the")
    assert [row.judge for row in judge.history()] == ["Ada"] * 6


def test_a_message_that_is_sent_twice_counts_once(judge):
    session = JudgingSession(judge, PAIRS)
    for _ in range(2):
        turn = session.act("a", PAIRS[0].id, "y")
        assert (turn.pair, turn.notice) == (PAIRS[1], "")
    turn = session.act("b", PAIRS[0].id, "n")
    assert "judged meanwhile" in turn.notice
    assert [row.verdict for row in judge.history()] == [True]


def test_skipped_pairs_come_back_at_the_end_and_it_is_said(judge):
    session = JudgingSession(judge, PAIRS[:3])
    turn = session.act("a", PAIRS[0].id, "s")
    assert turn.pair == PAIRS[1]
    assert "Skipped" in turn.notice
    assert "skipped" in session.act("a", PAIRS[0].id, "u").notice
    session.act("a", PAIRS[0].id, "s")
    assert session.act("a", PAIRS[1].id, "s").pair == PAIRS[2]
    assert session.act("a", PAIRS[2].id, "y").pair == PAIRS[0]
    assert session.act("a", PAIRS[0].id, "s").pair == PAIRS[1]
    session.act("a", PAIRS[1].id, "n")
    assert session.act("a", PAIRS[0].id, "n").pair is None
    assert judge.verdicts(PAIRS[:3]) == [False, False, True]


def test_undo_goes_back_step_by_step_and_past_a_new_start(judge):
    session = JudgingSession(judge, PAIRS)
    session.act("a", PAIRS[0].id, "y")
    session.act("a", PAIRS[1].id, "s")
    turn = session.act("a", PAIRS[2].id, "n")
    for pair in (PAIRS[2], PAIRS[1]):
        assert turn.undo == pair.id
        turn = session.act("a", pair.id, "u")
        assert turn.pair == pair
    session = JudgingSession(judge, PAIRS)
    turn = session.act("a", session.turn("a").undo, "u")
    assert (turn.pair, turn.undo, turn.n_judged) == (PAIRS[0], None, 0)
    assert [row.verdict for row in judge.history()] == [True, False, None, None]
    session.act("a", PAIRS[0].id, "u")  # sent twice
    assert len(judge.history()) == 4


def test_nobody_takes_back_what_others_said(judge):
    session = JudgingSession(judge, PAIRS)
    session.act("a", PAIRS[0].id, "y")
    judge.record(PAIRS[0], False, judge="Grace")
    assert "Grace has judged" in session.act("a", PAIRS[0].id, "u").notice
    assert judge.verdicts(PAIRS[:1]) == [False]


def test_two_windows_are_given_different_pairs(judge):
    session = JudgingSession(judge, PAIRS[:3])
    assert [session.turn(tab).pair for tab in "abab"] == [PAIRS[0], PAIRS[1]] * 2
    assert session.act("a", PAIRS[0].id, "y").pair == PAIRS[2]
    assert session.act("a", PAIRS[2].id, "y").pair == PAIRS[1]  # no other is left


def test_what_is_said_elsewhere_is_seen(judge):
    session = JudgingSession(judge, PAIRS)
    session.turn("a")
    other = HumanJudge(judge.path)
    for pair in PAIRS[:4]:
        other.record(pair, True, judge="Grace")
    turn = session.turn("a")
    assert (turn.pair, turn.n_judged) == (PAIRS[4], 4)
    other.record(PAIRS[2], None, judge="Grace")
    assert session.turn("a").n_more == 3


class Calibration:
    """Wants two verdicts, then one more for each that is false."""

    def __init__(self, judge):
        self.judge = judge
        self.n_calls = 0

    def __call__(self):
        self.n_calls += 1
        known = self.judge.verdicts(PAIRS)
        wanted = [pair for pair, verdict in zip(PAIRS[:2], known) if verdict is None]
        if not wanted:
            spare = 2 + known[:2].count(False)
            wanted = [pair for pair, verdict in zip(PAIRS[2:spare], known[2:]) if verdict is None]
        if wanted:
            raise VerdictsWanted(wanted, len(wanted) + 2)
        return f"decided with {known.count(True)}"


def test_a_calibration_is_asked_again_until_it_is_decided(judge):
    calibration = Calibration(judge)
    session = JudgingSession(judge, calibration)
    turn = session.turn("a")
    assert (turn.pair, turn.estimate) == (PAIRS[0], "Decided after at most 4 more.")
    turn = session.act("a", PAIRS[0].id, "n")
    assert (turn.estimate, calibration.n_calls) == ("Decided after at most 3 more.", 1)
    assert turn.n_more == 3
    turn = session.act("a", PAIRS[1].id, "y")
    assert (turn.pair, turn.n_judged, calibration.n_calls) == (PAIRS[2], 2, 2)
    turn = session.act("a", PAIRS[2].id, "y")
    assert (turn.pair, turn.conclusion) == (None, "decided with 2")
    session.turn("a")
    assert calibration.n_calls == 3
    # a verdict that is taken back opens the question again
    turn = session.act("a", turn.undo, "u")
    assert (turn.pair, turn.conclusion) == (PAIRS[2], "")
    assert session.act("a", PAIRS[2].id, "n").conclusion == "decided with 1"
    # as does one that was changed elsewhere
    judge.record(PAIRS[2], True, judge="Grace")
    assert session.turn("a").conclusion == "decided with 2"


def test_a_calibration_goes_on_after_a_new_start(judge):
    JudgingSession(judge, Calibration(judge)).act("a", PAIRS[0].id, "n")
    session = JudgingSession(judge, Calibration(judge))
    turn = session.act("a", PAIRS[1].id, "y")  # before anything was shown
    assert (turn.pair, turn.n_judged) == (PAIRS[2], 2)
    assert session.act("a", PAIRS[0].id, "u").pair == PAIRS[0]


def test_what_goes_wrong_in_a_calibration_is_said_and_costs_no_verdict(judge):
    def broken():
        if judge.verdicts(PAIRS[:1]) == [None]:
            raise VerdictsWanted(PAIRS[:1])
        raise ValueError("no valid configuration")

    session = JudgingSession(judge, broken)
    turn = session.turn("a")
    assert turn.estimate == "1 left in this round. More may be wanted then."
    turn = session.act("a", PAIRS[0].id, "y")
    assert turn.notice == "What asks for verdicts stopped. ValueError: no valid configuration"
    assert judge.verdicts(PAIRS[:1]) == [True]

    def confused():
        raise VerdictsWanted(PAIRS[:1])

    assert "wants some that are there" in JudgingSession(judge, confused).turn("a").notice


def test_what_cannot_be_shown_is_not_taken_back(judge):
    image = WantedVerdict(JudgedPrompt(np.arange(4.0)), "four")
    judge.record(image, True)
    turn = JudgingSession(judge, PAIRS).act("a", image.id, "u")
    assert "cannot be shown" in turn.notice
    assert judge.verdicts([image]) == [True]


def test_arguments_are_checked(judge):
    session = JudgingSession(judge, PAIRS)
    with pytest.raises(KeyError):
        session.act("a", "00" * 32, "y")
    with pytest.raises(KeyError):
        session.act("a", "00" * 32, "u")
    with pytest.raises(ValueError, match="key must be one of y, n, s, u, got 'x' instead"):
        session.act("a", PAIRS[0].id, "x")


def test_pairs_are_read_from_a_file(judge, tmp_path):
    file = tmp_path / "wanted.jsonl"
    chat = [{"role": "user", "content": "Say hello."}]
    context = Context("hello there", 0, 5)
    pairs = [*PAIRS, WantedVerdict(JudgedPrompt(chat, (), context), "hello")]
    judge.export(file, pairs)
    assert wanted_from_file(file) == pairs
    assert wanted_from_file(file)[-1].asked.context == context
    for text, message in (
        ('{"response": "a"}\n{"response": "a", "id": "00"}\n', "line 2 of .* id"),
        ('{"prompt": "a"}\n', "line 1 of"),
        ('{"response": "a", "references": "b"}\n', "references must"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=message):
            wanted_from_file(file)


def test_two_people_are_given_different_prompts_and_the_first_verdict_stays(judge):
    pairs = [WantedVerdict(JudgedPrompt(f"prompt {i}"), "response") for i in range(40)]
    ada, grace = (JudgingSession(judge, pairs, judged_by=name) for name in ("Ada", "Grace"))
    n_alike = 0
    for _ in range(15):
        first, second = (session.turn("a").pair for session in (ada, grace))
        n_alike += first == second
        ada.act("a", first.id, "y")
        grace.act("a", second.id, "y")
    assert n_alike <= 2


def test_people_and_windows_that_press_at_once_give_one_verdict(tmp_path):
    pairs = [WantedVerdict(JudgedPrompt(f"prompt {i}"), "response") for i in range(30)]
    path = tmp_path / "verdicts.sqlite"
    sessions = {name: JudgingSession(HumanJudge(path), pairs, judged_by=name) for name in "ab"}
    barrier = threading.Barrier(4)

    def work(name, window):
        for pair in pairs:
            barrier.wait()
            sessions[name].act(window, pair.id, "y")

    together([partial(work, name, window) for name in sessions for window in ("one", "two")])
    assert len(HumanJudge(path).history()) == 30


def test_undo_takes_back_a_verdict_from_the_future(judge, tmp_path):
    (tmp_path / "said.jsonl").write_text(
        f'{{"id": "{PAIRS[0].id}", "verdict": "y", "time": "2999-01-01", "judge": "Ada"}}\n'
    )
    judge.export(tmp_path / "wanted.jsonl", PAIRS)
    judge.import_(tmp_path / "said.jsonl")
    session = JudgingSession(judge, PAIRS)
    turn = session.act("a", PAIRS[0].id, "u")
    assert "Taken back" in turn.notice
    assert turn.pair == PAIRS[0]
    assert session.act("a", PAIRS[0].id, "n").pair == PAIRS[1]
    assert judge.verdicts(PAIRS[:1]) == [False]
