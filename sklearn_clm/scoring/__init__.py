"""What samples are worth: quality, similarity, set scores, admissions and components."""

from sklearn_clm.calibration import SetScore, get_set_score
from sklearn_clm.scoring._admission import (
    LabelMatch,
    ThresholdAdmission,
    admission_matrix,
    get_admission,
    label_match,
    threshold_admission,
)
from sklearn_clm.scoring._components import (
    ComponentClassifier,
    ComponentMatch,
    Occurrence,
    RandomScore,
    SpanLikelihood,
    Support,
    component_match,
    component_of,
    component_scores,
    component_spans,
    get_component_admission,
    get_component_score,
)
from sklearn_clm.scoring._entailment import EntailmentAdmission, EntailmentScore
from sklearn_clm.scoring._exact_match import exact_match, normalize_answer
from sklearn_clm.scoring._language_model import LLMJudge, PTrue, VerbalizedConfidence
from sklearn_clm.scoring._protocols import (
    AskingQuality,
    ComponentScore,
    DrawScorer,
    PairJudge,
    PairScorer,
    PairwiseSimilarity,
)
from sklearn_clm.scoring._quality import (
    ClassifierQuality,
    SelfConsistency,
    get_quality,
    likelihood,
    quality_matrix,
)
from sklearn_clm.scoring._similarity import (
    exact_match_similarity,
    get_similarity,
    rouge_l,
    rouge_l_matrix,
    similarity_tensor,
)
from sklearn_clm.scoring._splitters import (
    SentenceSplitter,
    get_splitter,
    split_lines,
    split_periods,
)

__all__ = [
    "AskingQuality",
    "ClassifierQuality",
    "ComponentClassifier",
    "ComponentMatch",
    "ComponentScore",
    "DrawScorer",
    "EntailmentAdmission",
    "EntailmentScore",
    "LLMJudge",
    "LabelMatch",
    "Occurrence",
    "PTrue",
    "PairJudge",
    "PairScorer",
    "PairwiseSimilarity",
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
