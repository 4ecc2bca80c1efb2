"""Models: one contract, one joint engine, the paper's names."""

from shortlist.models.base import Recommender, load_model
from shortlist.models.counting import PersonalFrequency, Popularity
from shortlist.models.ease import EASE
from shortlist.models.factorization.hrm import DKHRM, HRM
from shortlist.models.factorization.mf import BPRMF, CRRMF, DKBPRMF, LogMF
from shortlist.models.precomputed import PrecomputedScores, from_implicit
from shortlist.models.tifuknn import TIFUKNN
from shortlist.models.two_stage.two_stage import TwoStage

__all__ = [
    "BPRMF",
    "CRRMF",
    "DKBPRMF",
    "DKHRM",
    "EASE",
    "HRM",
    "TIFUKNN",
    "LogMF",
    "PersonalFrequency",
    "Popularity",
    "PrecomputedScores",
    "Recommender",
    "TwoStage",
    "from_implicit",
    "load_model",
]
