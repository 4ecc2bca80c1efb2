"""Models: one contract, one joint engine, the paper's names."""

from shortlist.models.base import Recommender, load_model
from shortlist.models.counting import PersonalFrequency, Popularity
from shortlist.models.hrm import DKHRM, HRM
from shortlist.models.mf import BPRMF, CRRMF, DKBPRMF, LogMF
from shortlist.models.outside import OutsideScores, from_implicit

__all__ = [
    "BPRMF",
    "CRRMF",
    "DKBPRMF",
    "DKHRM",
    "HRM",
    "LogMF",
    "OutsideScores",
    "PersonalFrequency",
    "Popularity",
    "Recommender",
    "from_implicit",
    "load_model",
]
