import copy
import os
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from sklearn_clm import ComponentSelector, ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration.betting import RiskEProcess, confidence_sequence
from sklearn_clm.evaluation import RiskMonitor
from sklearn_clm.policies import AnswerPolicy, ExitPolicy, Groups
from tests.toy import questions, toy_sampler


def requests(n, first=0):
    return [f"request {i}" for i in range(first, first + n)]


def errors(n, risk, seed=0):
    return np.random.default_rng(seed).random(n) < risk


def fitted(**options):
    return toy_sampler(**{"epsilon": 0.45, **options}).fit(*questions(150))


def test_a_monitor_is_the_e_process_of_its_outcomes():
    losses = errors(300, 0.45)
    monitor = RiskMonitor(0.3)
    assert monitor.update(losses[:100]) is monitor
    monitor.update(losses[100:200].astype(int).tolist())
    for loss, request in zip(losses[200:], requests(100)):
        monitor.update([loss], [request])
    expected = RiskEProcess(0.3).update(losses)
    np.testing.assert_allclose(monitor.e_values_, expected)
    assert monitor.alarm_
    assert monitor.alarm_at_ == int(np.argmax(expected >= 20)) + 1
    assert monitor.risk_ == losses.mean()
    assert monitor.risk_interval_ == confidence_sequence(losses.sum(), 300)
    # an alarm stays
    assert monitor.update(np.zeros(2_000)).alarm_


@pytest.mark.parametrize("numbered", [False, True], ids=["requests", "numbers of rows"])
def test_a_sorted_table_is_no_alarm(numbered):
    """Outcomes of one call count in one order, wherever they stand."""
    rng, n_alarms = np.random.default_rng(0), 0
    for _ in range(200):
        losses = rng.random(150) < 0.2
        names = [f"{name}" for name in rng.integers(2**60, size=150)]
        first = np.argsort(~losses)  # errors first
        names = range(150) if numbered else np.array(names)[first].tolist()
        monitor = RiskMonitor(0.2, alpha=0.1).update(losses[first], names)
        n_alarms += monitor.alarm_
        order = rng.permutation(150)
        again = RiskMonitor(0.2).update(losses[first][order], [names[i] for i in order])
        assert np.array_equal(again.losses_, monitor.losses_)
        assert RiskMonitor(0.2).update(losses[first]).alarm_  # as they stand
    assert n_alarms <= binom.ppf(1 - 1e-4, 200, 0.1)


def test_a_low_risk_gives_no_alarm():
    monitor = RiskMonitor(0.3).update(errors(2_000, 0.2), requests(2_000))
    assert monitor.alarm_at_ is None
    low, high = monitor.risk_interval_
    assert low < 0.2 < high < 0.3
    assert "renews no certificate" in str(monitor)


def test_a_new_monitor_knows_nothing():
    monitor = RiskMonitor(0.3)
    assert (monitor.n_audited_, monitor.alarm_, monitor.risk_interval_) == (0, False, (0.0, 1.0))
    assert np.isnan(monitor.risk_)
    assert repr(monitor) == "RiskMonitor(epsilon=0.3, alpha=0.05, n_audited=0, alarm=False)"
    assert monitor.update([], []).n_audited_ == 0
    with pytest.raises(ValueError, match="requests must"):
        monitor.update([], ["a"])


def test_an_alarm_says_what_to_do():
    text = str(RiskMonitor(0.1).update(np.ones(40)))
    for part in ("ALARM after", "on new prompts", "not calibrate on the audited prompts alone"):
        assert part in text


def test_the_audited_share_is_chosen_by_request_and_seed():
    monitor = RiskMonitor(0.3, share=0.2)
    asked = requests(1_000)
    chosen = [monitor.should_audit(prompt) for prompt in asked]
    assert binomtest(sum(chosen), 1_000, 0.2).pvalue > 1e-4
    again = RiskMonitor(0.1, alpha=0.2, share=0.2)
    assert [again.should_audit(prompt) for prompt in asked[::-1]] == chosen[::-1]
    other = RiskMonitor(0.3, share=0.2, seed=1)
    assert [other.should_audit(prompt) for prompt in asked] != chosen
    audited = [prompt for prompt, one in zip(asked, chosen) if one]
    assert monitor.update(errors(len(audited), 0.2), audited).n_audited_ == len(audited)


def test_requests_are_identifiers_that_count_once():
    monitor = RiskMonitor(0.3).update([0, 1, 0], [7, np.int64(8), uuid.UUID(int=9)])
    # the first is as it comes back from a log
    for again in (["7", "a"], ["b", 8], ["c", "c"]):
        with pytest.raises(ValueError, match="requests"):
            monitor.update([1, 1], again)
    assert monitor.n_audited_ == 3
    for prompt in (np.zeros(3), {"role": "user"}, ["a"], None):
        with pytest.raises(TypeError, match="requests"):
            monitor.should_audit(prompt)


def test_frequent_prompts_count_as_often_as_they_are_asked():
    # half of all requests are one of five easy prompts, which never err; the others err at 0.4
    rng = np.random.default_rng(0)
    n_alarms = 0
    for seed in range(40):
        monitor = RiskMonitor(0.25, share=0.5, seed=seed)
        asked = [(request, int(rng.integers(5))) for request in range(0, 1_000, 2)]
        asked += [(request, request) for request in range(1, 1_000, 2)]
        audited = [(r, prompt) for r, prompt in asked if monitor.should_audit(r)]
        losses = [prompt >= 5 and rng.random() < 0.4 for _, prompt in audited]
        order = rng.permutation(len(audited))
        monitor.update(np.array(losses)[order], [audited[i][0] for i in order])
        n_alarms += monitor.alarm_
    assert n_alarms <= binom.ppf(1 - 1e-4, 40, 0.05)


def test_outcomes_that_were_not_chosen_are_refused():
    monitor = RiskMonitor(0.3, share=0.5)
    with pytest.raises(ValueError, match="should_audit"):
        monitor.update(np.ones(50), requests(50))
    assert monitor.n_audited_ == 0
    assert monitor.update(np.ones(5)).n_audited_ == 5  # without requests nobody can tell


@pytest.mark.parametrize(
    "outcomes",
    [[0.0, 1.2], [np.nan, 1.0], [-1, 0], True, ["yes", "no"], [None, 1], [[1], [1, 0]], [[1], [0]]],
)
def test_bad_outcomes(outcomes):
    monitor = RiskMonitor(0.3)
    with pytest.raises((TypeError, ValueError)):
        monitor.update(outcomes, ["a", "b"])
    assert monitor.n_audited_ == 0


def test_estimators_are_watched_at_their_own_level():
    sampler = fitted()
    assert RiskMonitor(sampler).epsilon == 0.45
    selector = ComponentSelector(sampler, alpha=0.6, admission="exact_match").fit(*questions(150))
    assert RiskMonitor(selector).epsilon == 0.6
    assert RiskMonitor(fitted(policy=AnswerPolicy(0.4))).epsilon == 0.4
    with pytest.raises(ValueError, match="not fitted"):
        RiskMonitor(ConformalSampler())


def stricter(sampler):
    """Another exit level of the same data."""
    other = copy.copy(sampler).set_params(delta=0.001)
    return other.calibrate(sampler.calibration_data_)


@pytest.mark.parametrize(
    ("policy", "change"), [(None, lambda sampler: fitted(random_state=1)), (ExitPolicy(), stricter)]
)
def test_a_file_belongs_to_one_calibration(policy, change, tmp_path):
    sampler, path = fitted(policy=policy), tmp_path / "watch.sqlite"
    RiskMonitor(sampler, path=path).update([0], ["a"])
    assert RiskMonitor(sampler, path=path).n_audited_ == 1
    with pytest.raises(ValueError, match="target"):
        RiskMonitor(change(sampler), path=path)


def test_the_file_goes_on_where_it_stood(tmp_path):
    losses, options = errors(60, 0.4), {"share": 0.9, "path": tmp_path / "watch.sqlite"}
    monitor = RiskMonitor(0.3, **options)
    asked = [prompt for prompt in requests(100) if monitor.should_audit(prompt)][:60]
    monitor.update(losses[:20], asked[:20])
    monitor.update(losses[20:25])
    again = RiskMonitor(0.3, **options)
    again.update(losses[25:], asked[25:])
    whole = RiskMonitor(0.3, share=0.9)
    whole.update(losses[:20], asked[:20]).update(losses[20:25]).update(losses[25:], asked[25:])
    # the first object learns of what the second wrote before it adds something
    with pytest.raises(ValueError, match="requests"):
        monitor.update([1], asked[30:31])
    for one in (monitor.update([], []), again):
        assert one.e_values_.tolist() == whole.e_values_.tolist()
    for name, value in (("alpha", 0.1), ("share", 0.5), ("seed", 3)):
        with pytest.raises(ValueError, match=name):
            RiskMonitor(0.3, **{**options, name: value})


def test_what_is_watched_must_be_certified_in_every_group():
    (X, y), names = questions(400), np.arange(400) % 2
    sampler = toy_sampler(epsilon=0.45, groups=Groups())
    assert RiskMonitor(sampler.fit(X, y, groups=names)).epsilon == 0.45
    y[1::2] = ["none"] * 200
    choosy = ComponentSelector(fitted(), alpha=0.001, admission="exact_match")
    for null, of in ((sampler, {"groups": names}), (toy_sampler(epsilon=0.02), {}), (choosy, {})):
        with pytest.warns(NullCalibrationWarning):
            null.fit(X, y, **of)
        with pytest.raises(ValueError, match=r"certified|guaranteed"):
            RiskMonitor(null)


def test_a_file_of_something_else_is_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk" * 100)
    with pytest.raises(ValueError, match="path"):
        RiskMonitor(0.3, path=path)
    assert path.read_text().startswith("remember")


_KILLED = """
import os, sys
from sklearn_clm.evaluation import RiskMonitor
monitor = RiskMonitor(0.3, path=sys.argv[1])
monitor.update([1] * 7, [f"a{i}" for i in range(7)])
def update(connection):
    connection.execute("INSERT INTO audits (digest, loss) VALUES (NULL, 1.0)")
    os.kill(os.getpid(), 9)  # in the middle of the next update
monitor._store.write(update, durable=True)
"""


def test_an_update_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "watch.sqlite"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", _KILLED, path], check=False, env=environment)
    assert run.returncode == -9
    monitor = RiskMonitor(0.3, path=path)
    assert monitor.n_audited_ == 7


def test_threads_report_each_outcome_once(monkeypatch):
    monitor, interval = RiskMonitor(0.2), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda loss: monitor.update([loss]), [0.0, 1.0] * 150))
    sys.setswitchinterval(interval)
    assert (monitor.n_audited_, monitor.risk_) == (300, 0.5)


def test_a_failed_write_counts_nothing(tmp_path, monkeypatch):
    monitor = RiskMonitor(0.3, path=tmp_path / "watch.sqlite").update([0], ["a"])

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(monitor._store, "write", full)
        with pytest.raises(OSError, match="no space left"):
            monitor.update([1], ["b"])
    assert monitor.n_audited_ == 1
    assert monitor.update([1], ["b"]).n_audited_ == 2
