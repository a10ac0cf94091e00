"""Which configuration is safe: arrays in, thresholds out."""

from sklearn_clm.calibration._binomial import (
    binomial_p_value,
    clopper_pearson,
    critical_count,
    prompts_needed,
    smallest_epsilon,
)
from sklearn_clm.calibration._bounded_losses import betting_p_value, hoeffding_bentkus_p_value
from sklearn_clm.calibration._components import (
    ComponentCalibrationData,
    ComponentThreshold,
    component_learn_then_test,
)
from sklearn_clm.calibration._data import CalibrationData
from sklearn_clm.calibration._exit_policy import (
    ExitModel,
    ExitRule,
    exit_level,
    exit_scores,
    fit_exit_model,
)
from sklearn_clm.calibration._fixed_sequence import fixed_sequence_test
from sklearn_clm.calibration._grid import threshold_grid
from sklearn_clm.calibration._lazy_judging import (
    CurtailedTest,
    LabelTable,
    equal_texts,
    impute_labels,
    judge_in_falling_order,
    judge_lazily,
    learn_then_test_lazily,
    sets_at_stop,
)
from sklearn_clm.calibration._learn_then_test import (
    AchievableEpsilon,
    Frontier,
    LearnThenTestResult,
    achievable_epsilon,
    learn_then_test,
    search_frontier,
)
from sklearn_clm.calibration._pareto import pareto_frontier
from sklearn_clm.calibration._provenance import Provenance
from sklearn_clm.calibration._rule import Configuration, SamplingRule, relative_excess
from sklearn_clm.calibration._set_scores import SetScore, get_set_score
from sklearn_clm.calibration._shift import (
    group_sequence_tests,
    keep_by_weight,
    weighted_betting_p_value,
)
from sklearn_clm.calibration._surface import (
    ConfigurationRisks,
    RiskSurface,
    evaluate_configurations,
    risk_surface,
)

__all__ = [
    "AchievableEpsilon",
    "CalibrationData",
    "ComponentCalibrationData",
    "ComponentThreshold",
    "Configuration",
    "ConfigurationRisks",
    "CurtailedTest",
    "ExitModel",
    "ExitRule",
    "Frontier",
    "LabelTable",
    "LearnThenTestResult",
    "Provenance",
    "RiskSurface",
    "SamplingRule",
    "SetScore",
    "achievable_epsilon",
    "betting_p_value",
    "binomial_p_value",
    "clopper_pearson",
    "component_learn_then_test",
    "critical_count",
    "equal_texts",
    "evaluate_configurations",
    "exit_level",
    "exit_scores",
    "fit_exit_model",
    "fixed_sequence_test",
    "get_set_score",
    "group_sequence_tests",
    "hoeffding_bentkus_p_value",
    "impute_labels",
    "judge_in_falling_order",
    "judge_lazily",
    "keep_by_weight",
    "learn_then_test",
    "learn_then_test_lazily",
    "pareto_frontier",
    "prompts_needed",
    "relative_excess",
    "risk_surface",
    "search_frontier",
    "sets_at_stop",
    "smallest_epsilon",
    "threshold_grid",
    "weighted_betting_p_value",
]
