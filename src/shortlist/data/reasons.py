"""Why a list ends where it ends: the word that files carry, and what it means to a person."""

WHY = {
    "top_n": "the same number of items for everybody",
    "boundary": "the next item lies below this user's boundary",
    "max_items": "the longest list allowed",
    "min_items": "filled up to the shortest list allowed",
    "utility": "one more item would lower the expected worth of the list",
    "value": "one more item would cost more than it brings",
    "guarantee": "the guarantee allows no more",
    "threshold": "the next item lies below the threshold",
    "no_candidate_above_boundary": "nothing lies above this user's boundary",
    "no_candidates": "there is nothing left to choose from",
    "unknown_user": "nobody knows this user",
    "fallback": "nothing was good enough, so this is what most people take",
    "below_floor": "even the best list would not be worth showing",
}
