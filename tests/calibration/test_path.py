"""A path whose draws are made on demand comes to the columns of all draws."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sklearn_clm.calibration._search import Frontier
from sklearn_clm.calibration.set_scores import get_set_score
from sklearn_clm.calibration.table import Table
from sklearn_clm.calibration.thresholds import ThresholdPath
from tests.calibration.strategies import SET_SCORES, calibration_data, thresholds
from tests.calibration.tables import lazy_table


@settings(max_examples=100, deadline=None)
@given(calibration_data(), thresholds(), st.integers(0, 99), st.sampled_from(SET_SCORES))
def test_columns_that_are_drawn_on_demand_are_those_of_all_draws(data, grid, seed, set_score):
    rng, k_max, n = np.random.default_rng(seed), data.k_max, data.n_prompts
    lambdas = np.vstack([[np.inf, -np.inf, np.inf], rng.choice([*grid, -np.inf, np.inf], (4, 3))])
    budgets = np.append(k_max, rng.integers(1, k_max + 1, 4))
    frontier = Frontier(lambdas, budgets, *np.zeros((2, 5)))
    score, rows = get_set_score(set_score), rng.permutation(n)
    whole = ThresholdPath(Table(data), rows, frontier, score)
    table = lazy_table(data, draws=False)
    columns = ThresholdPath(table, rows, frontier, score)
    for m in rng.permutation(5).tolist():
        made = table.n_draws[rows].copy()
        chosen = rng.random(n) < 0.5
        columns.finish(m, chosen)
        assert np.array_equal(table.n_draws[rows][~chosen], made[~chosen])
        columns.finish(m)
        assert not columns.unfinished(m).any()
        assert np.array_equal(columns[m].shown, whole[m].shown)
        assert np.array_equal(columns[m].samples, whole[m].samples)
        # draws are made up to a stop that some step wanted, and no further
        assert np.array_equal(table.n_draws[rows], np.maximum(made, whole[m].samples))
        assert columns.costs(m) == whole.costs(m)
