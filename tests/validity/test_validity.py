"""The study in reduced form, and the proof that it would notice a broken calibration."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sklearn_clm.calibration import Configuration, SamplingRule
from sklearn_clm.calibration.surface import evaluate_configurations
from sklearn_clm.scoring import get_set_score

from .claims import CLAIM_PROCEDURES, claims_in, parents_of
from .estimators import estimators, files, sampler_for
from .monitoring import monitoring_markdown, monitoring_results
from .mutations import MUTATIONS
from .orders import SEEDS
from .procedures import Setting, accepted_at_stop, mean_quality
from .report import as_markdown
from .study import SETTINGS, Cell, all_cells, claim_cell, is_noticed, order_cell, run_cell
from .worlds import WORLDS, make_world

#: Cells of a kind that the tests run: the first, and others that an odd step finds.
FEW = 3


def _name(cell: Cell) -> str:
    setting = cell.setting
    return f"{cell.procedure}-{cell.world}-{cell.set_score_name}-{setting.n}-{setting.epsilon:.3g}"


def _some_cells() -> list[Cell]:
    """A few cells of each kind, spread by an odd step; the command runs all."""
    cells = list(all_cells())
    kinds = dict.fromkeys(cell.procedure for cell in cells)
    parts = [[cell for cell in cells if cell.procedure == kind] for kind in kinds]
    return [cell for part in parts for cell in part[:: -(-len(part) // FEW) | 1]]


@pytest.mark.slow
@pytest.mark.parametrize("cell", _some_cells(), ids=_name)
def test_risk_stays_under_epsilon_with_the_promised_confidence(cell):
    result = run_cell(cell, n_calibrations=30)
    assert result.holds, f"failed {result.n_failed} times of 30, interval {result.interval}"


#: Cells near the edge of what can be certified, where a small break shows.
NEAR = [
    *(
        Cell("response_sets", "mixed", name, Setting(150, 0.35, 0.1))
        for name in ("first_k", "first_k_reject", "max", "sum")
    ),
    Cell("chosen_budget", "mixed", "max", Setting(150, 0.35, 0.1)),
    Cell("groups_each", "mixed", "max", Setting(200, 0.617, 0.1)),
    Cell("groups_all", "mixed", "max", Setting(200, 0.617, 0.1)),
    Cell("components", "mixed", "max", Setting(150, 0.5, 0.1)),
    *map(claim_cell, CLAIM_PROCEDURES),
    *(
        Cell(kind, "mixed", "exit policy", Setting(60, 0.4, 0.1))
        for kind in ("exit_policy", "cascade", "meaningless_policy", "marginal")
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("cell", NEAR, ids=_name)
def test_the_promise_is_kept_and_not_by_promising_nothing(cell):
    result = run_cell(cell, n_calibrations=400)
    assert result.holds, f"failed {result.n_failed} times of 400, interval {result.interval}"
    assert result.n_null < 200


@pytest.mark.slow
@pytest.mark.parametrize("order", ["by_outcome", "by_topic"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sorted_table_is_certified_falsely_no_more_often(order, seed):
    cell = order_cell(f"split_thresholds_{order}_seed_{seed}", "wrong_on_one_topic")
    result = run_cell(cell, n_calibrations=400)
    assert result.holds, f"failed {result.n_failed} times of 400, interval {result.interval}"
    assert result.n_failed > 0  # at a risk just above epsilon a test at delta does fail


@pytest.mark.slow
def test_answers_that_are_wrong_just_above_alpha_are_rarely_claimed():
    cell = Cell("coin_answers", "mixed", "answers", Setting(300, 0.2, 0.1))
    assert run_cell(cell, n_calibrations=400).holds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("procedure", "n"),
    [("coin_votes", 400), ("coin_choices", 150), ("choices_of_rising_risk", 100)],
)
def test_votes_that_are_wrong_just_above_alpha_are_rarely_claimed(procedure, n):
    cell = Cell(procedure, "useless_quality", "answers", Setting(300, 0.2, 0.1))
    result = run_cell(cell, n_calibrations=n)
    assert result.holds
    assert result.n_failed > 0  # it is as exact as it may be


@pytest.mark.parametrize("procedure", [estimators, files])
def test_estimators_draw_what_the_world_holds(procedure):
    world = make_world("mixed")
    rng = np.random.default_rng(0)
    assert procedure(world, "max", Setting(60, 0.6, 0.1), rng) is False
    # and predict makes the sets of the arrays
    prompts = [str(i) for i in range(60)]
    sampler = sampler_for(world, "max", Setting(60, 0.6, 0.1), 0).fit(prompts, prompts)
    part = world.population.take(np.arange(60, 160))
    accepted = accepted_at_stop(part, sampler.lambda_hat_, "max")
    sets = sampler.predict([str(i) for i in range(60, 160)])
    assert [one.indices.tolist() for one in sets] == [
        np.flatnonzero(row).tolist() for row in accepted
    ]


@pytest.mark.parametrize("folder", ["validity", "benchmarks"])
def test_runs_where_another_package_is_called_tests(folder, tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    command = [sys.executable, str(Path(__file__).parents[1] / folder), "--help"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    options = {"capture_output": True, "text": True, "cwd": tmp_path, "env": environment}
    run = subprocess.run(command, check=False, **options)
    assert run.returncode == 0, run.stderr
    assert "--short" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_the_study_notices_a_broken_calibration(name):
    mutation = MUTATIONS[name]
    assert is_noticed(mutation.cell, mutation.n, procedure=mutation.run)
    assert run_cell(mutation.cell, min(mutation.n, 50)).holds


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("set_score", ["max", "sum", "first_k", mean_quality])
def test_true_risks_are_those_of_the_sequential_rule(world, set_score):
    population = make_world(world).population.take(np.arange(150))
    score = get_set_score(set_score)
    quality = population.quality
    configuration = Configuration(
        similarity=0.6 if score.rejects_similarity else np.inf,
        quality=float(np.median(quality)) if score.rejects_quality else -np.inf,
        set_score=4.0 if set_score == "first_k" else float(np.quantile(quality, 0.8)),
    )
    accepted = np.zeros(quality.shape, dtype=bool)
    for i in range(len(quality)):
        rule = SamplingRule(configuration, score, population.k_max)
        while not rule.done:
            rule.update(quality[i, rule.n_samples], population.similarity[i, rule.n_samples])
        accepted[i, rule.accepted] = True
    np.testing.assert_array_equal(accepted_at_stop(population, configuration, set_score), accepted)
    n_errors = int((~(accepted & population.admissible).any(axis=1)).sum())
    risks = evaluate_configurations(population, [configuration], set_score=set_score)
    assert risks.n_errors.tolist() == [n_errors]


def test_scores_of_claims_are_the_least_on_their_way_up():
    world, claims = make_world("mixed"), claims_in("mixed")
    scores, parents = world.component_scores[:50], parents_of(world.component_scores)[:50]
    for i, j, c in np.argwhere(~np.isnan(scores)):
        least, above = scores[i, j, c], parents[i, j, c]
        while above >= 0:
            least, above = min(least, scores[i, j, above]), parents[i, j, above]
        assert claims.component_scores[i, j, c] == least
    assert (parents[~np.isnan(scores)] >= 0).mean() > 0.2


def test_a_cell_gives_the_same_result_again():
    cell = Cell("response_sets", "mixed", "max", SETTINGS[0])
    assert run_cell(cell, 5) == run_cell(cell, 5)


def test_the_table_shows_every_cell():
    results = [run_cell(Cell("response_sets", "mixed", "max", s), 3) for s in SETTINGS]
    table = as_markdown(results)
    assert table.count("\n| ") == len(SETTINGS)
    assert "mixed" in table


@pytest.mark.slow
def test_the_monitor_holds_its_level_and_broken_ones_are_noticed():
    results = monitoring_results(500, epsilons=(0.1, 0.3))
    assert all(result.holds and result.notices for result in results)
    # the delay after a good time is longer, but not as long as that time
    assert all(0 < result.delay < result.late_delay < 1_000 for result in results)
    assert monitoring_markdown(results).count("\n| ") == 2
