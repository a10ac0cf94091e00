"""The order of pairs, what is kept, what is taken back, and when a calibration goes on."""

from functools import partial

import pytest

from sklearn_clm.caching import HumanJudge, JudgedPrompt, VerdictsWanted, WantedVerdict
from sklearn_clm.judging import JudgingSession
from tests.toy import together

PAIRS = [WantedVerdict(JudgedPrompt("prompt", ("a",)), f"response {i}") for i in range(6)]


def test_pairs_come_in_order_and_verdicts_are_kept(judge):
    session = JudgingSession(judge, PAIRS)
    turn = session.turn()
    for k, pair in enumerate(PAIRS):
        assert turn.pair == pair
        assert (turn.n_judged, turn.n_more, turn.estimate) == (k, 6 - k, f"{6 - k} left.")
        turn = session.act(pair.id, "yn"[k % 2])
        assert judge.verdicts([pair]) == [k % 2 == 0]
    assert turn.pair is None
    assert turn.conclusion.startswith("Nothing is left to judge: 6 of 6 judged. Now run the")
    assert [row.judge for row in judge.history()] == ["Ada"] * 6


def test_a_message_that_is_sent_twice_counts_once(judge):
    session = JudgingSession(judge, PAIRS)
    for _ in range(2):
        turn = session.act(PAIRS[0].id, "y")
        assert (turn.pair, turn.notice) == (PAIRS[1], "")
    turn = session.act(PAIRS[0].id, "n")
    assert "judged meanwhile" in turn.notice
    assert [row.verdict for row in judge.history()] == [True]


def test_skipped_pairs_come_back_at_the_end_and_it_is_said(judge):
    session = JudgingSession(judge, PAIRS[:3])
    turn = session.act(PAIRS[0].id, "s")
    assert turn.pair == PAIRS[1]
    assert "Skipped" in turn.notice
    assert session.act(PAIRS[1].id, "s").pair == PAIRS[2]
    assert session.act(PAIRS[2].id, "y").pair == PAIRS[0]
    assert session.act(PAIRS[0].id, "s").pair == PAIRS[1]
    session.act(PAIRS[1].id, "n")
    assert session.act(PAIRS[0].id, "n").pair is None
    assert judge.verdicts(PAIRS[:3]) == [False, False, True]


def test_undo_goes_back_step_by_step_and_past_a_new_start(judge):
    session = JudgingSession(judge, PAIRS)
    for pair, key in zip(PAIRS, "yns"):
        turn = session.act(pair.id, key)
    turn = session.act(turn.undo, "u")
    assert (turn.pair, turn.undo) == (PAIRS[2], PAIRS[1].id)
    turn = session.act(turn.undo, "u")
    assert (turn.pair, turn.notice) == (PAIRS[1], "Taken back: no.")
    session = JudgingSession(judge, PAIRS)
    turn = session.act(session.turn().undo, "u")
    assert (turn.pair, turn.undo, turn.n_judged) == (PAIRS[0], None, 0)
    assert [row.verdict for row in judge.history()] == [True, False, None, None]
    session.act(PAIRS[0].id, "u")  # sent twice
    assert len(judge.history()) == 4


def test_undo_takes_back_a_skip_and_then_a_verdict(judge):
    session = JudgingSession(judge, PAIRS)
    first = session.turn().pair
    second = session.act(first.id, "y").pair
    third = session.act(second.id, "s").pair
    turn = session.act(third.id, "s")
    assert turn.undo == third.id
    turn = session.act(turn.undo, "u")
    assert (turn.pair, turn.undo) == (third, second.id)
    turn = session.act(turn.undo, "u")
    assert (turn.pair, turn.undo) == (second, first.id)
    assert judge.verdicts([first]) == [True]
    assert session.act(turn.undo, "u").pair == first
    assert judge.verdicts([first]) == [None]
    # what was judged elsewhere since is no skip any more
    turn = session.act(first.id, "s")
    HumanJudge(judge.path).record(first, True, judge="Grace")
    assert session.turn().undo is None


def test_nobody_takes_back_what_others_said(judge):
    session = JudgingSession(judge, PAIRS)
    session.act(PAIRS[0].id, "y")
    judge.record(PAIRS[0], False, judge="Grace")
    assert "Grace has judged" in session.act(PAIRS[0].id, "u").notice
    assert judge.verdicts(PAIRS[:1]) == [False]


def test_what_is_said_elsewhere_is_seen(judge):
    session = JudgingSession(judge, PAIRS)
    session.turn()
    other = HumanJudge(judge.path)
    for pair in PAIRS[:4]:
        other.record(pair, True, judge="Grace")
    turn = session.turn()
    assert (turn.pair, turn.n_judged) == (PAIRS[4], 4)
    other.record(PAIRS[2], None, judge="Grace")
    assert session.turn().n_more == 3


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
    turn = session.turn()
    assert turn.pair == PAIRS[0]
    assert turn.estimate == "Decided after at most 4 more, 2 of them in this round."
    turn = session.act(PAIRS[0].id, "n")
    assert turn.estimate == "Decided after at most 3 more, 1 of them in this round."
    assert calibration.n_calls == 1
    assert turn.n_more == 3
    turn = session.act(PAIRS[1].id, "y")
    assert (turn.pair, turn.n_judged, calibration.n_calls) == (PAIRS[2], 2, 2)
    turn = session.act(PAIRS[2].id, "y")
    assert (turn.pair, turn.conclusion) == (None, "decided with 2")
    session.turn()
    assert calibration.n_calls == 3
    # a verdict that is taken back opens the question again
    turn = session.act(turn.undo, "u")
    assert (turn.pair, turn.conclusion) == (PAIRS[2], "")
    assert session.act(PAIRS[2].id, "n").conclusion == "decided with 1"
    # as does one that was changed elsewhere
    judge.record(PAIRS[2], True, judge="Grace")
    assert session.turn().conclusion == "decided with 2"


def test_a_calibration_goes_on_after_a_new_start(judge):
    JudgingSession(judge, Calibration(judge)).act(PAIRS[0].id, "n")
    session = JudgingSession(judge, Calibration(judge))
    turn = session.act(PAIRS[1].id, "y")  # before anything was shown
    assert (turn.pair, turn.n_judged) == (PAIRS[2], 2)
    assert session.act(PAIRS[0].id, "u").pair == PAIRS[0]


def test_what_goes_wrong_in_a_calibration_is_said_and_costs_no_verdict(judge):
    def broken():
        if judge.verdicts(PAIRS[:1]) == [None]:
            raise VerdictsWanted(PAIRS[:1])
        raise ValueError("no valid configuration")

    session = JudgingSession(judge, broken)
    turn = session.turn()
    assert turn.estimate == "1 left in this round. More may be wanted then."
    turn = session.act(PAIRS[0].id, "y")
    assert turn.notice == "What asks for verdicts stopped. ValueError: no valid configuration"
    assert judge.verdicts(PAIRS[:1]) == [True]

    def confused():
        raise VerdictsWanted(PAIRS[:1])

    assert "wants some that are there" in JudgingSession(judge, confused).turn().notice


def test_arguments_are_checked(judge):
    session = JudgingSession(judge, PAIRS)
    with pytest.raises(KeyError):
        session.act("00" * 32, "y")
    with pytest.raises(KeyError):
        session.act("00" * 32, "u")
    with pytest.raises(ValueError, match="key must be one of y, n, s, u, got 'x' instead"):
        session.act(PAIRS[0].id, "x")


@pytest.mark.parametrize("names", [("Ada", "Grace"), ("Ada", "Ada")])
def test_two_people_are_given_different_prompts(judge, names, monkeypatch):
    orders = iter(["one", "other"])
    monkeypatch.setattr("secrets.token_hex", lambda n_bytes: next(orders))
    pairs = [WantedVerdict(JudgedPrompt(f"prompt {i}"), "response") for i in range(40)]
    ada, grace = (JudgingSession(judge, pairs, judged_by=name) for name in names)
    n_alike = 0
    for _ in range(15):
        first, second = (session.turn().pair for session in (ada, grace))
        n_alike += first == second
        ada.act(first.id, "y")
        grace.act(second.id, "y")
    assert n_alike <= 2


@pytest.mark.parametrize("key", "yn")
def test_under_one_name_nobody_is_told_that_a_verdict_was_kept_which_was_not(judge, key):
    first, second = (JudgingSession(judge, PAIRS, judged_by="Ada") for _ in range(2))
    second.act(PAIRS[1].id, "n")
    first.act(PAIRS[0].id, "y")
    turn = second.act(PAIRS[0].id, key)
    assert "judged meanwhile" in turn.notice
    # and each takes back what is their own
    assert (first.turn().undo, turn.undo) == (PAIRS[0].id, PAIRS[1].id)
    second.act(turn.undo, "u")
    assert judge.verdicts(PAIRS[:2]) == [True, None]


def test_people_who_press_at_once_give_one_verdict(tmp_path):
    pair, path = WantedVerdict(JudgedPrompt("a"), "b"), tmp_path / "v.sqlite"
    ada, eve = (JudgingSession(HumanJudge(path, judge=name), [pair]) for name in ("Ada", "Eve"))
    for session in (ada, eve):
        session.turn()
    turns = together([partial(ada.act, pair.id, "y"), partial(eve.act, pair.id, "n")])
    assert len(HumanJudge(path).history()) == 1
    assert sorted(bool(turn.notice) for turn in turns) == [False, True]  # the other one is told


def test_the_path_of_a_store_is_no_judge():
    with pytest.raises(TypeError, match=r"judge must be a HumanJudge, .* got 'v\.sqlite' instead"):
        JudgingSession("v.sqlite")
