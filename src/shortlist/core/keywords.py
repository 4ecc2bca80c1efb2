"""Unknown keywords: the error names the parameter that is probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches

from shortlist.errors import ConfigError

OTHER_NAMES = {  # what other libraries call our parameters
    **dict.fromkeys(("k", "K", "n", "top_k", "topk", "top_n", "n_items", "num_items"), "N"),
    **dict.fromkeys(("user", "user_id", "user_ids", "userid"), "users"),
    **dict.fromkeys(("items", "item_ids", "items_to_recommend", "whitelist"), "candidates"),
    **dict.fromkeys(("filter_items", "items_to_exclude", "blacklist"), "exclude"),
    **dict.fromkeys(("filter_already_liked_items", "filter_viewed", "remove_seen"), "filter_seen"),
    **dict.fromkeys(("factors", "no_components", "embedding_dim", "n_components", "dim"), "n_factors"),
    **dict.fromkeys(("epochs", "iterations", "num_epochs", "n_iter"), "n_epochs"),
    **dict.fromkeys(("learning_rate", "lr_rate"), "lr"),
    **dict.fromkeys(("regularization", "l2", "reg_lambda", "weight_decay"), "reg"),
    **dict.fromkeys(("random_state", "random_seed"), "seed"),
    **dict.fromkeys(("num_threads", "n_jobs", "threads"), "n_threads"),
    **dict.fromkeys(("limit", "max_length", "max_k"), "max_items"),
    **dict.fromkeys(("time", "timestamp", "date", "when"), "at"),
    **dict.fromkeys(("model", "estimator"), "models"),
}


def check_keywords(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a keyword that the owner does not have; names similar ones."""
    names = [name for name in known if name != "self"]
    for name in given:
        if name in names:
            continue
        other = OTHER_NAMES.get(name)
        near = [other] if other in names else get_close_matches(name, names, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"its parameters are {', '.join(names)}."
        raise ConfigError(f"{owner} has no parameter {name!r:.60}; {advice}")
