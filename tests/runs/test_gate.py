"""RunGate: levels, live runs, files, what is refused."""

import json
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from sklearn_clm import NullCalibrationError, NullCalibrationWarning
from sklearn_clm.calibration import Claim, critical_count
from sklearn_clm.policies import Groups
from sklearn_clm.runs import RunGate
from sklearn_clm.runs._features import features_of
from sklearn_clm.runs._levels import keeping_level, let_through, passing_level

SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=40)


def made(n, seed=0, n_scores=None):
    rng = np.random.default_rng(seed)
    succeeded = rng.random(n) < 0.6
    shapes = [(rng.integers(1, 9), *([] if n_scores is None else [n_scores])) for _ in range(n)]
    return [rng.normal(good, 1.0, size=shape) for good, shape in zip(succeeded, shapes)], succeeded


RUNS, SUCCEEDED = made(300)
NEW, NEW_SUCCEEDED = made(400, 1)
MANY, MANY_SUCCEEDED = made(4000, 1)  # of few runs a share is far off by chance


@settings(deadline=None)
@given(SCORES, st.integers(0, 2**30), st.sampled_from([0.1, 0.2, 0.5]))
def test_the_level_that_keeps_is_the_lowest_that_an_independent_walk_admits(values, seed, alpha):
    risks = np.array(values, dtype=float)
    succeeded = np.random.default_rng(seed).random(len(risks)) < 0.7
    of_successes = risks[succeeded]
    n = len(of_successes)
    allowed = critical_count(n, alpha, 0.2) if n else -1
    if allowed < 0:  # too few for any claim
        return
    found = keeping_level(of_successes, risks, Claim(alpha, 0.2))
    # every level, from one that stops all to one that stops nothing
    levels = np.append(np.arange(-0.5, 7.0), np.inf)
    lowest = min(t for t in levels if np.sum(of_successes >= t) <= allowed)
    # it stops the same calibration runs that succeed as the lowest
    np.testing.assert_array_equal(of_successes >= found, of_successes >= lowest)


@settings(deadline=None)
@given(SCORES, st.integers(0, 2**30), st.integers(0, 6))
def test_the_level_that_passes_is_the_last_before_the_first_failure(values, seed, start):
    risks = np.array(values, dtype=float)
    succeeded = np.random.default_rng(seed).random(len(risks)) < 0.8
    levels = np.append(np.arange(0.5, 7.0), np.inf)
    found = passing_level(levels[start:], risks, succeeded, Claim(0.4, 0.3))
    last = -np.inf
    for level in levels[start:]:
        passing = risks < level
        n_failed = int(np.sum(passing & ~succeeded))
        if not passing.any() or n_failed > critical_count(int(passing.sum()), 0.4, 0.3):
            break
        last = level
    assert found == last
    n_passing, n_failed = let_through(levels, risks, succeeded)
    assert n_passing.tolist() == [np.sum(risks < level) for level in levels]
    assert n_failed.tolist() == [np.sum((risks < level) & ~succeeded) for level in levels]


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**30))
def test_features_are_those_of_the_prefix_by_another_way(n_steps, n_scores, seed):
    run = np.random.default_rng(seed).normal(size=(n_steps, n_scores))
    rows = features_of(run)
    for k in range(1, n_steps + 1):
        expected = []
        for scores in run[:k].T:
            change = scores[-1] - scores[max(k - 2, 0)]
            course = [scores[-1], scores.min(), scores.mean(), change]
            expected += [*course, *(k * value for value in course), scores.max()]
        np.testing.assert_allclose(rows[k - 1], [*expected, k, k**2], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("promise", ["keeps", "passes"])
@pytest.mark.parametrize("random_state", [None, 0])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_the_order_of_runs_changes_nothing(promise, random_state, is_grouped):
    options = Groups() if is_grouped else None
    gate = RunGate(promise=promise, alpha=0.3, random_state=random_state, groups=options)
    names = np.array(["short" if len(run) < 5 else "long" for run in RUNS])
    gate.fit(RUNS, SUCCEEDED, groups=names if is_grouped else None)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(RUNS))
        other = clone(gate).fit(
            [RUNS[i] for i in order],
            SUCCEEDED[order],
            groups=names[order] if is_grouped else None,
        )
        assert other.calibration_.claims == gate.calibration_.claims
        for name, level in gate.calibration_.levels.items():
            assert other.calibration_.levels[name] == pytest.approx(level, rel=1e-6)


@pytest.mark.parametrize("promise", ["keeps", "passes"])
def test_nor_does_that_of_equal_runs_in_different_groups(promise):
    runs = [run[:2].round() for run in RUNS]
    names = np.random.default_rng(3).choice(["even", "odd"], size=len(runs))
    gate = RunGate(promise=promise, alpha=0.4, groups=Groups())
    gate.fit(runs, SUCCEEDED, groups=names)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(runs))
        other = clone(gate).fit([runs[i] for i in order], SUCCEEDED[order], groups=names[order])
        for name, level in gate.calibration_.levels.items():
            assert other.calibration_.levels[name] == pytest.approx(level, rel=1e-6)
        assert other.calibration_.claims == gate.calibration_.claims


@pytest.mark.parametrize("scorer", [None, LogisticRegression()])
@pytest.mark.parametrize("promise", ["keeps", "passes"])
def test_predictions_are_what_live_runs_do(scorer, promise):
    gate = RunGate(scorer, promise=promise, alpha=0.3).fit(RUNS, SUCCEEDED)
    steps, stopped = gate.predict(NEW[:80]), gate.stopped(NEW[:80])
    assert stopped.any()
    assert not stopped.all()
    for run, n_steps, is_stopped in zip(NEW, steps, stopped):
        live = gate.open()
        n_taken = 0
        for score in run:
            n_taken += 1
            if not live.step(score):
                break
            live = gate.open(state=live.to_json())  # a restart after every step
        assert (n_taken, live.stopped) == (n_steps, is_stopped)


def test_most_failures_are_stopped_and_few_successes():
    gate = RunGate(alpha=0.1).fit(RUNS, SUCCEEDED)
    assert gate.score(NEW, NEW_SUCCEEDED) > 0.3
    assert gate.stopped(MANY)[MANY_SUCCEEDED].mean() <= 0.1
    report = gate.report(NEW, NEW_SUCCEEDED)
    n_successes = int(NEW_SUCCEEDED.sum())
    assert f"| stopped of those that succeed | {n_successes} |" in str(report)
    assert "<td>stopped of those that succeed</td>" in report.to_html()
    assert "calibration runs that succeed, a new run" in gate.calibration_.claims[None].sentence()
    passing = RunGate(promise="passes", alpha=0.3).fit(RUNS, SUCCEEDED)
    through = ~passing.stopped(NEW)
    assert through.mean() > 0.2
    assert np.mean(~NEW_SUCCEEDED[through]) <= 0.3
    assert "that is let through" in passing.calibration_.claims[None].sentence()


def test_the_default_scorer_is_learnt_by_the_largest_risk_of_each_run():
    """Runs fail by scores that are all too low or all too high: of prefixes alike this is lost."""
    rng = np.random.default_rng(0)
    succeeded = rng.random(2000) < 0.6
    means = np.where(succeeded, 0.0, rng.choice([-1.5, 1.5], size=2000))
    runs = [rng.normal(mean, 1.0, size=rng.integers(3, 13)) for mean in means]
    of_prefixes = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    scores = [
        RunGate(scorer).fit(runs[:600], succeeded[:600]).score(runs[600:], succeeded[600:])
        for scorer in (None, of_prefixes)
    ]
    assert scores[0] > scores[1] + 0.1


def test_a_null_is_said_and_harmless():
    hard = np.zeros(300, dtype=bool)
    hard[:60] = True
    with pytest.warns(NullCalibrationWarning, match=r"no level is certified .* \d+ fail"):
        gate = RunGate(promise="passes", alpha=0.05).fit(RUNS, hard)
    assert gate.predict(NEW).tolist() == [1] * len(NEW)
    assert gate.score(NEW, NEW_SUCCEEDED) == -np.inf
    # a small group is null, and the others are not
    names = np.array(["rare"] * 12 + ["frequent"] * 288)
    with pytest.warns(NullCalibrationWarning, match="Group 'rare'"):
        gate = RunGate(groups=Groups()).fit(RUNS, SUCCEEDED, groups=names)
    assert gate.calibration_.levels["rare"] == np.inf
    assert gate.calibration_.claims["frequent"].holds
    # nothing is said of all runs together, which no prediction uses
    assert set(gate.calibration_.claims) == {"rare", "frequent"}
    with pytest.raises(ValueError, match="groups must be among"):
        gate.predict(NEW[:1], groups=["other"])
    with pytest.raises(ValueError, match="groups must be among"):
        gate.open()
    assert gate.open(group="frequent").step(9.0)
    assert (
        "for group 'rare', so each of its runs goes on"
        in gate.calibration_.claims["rare"].sentence()
    )


@pytest.mark.parametrize(
    ("promise", "words", "what_follows", "n_steps"),
    [
        ("keeps", r"runs that succeed is \d+, .* 299", "each run goes on to its end", len),
        ("passes", r"runs is 40, .* 299", "each run is handed over after its", lambda run: 1),
    ],
)
def test_too_few_runs_are_a_null(promise, words, what_follows, n_steps):
    gate = RunGate(alpha=0.01, promise=promise)
    with pytest.warns(NullCalibrationWarning, match=f"number of calibration {words}") as caught:
        gate.fit(RUNS[:60], SUCCEEDED[:60])
    assert what_follows in str(caught[0].message)
    assert gate.predict(NEW).tolist() == list(map(n_steps, NEW))
    assert gate.score(NEW, NEW_SUCCEEDED) == -np.inf
    gate.set_params(on_null="raise")
    with pytest.raises(NullCalibrationError, match=words):
        gate.fit(RUNS[:60], SUCCEEDED[:60])


def test_vectors_and_features_of_steps():
    runs, succeeded = made(300, 2, n_scores=3)
    runs = [run.round(3) for run in runs]
    gate = RunGate(alpha=0.2).fit(runs, succeeded)
    assert gate.calibration_.n_scores == 3
    texts = [[f"{score:.3f} {other:.3f} {last:.3f}" for score, other, last in run] for run in runs]
    described = RunGate(alpha=0.2, features=lambda prefix: [float(x) for x in prefix[-1].split()])
    described.fit(texts, succeeded)
    assert described.calibration_.levels[None] == pytest.approx(gate.calibration_.levels[None])
    live = described.open()
    for step in texts[0]:
        live.step(step)
    np.testing.assert_allclose(live.risk, described.decision_function(texts[:1])[0][-1], rtol=1e-9)


def test_runs_that_did_not_finish():
    outcomes = [None if i % 10 == 0 else bool(one) for i, one in enumerate(SUCCEEDED)]
    with pytest.raises(ValueError, match="got None or NaN for 30 instead"):
        RunGate().fit(RUNS, outcomes)
    left_out = RunGate(unfinished="leave_out").fit(RUNS, outcomes)
    assert left_out.calibration_.n_unfinished == 30
    finished = [i for i, one in enumerate(outcomes) if one is not None]
    same = RunGate().fit([RUNS[i] for i in finished], SUCCEEDED[finished])
    assert left_out.calibration_.levels == same.calibration_.levels
    for unfinished in ("failed", "succeeded", "leave_out"):
        gate = RunGate(unfinished=unfinished).fit(RUNS, outcomes)
        assert gate.calibration_.n_unfinished == 30
        report = str(gate.report(RUNS, outcomes))
        assert "Unfinished runs: 30; in calibration 30 (unfinished=" in report
        # they count as in calibration
        stopped = gate.stopped(RUNS)
        counts = [i for i, one in enumerate(outcomes) if one is not None or unfinished == "failed"]
        fails = [i for i in counts if not outcomes[i]]
        assert gate.score(RUNS, outcomes) == pytest.approx(stopped[fails].mean())


def test_a_missing_outcome_of_pandas_is_unfinished():
    pd = pytest.importorskip("pandas")
    outcomes = pd.Series([*SUCCEEDED[:-1], pd.NA], dtype="boolean")
    assert RunGate(unfinished="leave_out").fit(RUNS, outcomes).calibration_.n_unfinished == 1


def test_a_fit_that_fails_leaves_the_gate_as_it_was():
    gate = RunGate(alpha=0.2).fit(RUNS, SUCCEEDED)
    before = gate.predict(NEW)
    gate.set_params(on_null="raise")
    with pytest.raises(NullCalibrationError, match="runs that succeed is"):
        gate.fit([[run[0], run[0]] for run in RUNS[:12]], SUCCEEDED[:12])
    np.testing.assert_array_equal(gate.predict(NEW), before)


def test_saved_and_loaded(tmp_path):
    names = np.array(["short" if len(run) < 5 else "long" for run in RUNS])
    gate = RunGate(alpha=0.2, groups=Groups()).fit(RUNS, SUCCEEDED, groups=names)
    gate.save(tmp_path / "gate.json")
    loaded = RunGate(alpha=0.2, groups=Groups()).load(tmp_path / "gate.json")
    assert loaded.calibration_ == gate.calibration_
    new_names = ["short" if len(run) < 5 else "long" for run in NEW]
    before = gate.predict(NEW, groups=new_names)
    np.testing.assert_array_equal(loaded.predict(NEW, groups=new_names), before)
    for params, message in (
        ({"alpha": 0.1}, r"another alpha: 0\.2 there, 0\.1 here\. .* call fit again\.$"),
        ({"delta": 0.1}, "another delta"),
        ({"scorer": LogisticRegression()}, r"another scorer: 'none' there, LogisticRegression\(\)"),
        ({"promise": "passes"}, "another promise"),
        ({"features": lambda prefix: prefix[-1:]}, "another features"),
        ({"groups": None}, "another groups"),
        ({"groups": Groups(by=len)}, "another groups__by"),
    ):
        unlike = RunGate(alpha=0.2, groups=Groups()).set_params(**params)
        with pytest.raises(ValueError, match=message):
            unlike.load(tmp_path / "gate.json")
        assert not hasattr(unlike, "calibration_")
    content = json.loads((tmp_path / "gate.json").read_text())
    content["levels"][0]["level"] = 9.0
    (tmp_path / "gate.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="digest"):
        RunGate(alpha=0.2).load(tmp_path / "gate.json")
    for broken in (b"\x80\x04N.", b"{}", b"[1]", b""):
        (tmp_path / "gate.json").write_bytes(broken)
        with pytest.raises(ValueError, match="not an intact file"):
            RunGate(alpha=0.2).load(tmp_path / "gate.json")
    gate.set_params(alpha=0.1).save(tmp_path / "gate.json")  # what it was fitted with
    RunGate(alpha=0.2, groups=Groups()).load(tmp_path / "gate.json")
    learnt = RunGate(LogisticRegression(max_iter=1000)).fit(RUNS, SUCCEEDED)
    with pytest.raises(ValueError, match="scorer must be None for a JSON file"):
        learnt.save(tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_a_null_is_kept_with_its_level(tmp_path):
    hard = np.zeros(300, dtype=bool)
    hard[:60] = True
    with pytest.warns(NullCalibrationWarning):
        gate = RunGate(promise="passes", alpha=0.05).fit(RUNS, hard)
    gate.save(tmp_path / "gate.json")
    loaded = RunGate(promise="passes", alpha=0.05).load(tmp_path / "gate.json")
    assert loaded.calibration_ == gate.calibration_
    assert loaded.predict(NEW).tolist() == [1] * len(NEW)


def test_parameters_that_are_set_later_reach_no_prediction():
    gate = RunGate(alpha=0.2, features=lambda prefix: [prefix[-1]]).fit(RUNS, SUCCEEDED)
    before = gate.predict(NEW)
    gate.set_params(alpha=0.4, features=lambda prefix: [0.0])
    np.testing.assert_array_equal(gate.predict(NEW), before)
    assert gate.open().step(9.0)


def test_nor_do_groups_and_unfinished_runs_that_are_set_later():
    gate = RunGate(alpha=0.2, groups=Groups(by=lambda run: run[0] > 0.5), unfinished="leave_out")
    gate.fit(RUNS, [None, *SUCCEEDED[1:]])
    assert len(set(gate.calibration_.levels.values())) == 2
    before = gate.predict(NEW)
    report = str(gate.report(NEW, [None, *NEW_SUCCEEDED[1:]]))
    gate.set_params(groups__by=lambda run: True, unfinished="failed")  # the same object of groups
    np.testing.assert_array_equal(gate.predict(NEW), before)
    gate.set_params(groups=None)
    np.testing.assert_array_equal(gate.predict(NEW), before)
    assert str(gate.report(NEW, [None, *NEW_SUCCEEDED[1:]])) == report
    assert "1 (unfinished='leave_out')" in report


def test_a_loaded_gate_counts_unfinished_runs_as_calibration_did(tmp_path):
    gate = RunGate(alpha=0.2, unfinished="failed").fit(RUNS, [None, *SUCCEEDED[1:]])
    gate.save(tmp_path / "gate.json")
    loaded = RunGate(alpha=0.2).load(tmp_path / "gate.json")
    outcomes = [None, *NEW_SUCCEEDED[1:]]
    assert loaded.score(NEW, outcomes) == gate.score(NEW, outcomes)


def test_where_no_run_fails_there_is_no_share_of_those_that_are_stopped():
    everybody = np.ones(len(RUNS))
    gate = RunGate(alpha=0.2).fit(RUNS, everybody)
    assert np.isnan(gate.score(RUNS, everybody))
    # a constant has no scale, and a level for it no warning
    RunGate(alpha=0.5).fit([[0.1] * len(run) for run in RUNS], SUCCEEDED)


def test_steps_from_many_threads_are_counted_once():
    gate = RunGate(alpha=0.2).fit(RUNS, SUCCEEDED)
    live = gate.open()
    threads = [threading.Thread(target=lambda: [live.step(3.0) for _ in range(50)]) for _ in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.n_steps == 200


def test_a_gate_stays_closed():
    live = RunGate(alpha=0.2).fit(RUNS, SUCCEEDED).open()
    assert live.step(5.0)
    assert not live.step(-50.0)
    assert not live.step(500.0)
    assert live.risk < live._level


@pytest.mark.parametrize(
    ("runs", "outcomes", "message"),
    [
        ("abc", [True] * 3, r"X\[0\] must be a sequence of steps, got 'a' instead"),
        ([], [], r"X must be a sequence of at least one run, got \[\] instead"),
        ([1.0, 2.0], [True, False], r"X\[0\] must be a sequence of steps, got 1\.0 instead"),
        ([[], [1.0]], [True, False], r"X\[0\] must be finite numbers, .* got \[\] instead"),
        ([[1.0], []], [True, False], r"X\[1\] must be finite numbers, .* got \[\] instead"),
        ([[1.0], [np.nan]], [True, False], r"X\[1\] must be finite numbers, .* got \[nan\]"),
        ([[1.0], [1e300, 1.0]], [True, False], r"X\[1\] must be finite numbers"),
        ([[1.0], [10**400]], [True, False], r"X\[1\] must be finite numbers"),
        ([[1.0], ["a"]], [True, False], r"X\[1\] must be .* got \['a'\] instead"),
        ([[1.0], ["2.5"]], [True, False], r"X\[1\] must be .* got \['2.5'\] instead"),
        ([[1.0], [b"2.5"]], [True, False], r"X\[1\] must be .* got \[b'2.5'\] instead"),
        ([[1.0], [1j]], [True, False], r"X\[1\] must be .* got \[1j\] instead"),
        ([np.array(["2026-01-01"], "M8[s]")], [True], r"X\[0\] must be finite numbers"),
        ("0110", [True] * 4, r"X\[0\] must be a sequence of steps, got '0' instead"),
        ([[1.0], [[1.0, 2.0], [1.0]]], [True, False], r"X\[1\] must be finite numbers, 1 in each"),
        ([[1.0], (one for one in "12")], [True, False], r"X\[1\] must be .* got <generator"),
        ((run for run in RUNS), SUCCEEDED, "X must be a sequence of .* run, got <generator"),
        (None, [True], "X must be a sequence of at least one run, got None"),
        ([[[1.0, 2.0]], [[1.0]]], [True, False], r"X\[1\] must be .* 2 in each step, got \[\[1\.0"),
        ([[1.0], [2.0]], [True], r"y must be 2 booleans, .* got 1 instead"),
        ([[1.0], [2.0]], [True, 2], r"y must be 2 booleans, .* got \[True, 2\]"),
        ([[1.0], [2.0]], ["yes", "no"], "y must be 2 booleans, .* could not convert .* 'yes'"),
        ([[1.0], [2.0]], None, "y must be 2 booleans"),
    ],
)
def test_what_does_not_fit_is_refused(runs, outcomes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        RunGate().fit(runs, outcomes)


def test_parameters_and_steps_are_checked():
    for params in (
        {"alpha": 0},
        {"delta": 1},
        {"promise": "stops"},
        {"scorer": "other"},
        {"features": 3},
        {"groups": 3},
    ):
        with pytest.raises(ValueError, match=next(iter(params))):
            RunGate(**params).fit(RUNS, SUCCEEDED)
    live = RunGate().fit(RUNS, SUCCEEDED).open()
    for score in (np.nan, np.inf, 1e300, [1.0, 2.0], [], None, "high", {}):
        with pytest.raises(ValueError, match="score must be finite numbers, 1 in each step"):
            live.step(score)
    assert live.n_steps == 0


def test_features_that_are_no_numbers_are_named():
    gate = RunGate(features=lambda prefix: [1.0] * len(prefix))
    with pytest.raises(
        ValueError, match=r"X\[0\] must be finite numbers, .* got \[\[1\.0\], \[1\.0, 1"
    ):
        gate.fit([[1.0, 2.0], [3.0]], [True, False])


def test_a_step_that_is_refused_does_not_count():
    gate = RunGate(alpha=0.2, features=lambda prefix: [sum(prefix), len(prefix)])
    live = gate.fit(RUNS, SUCCEEDED).open()
    live.step(1.0)
    before = live.to_json()
    with pytest.raises(ValueError, match="score must be finite numbers, 2 in each step"):
        live.step(np.inf)
    assert live.to_json() == before


def test_features_of_a_live_run_see_one_list_that_is_not_copied():
    lists = []

    def last(prefix):
        lists.append(prefix)
        return [prefix[-1]]

    live = RunGate(alpha=0.2, features=last).fit(RUNS, SUCCEEDED).open()
    lists.clear()
    for k in range(1, 30):
        live.step(float(k))
        assert lists[-1] is lists[0]
        assert lists[0] == [float(i) for i in range(1, k + 1)]


@pytest.mark.parametrize("change", [list.sort, list.clear, lambda prefix: prefix.append(0.0)])
def test_features_that_change_the_list_are_refused(change):
    """In a live run they would change what the next steps see."""

    def changing(prefix):
        last = prefix[-1]
        change(prefix)
        return [last]

    with pytest.raises(ValueError, match="features must leave the list of steps as it is, got"):
        RunGate(features=changing).fit([[2.0, 1.0], [3.0]], [True, False])


def test_steps_that_json_changes_are_refused_before_a_restart():
    gate = RunGate(alpha=0.2, features=lambda prefix: [prefix[-1]["score"]])
    gate.fit([[{"score": score} for score in run] for run in RUNS], SUCCEEDED)
    live = gate.open()
    live.step({"score": np.float64(1.0), "texts": ("a", "b")})
    assert gate.open(state=live.to_json()).n_steps == 1
    for other in ({3: "a number as key"}, {"an object": object()}, {"an array": np.ones(2)}):
        live = gate.open()
        live.step({"score": 1.0, **other})
        with pytest.raises(ValueError, match="steps must be values of JSON"):
            live.to_json()


class Unsure(DecisionTreeClassifier):
    """A classifier that does not know of some prefixes."""

    def predict_proba(self, X):
        return np.where(X[:, :1] < 0.0, np.nan, super().predict_proba(X))


@pytest.mark.parametrize("promise", ["keeps", "passes"])
def test_a_scorer_that_does_not_know_is_refused(promise):
    """No level would stop such a run, so that it would be let through unseen."""
    with pytest.raises(ValueError, match="scorer must predict probabilities, got NaN for"):
        RunGate(Unsure(), promise=promise).fit(RUNS, SUCCEEDED)


def test_the_state_of_a_run_is_strict_json_of_its_gate_alone():
    gate = RunGate(alpha=0.2).fit(RUNS, SUCCEEDED)
    live = gate.open()

    def refuse(constant):
        raise AssertionError(constant)

    for score in (0.5, 0.1):
        state = live.to_json()
        json.loads(state, parse_constant=refuse)  # neither Infinity nor NaN
        live.step(score)
    content = json.loads(live.to_json())
    assert content["_steps"] == []  # scores are not kept
    assert np.shape(content["_kept"]) == (1, 4)
    other = RunGate(alpha=0.3).fit(RUNS, SUCCEEDED)
    for broken in (
        json.dumps({**content, "stopped": True}),
        json.dumps({**content, "n_steps": 1}),
        live.to_json()[:-2],
        "[]",
        "{}",
    ):
        with pytest.raises(ValueError, match="state must be what to_json gave"):
            gate.open(state=broken)
    with pytest.raises(ValueError, match=r"state must be .* of this gate"):
        other.open(state=live.to_json())


class OfNumbers(RunGate):
    """Outcomes of scikit-learn's checks are arbitrary: a run succeeds where they are large."""

    def fit(self, X, y, **params):
        return super().fit(X, y if y is None else self._binary(y), **params)

    def score(self, X, y, **params):
        return super().score(X, self._binary(y), **params)

    @staticmethod
    def _binary(y):
        numbers = np.asarray(y, dtype=float)
        return numbers >= np.median(numbers)


# runs differ in length, so that they have no number of features
NOT_FOR_RUNS = {"check_n_features_in", "check_n_features_in_after_fitting"}


def test_of_scikit_learns_checks_those_of_a_number_of_features_alone_do_not_hold():
    found = check_estimator(OfNumbers(alpha=0.5, delta=0.4), on_fail=None)
    assert {one["check_name"] for one in found if one["status"] == "failed"} == NOT_FOR_RUNS


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: RunGate(RUNS, SUCCEEDED), "must be given by name, but for scorer, got 2"),
        (lambda: RunGate(RUNS).fit(RUNS, SUCCEEDED), r"'scorer'.* data are for fit\(X, y\)"),
        (lambda: RunGate(LogisticRegression).fit(RUNS, SUCCEEDED), "scorer must be an instance"),
        (lambda: RunGate().fit(SUCCEEDED, RUNS), r"X must be runs.*got array\(\[.* then outcomes"),
        (lambda: RunGate().fit(SUCCEEDED.tolist(), RUNS), r"X\[0\] must .* got (True|False) inst"),
        (lambda: RunGate().fit(["abc"] * 3, [1, 0, 1]), r"X\[0\] must be a sequence of steps, got"),
    ],
)
def test_what_stands_in_the_place_of_runs_is_named(call, words):
    with pytest.raises((ValueError, TypeError), match=f"(?s){words}"):
        call()
