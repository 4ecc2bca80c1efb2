"""Training as the verbs do it: rehearse before every user's last basket, then learn from everything."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import shortlist as sl
from shortlist.cli.progress import epochs
from shortlist.cli.screen import say
from shortlist.errors import DataError

if TYPE_CHECKING:
    from shortlist.cutoff import Cutoff
    from shortlist.data.interactions import Interactions
    from shortlist.data.lists import RankedLists

Seen = Literal["auto", "keep", "drop"]
HEAD = 100  # candidates per user that a cutoff looks at


@dataclass(frozen=True)
class Rehearsal:
    """What a model would have shown before the users' last baskets, and what was in them."""

    model: Any
    heads: "RankedLists"
    truth: "Interactions"
    history: "Interactions"

    def decided(self, cutoff: "Cutoff") -> "Cutoff":
        """The cutoff, fitted on what happened."""
        return cutoff.fit(self.heads, self.truth, history=self.history)


def rehearse(model: Any, data: "Interactions", keep_seen: bool) -> Rehearsal | None:
    """Train without the last baskets; None, with a word, where nobody has two of them."""
    try:
        split = sl.split.last_basket(data)
    except DataError as error:
        say(f"no validation, so {type(model).__name__} is trained as its parameters say: {error}")
        return None
    history, truth = split.train_valid, split.test
    trained = learned(model, history, truth)
    users = truth.users.outside(truth.active_users)
    heads = trained.recommend(users, N=HEAD, filter_seen=not keep_seen)
    return Rehearsal(trained, heads, truth, history)


def learned(model: Any, data: "Interactions", valid: "Interactions | None" = None) -> Any:
    """A fitted copy; Ctrl-C leaves nothing, where the library would keep the state so far."""
    from shortlist.models.joint import JointModel

    fresh = model.clone()
    if not isinstance(fresh, JointModel):
        return fresh.fit(data)
    label = f"{'training' if valid is None else 'rehearsing'} {type(model).__name__}"
    with epochs(label) as progress:
        fresh.fit(data, valid=valid, progress=progress)
    if fresh.stopped_ == "interrupted":
        raise KeyboardInterrupt
    return fresh


def relearned(rehearsal: Rehearsal, data: "Interactions") -> Any:
    """The rehearsed model on all of `data`, for as many epochs as were best."""
    final = rehearsal.model.clone()
    if hasattr(rehearsal.model, "n_epochs_"):
        final.n_epochs = rehearsal.model.n_epochs_
        say(f"{type(final).__name__}: {final.n_epochs} epochs were best on the users' last baskets")
    return learned(final, data)


def keeps_seen(wish: Seen, data: "Interactions") -> bool:
    """Whether items taken before stay candidates; `auto` asks the data whether users come back to them."""
    if wish != "auto":
        return wish == "keep"
    fate = "users take items again, so seen items may be shown"
    say(fate if data.returns else "users take nothing twice, so seen items are left out")
    return data.returns
