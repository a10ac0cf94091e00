"""What is thought of samples: quality, similarity, set scores, admissions and components."""

from sklearn_clm.scoring._set_scores import SetScore, get_set_score

__all__ = ["SetScore", "get_set_score"]
