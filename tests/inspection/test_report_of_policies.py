"""Reports say which guarantee holds, and what was judged."""

import numpy as np
import pytest

from sklearn_clm import ConformalSampler, NullCalibrationWarning
from sklearn_clm.calibration import smallest_epsilon
from sklearn_clm.generators import PrecomputedGenerator
from sklearn_clm.inspection import CalibrationReport, PromptGainDisplay
from sklearn_clm.policies import ExitPolicy, Groups
from tests.toy import ToyModel, questions


def fitted(n=200, references=None, **options):
    prompts, right = questions(n)
    options = {"k_max": 5, "epsilon": 0.4, "random_state": 0, **options}
    sampler = ConformalSampler(ToyModel(), **options)
    return sampler.fit(prompts, right if references is None else references)


def report(n=200, references=None, **options):
    return CalibrationReport.from_estimator(fitted(n, references, **options)).to_markdown()


def test_exit_policies_and_both_guarantees():
    sampler = fitted(policy=ExitPolicy())
    text = str(CalibrationReport.from_estimator(sampler))
    assert "With confidence 95 % over the calibration prompts" in text
    assert "## Exit policy" in text
    assert "level u-hat" in text
    assert "optimisation part, learns the policy" in text
    assert "k_max a sequence" not in text
    left, labels = sampler.calibration_.rule.result, sampler.calibration_data_.admissible
    n = left.n_calibration
    assert left.n_hopeless <= left.n_errors <= left.n_errors_allowed
    assert left.n_hopeless <= np.sum(~labels.any(axis=1))
    assert (left.sizes.mean(), left.draws.mean()) == (left.size, left.samples)
    assert f"| error | {left.n_errors / n:.4f} |" in text
    smallest = np.ceil(smallest_epsilon(left.n_hopeless, n, 0.05) * 1e4) / 1e4
    assert f"| 1 x | {n} | {smallest:.4f} |" in text
    assert f"| always one draw | {1 - labels[:, 0].mean():.4f} |" in text
    sampler = fitted(policy=ExitPolicy(guarantee="marginal"))
    with pytest.raises(ValueError, match="estimator"):
        PromptGainDisplay.from_estimator(sampler)
    text = str(CalibrationReport.from_estimator(sampler))
    assert "marginal guarantee" in text
    assert "With confidence" not in text


def test_lazy_judging_shows_bounds_and_judgements():
    text = report(judging="lazy")
    assert "at most" in text
    assert "## Judgements" in text
    assert "Labels were asked for until each decision was forced" in text


def odd(prompt):
    return int(prompt.split()[-1]) % 2 == 1


def test_what_a_lazily_found_exit_level_errs_at_most():
    groups = Groups(by=odd, unknown="pooled")
    sampler = fitted(400, policy=ExitPolicy(), judging="lazy", groups=groups)
    for rule in (sampler.calibration_.rule, *sampler.groups_.values()):
        assert rule.certified
        assert rule.result.n_errors <= rule.result.n_errors_allowed
    rows = str(CalibrationReport.from_estimator(sampler)).splitlines()
    rows = [row for row in rows if row.startswith(("| error |", "| True |", "| False |"))]
    assert len(rows) == 3
    assert all("at most" in row for row in rows)
    rows = str(CalibrationReport.from_estimator(fitted(policy=ExitPolicy()))).splitlines()
    assert not any("at most" in row for row in rows if row.startswith("| error |"))


def test_null_reports():
    for policy, what in ((ExitPolicy(), "no exit level"), (None, "no configuration")):
        with pytest.warns(NullCalibrationWarning):
            text = report(references=["none"] * 200, policy=policy, judging="lazy")
        assert "Nothing could be certified" in text
        assert f"{what} is certified" in text


@pytest.mark.parametrize(("n_errors", "n"), [(0, 60), (1, 113), (3, 113), (30, 300)])
def test_what_more_prompts_bring_is_the_binomial_bound(n_errors, n):
    pytest.importorskip("matplotlib")
    display = PromptGainDisplay(n_errors=n_errors, n_calibration=n, delta=0.05, level=0.12).plot()
    sizes, levels = display.ax_.lines[0].get_data()
    # no level can be certified below that of no error at all
    assert np.all(levels >= 1.0 - 0.05 ** (1.0 / sizes) - 1e-9)
    assert np.all(np.diff(levels) < 0.0)
    whole = np.isclose((sizes * n_errors / n) % 1.0, 0.0)
    assert np.allclose(levels[whole], display.smallest(sizes[whole]), atol=1e-6)
    assert np.all(levels <= display.smallest(sizes) + 1e-6)


def test_a_null_by_texts_that_are_taken_for_one_says_so():
    rng = np.random.default_rng(0)
    prompts = [f"What is {i} + 1?" for i in range(300)]
    references = [f"The answer is {i + 1}." for i in range(300)]
    draws = [
        [f"The answer is {i + 1 + (rng.random() < 0.4) * rng.integers(1, 9)}." for _ in range(10)]
        for i in range(300)
    ]
    generator = PrecomputedGenerator(prompts, draws)
    options = {"k_max": 10, "quality": "self_consistency", "epsilon": 0.2, "random_state": 0}
    sampler = ConformalSampler(generator, policy=ExitPolicy(same_text=0.5), **options)
    with pytest.warns(NullCalibrationWarning, match="same_text") as noted:
        sampler.fit(prompts, references)
    assert "Hardly any" not in str(noted[0].message)
    missed = sum(right not in one for right, one in zip(references, sampler.predict(prompts)))
    assert missed == 0
    assert sampler.calibration_.rule.result.n_errors == 0
    apart = ConformalSampler(generator, policy=ExitPolicy(), **options).fit(prompts, references)
    assert apart.calibration_.certified
