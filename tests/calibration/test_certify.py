"""What is certified lazily is what the full table certifies, and nothing is asked in vain."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration import CalibrationData, fixed_sequence_test, search_frontier
from sklearn_clm.calibration._learn_then_test import certify_frontier
from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.certify import Entries, count_passed, may_ask, nth_largest_by_asking
from sklearn_clm.calibration.risk import MISSES
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.tests import BinomialTest
from sklearn_clm.calibration.thresholds import ThresholdPath
from tests.calibration.strategies import calibration_data, thresholds
from tests.calibration.tables import lazy_table

SCORES = [-np.inf, 0.0, 0.2, 0.2, 0.5, 1.0, np.inf]
WEIGHTS = {"size_weight": 0.5, "excess_weight": 0.0, "draw_weight": 0.0}
NOBODY = np.arange(0)
SET_SCORES = ["max", "sum", "first_k", "first_k_reject"]


def frontier_of(set_scores, k_max):
    """Steps that reject nothing and stop at these set scores."""
    m = len(set_scores)
    lambdas = np.column_stack((np.full(m, np.inf), np.full(m, -np.inf), set_scores))
    return Frontier(lambdas, np.full(m, k_max), np.zeros(m), np.zeros(m))


def certify(table, frontier, set_score="max", epsilon=0.4, delta=0.1):
    """What is certified of a table, all rows together."""
    rows = np.arange(len(table.n_draws))
    columns = ThresholdPath(table, rows, frontier, get_set_score(set_score))
    test = BinomialTest(columns, MISSES, epsilon, delta)
    return certify_frontier(test, searched=NOBODY, weights=WEIGHTS)


class Listed(Entries):
    """Entries of a full table, with labels that are known, and draws that are made, as they come.

    Every question is checked: it was to be expected, and no part of a batch would have been enough.
    """

    def __init__(self, owner, n, scores, truth, known, wanted, r, rng, is_drawn):
        preference = rng.choice([-np.inf, 0.0, 1.0], len(owner))
        super().__init__(owner, n, scores.copy(), wanted, preference)
        self.full, self.truth, self.r, self.rng = scores, truth, r, rng
        self._labels = np.where(known, truth, -1)
        self.drawn, self.asked, self.allowed = np.ones(len(owner), dtype=bool), [], []
        # what a draw shows for the first time may be known already: it then says two things at once
        self.checks_batches = is_drawn or not known.any()
        if not is_drawn:
            self.drawn[:], self.scores[:] = False, -np.inf
            self.reach = np.full(n, np.inf)

    @property
    def labels(self):
        return self._labels

    @property
    def places(self):
        return np.arange(len(self.owner)), np.zeros_like(self.owner)

    def draw(self, prompts):
        assert len(set(prompts.tolist())) == len(prompts)
        for i in prompts:
            missing = np.flatnonzero((self.owner == i) & ~self.drawn)
            assert self.reach[i] > -np.inf
            self.drawn[missing[:1]] = True
            self.scores[missing[:1]] = self.full[missing[:1]]
            left = self.full[missing[1:]]
            bound = left.max() if len(left) else -np.inf
            # what is said of draws to come is sometimes just right, and never rises
            self.reach[i] = min(self.reach[i], self.rng.choice([bound, max(bound, 0.5)]))
            if not len(left):
                self.reach[i] = -np.inf

    def ask(self, entries):
        assert (self._labels[entries] < 0).all()
        assert self.drawn[entries].all()
        assert len(set(self.owner[entries].tolist())) == len(entries)
        self.allowed.append(may_ask(self, self.r))
        assert self.allowed[-1][entries].all()
        for _ in range(5 * self.checks_batches):
            part = self.rng.permutation(entries)[: self.rng.integers(len(entries))]
            before = self._labels.copy()
            self._labels[part] = self.rng.random(len(part)) < self.rng.random()
            assert may_ask(self, self.r).any()
            self._labels = before
        self.asked.extend(entries.tolist())
        self._labels[entries] = self.truth[entries]


@st.composite
def tables(draw):
    """Owners, scores, truth, what is known of it, the wanted label, a rank and a seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 9))
    owner = np.repeat(np.arange(n), rng.integers(0, 6, n))
    m = len(owner)
    values = draw(st.sampled_from([SCORES, rng.random(60).tolist()]))
    truth = (rng.random(m) < draw(st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))).astype(np.int8)
    known = rng.random(m) < draw(st.sampled_from([0.0, 0.0, 0.3, 1.0]))
    wanted, r = draw(st.sampled_from([0, 1])), draw(st.integers(1, n + 1))
    return owner, n, rng.choice(values, m), truth, known, wanted, r, rng


@settings(max_examples=400, deadline=None)
@given(tables(), st.booleans())
def test_the_value_is_that_of_the_full_table(table, is_drawn):
    owner, n, scores, truth, _, wanted, r, _ = table
    largest = sorted(
        (max(scores[(owner == i) & (truth == wanted)].tolist(), default=-np.inf) for i in range(n)),
        reverse=True,
    )
    entries = Listed(*table, is_drawn)
    assert nth_largest_by_asking(entries, r) == ([*largest, -np.inf][r - 1])
    assert len(set(entries.asked)) == len(entries.asked)
    # what may be asked only falls, and is nothing in the end
    entries.allowed.append(may_ask(entries, r))
    assert not entries.allowed[-1].any()
    for earlier, later in itertools.pairwise(entries.allowed):
        assert not (later & ~earlier).any()


def test_a_batch_is_what_any_walk_needs():
    batches = []

    class Asked(Listed):
        def ask(self, entries):
            batches.append(len(entries))
            super().ask(entries)

    owner, truth = np.repeat(np.arange(40), 5), np.ones(200, dtype=np.int8)
    known, rng = np.zeros(200, dtype=bool), np.random.default_rng(0)
    entries = Asked(owner, 40, np.ones(200), truth, known, 1, 33, rng, True)
    assert nth_largest_by_asking(entries, 33) == 1.0
    assert sum(batches) == 33
    assert batches[0] == 8  # so many without a witness would decide it, too


def test_a_prompt_that_counts_anyway_is_not_asked_about():
    # the second one is known to reach 4, and the third largest is 3 at most
    owner, scores = np.array([0, 1, 1, 2, 3, 4]), np.array([10.0, 9.0, 4.0, 3.0, 2.8, 2.8])
    truth = np.array([1, 0, 1, 1, 0, 0], dtype=np.int8)
    known = np.array([False, False, True, True, False, False])
    entries = Listed(owner, 5, scores, truth, known, 1, 3, np.random.default_rng(0), True)
    assert nth_largest_by_asking(entries, 3) == 3.0
    assert entries.asked == [0]


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 14))
def test_fixed_sequences_end_at_the_first_failure(passes, start):
    decided = []

    def decide(m):
        decided.append(m)
        return passes[m]

    expected = len(list(itertools.takewhile(bool, passes)))
    assert count_passed(decide, len(passes), start) == expected
    assert len(set(decided)) == len(decided)
    assert set(decided) <= {*range(expected + 1), min(start, len(passes) - 1)}


@settings(max_examples=100, deadline=None)
@given(
    p_values=st.lists(st.sampled_from([0.0, 0.01, 0.05, 0.0500001, 1.0]), max_size=12),
    delta=st.sampled_from([0.01, 0.05, 0.5]),
)
def test_rejects_up_to_the_first_failure(p_values, delta):
    rejected = fixed_sequence_test(p_values, delta)
    n = next((i for i, p in enumerate(p_values) if p > delta), len(p_values))
    assert rejected.tolist() == [True] * n + [False] * (len(p_values) - n)


@settings(max_examples=100, deadline=None)
@given(calibration_data(), thresholds(), st.sampled_from([0.5, 0.8, 0.95]), st.data())
def test_no_order_and_no_missing_draw_changes_what_is_certified(data, grid, epsilon, more):
    k_max, rng = data.k_max, np.random.default_rng(more.draw(st.integers(0, 99)))
    lambdas = np.vstack([[np.inf, -np.inf, np.inf], rng.choice([*grid, -np.inf, np.inf], (7, 3))])
    # the losses say where the walk begins
    frontier = Frontier(
        lambdas, np.append(k_max, rng.integers(1, k_max + 1, 7)), rng.random(8), np.zeros(8)
    )
    options = {"set_score": more.draw(st.sampled_from(SET_SCORES)), "epsilon": epsilon}
    full = certify(Table(data), frontier, delta=0.2, **options)
    share = more.draw(st.sampled_from([0.0, 0.4]))
    known = np.where(rng.random(data.quality.shape) < share, data.labels, -1)
    for draws in (True, False):
        table = lazy_table(data, draws=draws, known=known)
        found = certify(table, frontier, delta=0.2, **options)
        assert (found.n_valid, found.position) == (full.n_valid, full.position)
        n_passed = found.n_valid
        certified = np.arange(8) < n_passed
        assert np.all(found.n_errors[certified] >= full.n_errors[certified])
        last = slice(n_passed, n_passed + 1)
        assert np.all(found.n_errors[last] <= full.n_errors[last])
        assert np.array_equal(found.n_errors[found.exact], full.n_errors[found.exact])
        assert found.n_judgements == table.n_judgements
        assert np.all((table.labels < 0) | (table.labels == data.labels))


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_no_more_is_asked_than_was_said_beforehand(share):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        truth = rng.random((30, 4)) < rng.random()
        data = CalibrationData(rng.random((30, 4)), rng.random((30, 4, 4)), truth)
        frontier = search_frontier(data, n_lambdas=4)
        bounds, tests = [], []

        def judge(rows, draws, truth=truth, bounds=bounds, tests=tests):
            bounds.append(tests[0].may_ask())
            assert bounds[-1][rows, draws].all()
            return truth[rows, draws]

        known = np.where(rng.random((30, 4)) < share, truth, -1)
        table = Table(data.with_labels(known), judge=judge)
        columns = ThresholdPath(table, np.arange(30), frontier, get_set_score("max"))
        tests.append(BinomialTest(columns, MISSES, 0.4, 0.1))
        certify_frontier(tests[0], searched=NOBODY, weights=WEIGHTS, select="last")
        bounds.append(tests[0].may_ask())
        for earlier, later in itertools.pairwise(bounds):
            assert not (later & ~earlier).any()


def test_nothing_is_asked_after_a_failure_that_is_known():
    data = CalibrationData(np.ones((40, 2)), np.zeros((40, 2, 2)), np.zeros((40, 2)))
    known = np.where(np.arange(40)[:, None] < 30, 0, -1) * np.ones((1, 2), dtype=int)
    table = Table(data.with_labels(known), judge=lambda rows, draws: pytest.fail("asked"))
    found = certify(table, frontier_of([np.inf, 1.0, 0.5], 2), epsilon=0.3)
    assert found.lambda_hat is None


def test_witnesses_serve_later_configurations():
    data = CalibrationData(np.ones((10, 3)), np.zeros((10, 3, 3)), np.ones((10, 3)))
    table = lazy_table(data)
    assert certify(table, frontier_of([np.inf] * 5, 3), delta=0.2).n_valid == 5
    assert table.n_judgements == 8  # two prompts of ten may err
