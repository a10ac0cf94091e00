"""What is thought of samples: quality, similarity, set scores, admissions and components."""

from typing import TYPE_CHECKING

from sklearn_clm._lazy import lazy_names
from sklearn_clm.scoring._admission import (
    ThresholdAdmission,
    admission_matrix,
    get_admission,
    threshold_admission,
)
from sklearn_clm.scoring._classifier_quality import ClassifierQuality
from sklearn_clm.scoring._exact_match import exact_match, normalize_answer
from sklearn_clm.scoring._label_match import LabelMatch, label_match
from sklearn_clm.scoring._quality import get_quality, likelihood, quality_matrix
from sklearn_clm.scoring._rouge import rouge_l, rouge_l_matrix
from sklearn_clm.scoring._self_consistency import SelfConsistency
from sklearn_clm.scoring._set_scores import SetScore, get_set_score
from sklearn_clm.scoring._similarity import (
    exact_match_similarity,
    get_similarity,
    similarity_tensor,
)

if TYPE_CHECKING:
    from sklearn_clm.scoring._cached import CachedAdmission, CachedScore
    from sklearn_clm.scoring._component_admission import (
        ComponentMatch,
        component_match,
        get_component_admission,
    )
    from sklearn_clm.scoring._component_scorers import (
        ComponentClassifier,
        RandomScore,
        SpanLikelihood,
        Support,
    )
    from sklearn_clm.scoring._component_scores import (
        ComponentScore,
        component_scores,
        get_component_score,
    )
    from sklearn_clm.scoring._component_spans import (
        component_of,
        component_spans,
    )
    from sklearn_clm.scoring._distinct_components import (
        Occurrence,
    )
    from sklearn_clm.scoring._entailment import (
        EntailmentAdmission,
        EntailmentScore,
    )
    from sklearn_clm.scoring._judge import LLMJudge
    from sklearn_clm.scoring._splitters import (
        SentenceSplitter,
        get_splitter,
        split_lines,
        split_periods,
    )
    from sklearn_clm.scoring._verbalized import PTrue, VerbalizedConfidence
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "_cached": ["CachedAdmission", "CachedScore"],
            "_component_admission": [
                "ComponentMatch",
                "component_match",
                "get_component_admission",
            ],
            "_component_scorers": [
                "ComponentClassifier",
                "RandomScore",
                "SpanLikelihood",
                "Support",
            ],
            "_component_scores": ["ComponentScore", "component_scores", "get_component_score"],
            "_component_spans": ["component_of", "component_spans"],
            "_distinct_components": ["Occurrence"],
            "_entailment": ["EntailmentAdmission", "EntailmentScore"],
            "_judge": ["LLMJudge"],
            "_splitters": ["SentenceSplitter", "get_splitter", "split_lines", "split_periods"],
            "_verbalized": ["PTrue", "VerbalizedConfidence"],
        },
    )

__all__ = [
    "CachedAdmission",
    "CachedScore",
    "ClassifierQuality",
    "ComponentClassifier",
    "ComponentMatch",
    "ComponentScore",
    "EntailmentAdmission",
    "EntailmentScore",
    "LLMJudge",
    "LabelMatch",
    "Occurrence",
    "PTrue",
    "RandomScore",
    "SelfConsistency",
    "SentenceSplitter",
    "SetScore",
    "SpanLikelihood",
    "Support",
    "ThresholdAdmission",
    "VerbalizedConfidence",
    "admission_matrix",
    "component_match",
    "component_of",
    "component_scores",
    "component_spans",
    "exact_match",
    "exact_match_similarity",
    "get_admission",
    "get_component_admission",
    "get_component_score",
    "get_quality",
    "get_set_score",
    "get_similarity",
    "get_splitter",
    "label_match",
    "likelihood",
    "normalize_answer",
    "quality_matrix",
    "rouge_l",
    "rouge_l_matrix",
    "similarity_tensor",
    "split_lines",
    "split_periods",
    "threshold_admission",
]
