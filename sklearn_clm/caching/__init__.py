"""Draws, scores and judgements that are made once and kept."""

from sklearn_clm.caching._generator import CachedGenerator
from sklearn_clm.caching._human_judge import (
    HumanJudge,
    ImportedVerdicts,
    JudgedPrompt,
    Verdict,
    VerdictsWanted,
    WantedVerdict,
)
from sklearn_clm.caching._memory import DrawMemory
from sklearn_clm.caching._scores import CachedAdmission, CachedScore

__all__ = [
    "CachedAdmission",
    "CachedGenerator",
    "CachedScore",
    "DrawMemory",
    "HumanJudge",
    "ImportedVerdicts",
    "JudgedPrompt",
    "Verdict",
    "VerdictsWanted",
    "WantedVerdict",
]
