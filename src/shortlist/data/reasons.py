"""The reasons why a list ends: the word stored in files, and its explanation."""

REASON_TEXT = {
    "top_n": "the same number of items for every user",
    "boundary": "the next item scores below this user's boundary",
    "max_items": "the maximum length is reached",
    "min_items": "filled up to the minimum length",
    "utility": "one more item would lower the expected utility of the list",
    "value": "one more item would cost more than its expected value",
    "guarantee": "the guarantee allows no more",
    "threshold": "the next item scores below the threshold",
    "no_candidate_above_boundary": "no item scores above this user's boundary",
    "no_candidates": "no candidates are left",
    "unknown_user": "unknown user",
    "fallback": "no item was good enough, so the most popular items are shown",
    "below_floor": "even the best list has too low an expected utility",
}
