"""From scores to lists: candidates and seen items, exact retrieval, a decision, and the reason for it."""

from shortlist.recommend.explain import explain
from shortlist.recommend.recommend import recommend
from shortlist.recommend.request import renamed
from shortlist.recommend.retriever import prepare
from shortlist.recommend.scorer import Scorer
from shortlist.recommend.similar import similar_items
from shortlist.recommend.stream import recommend_to

__all__ = ["Scorer", "explain", "prepare", "recommend", "recommend_to", "renamed", "similar_items"]
