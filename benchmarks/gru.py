"""A gated recurrent unit over item sequences, trained by sampled softmax, in NumPy.

The state after each item is scored against the item vectors. The loss is the cross-entropy of the next item
against a sample of the catalogue that all positions of a batch share, drawn uniformly; the logits of the
sample are raised by the logarithm of the sampling rate, so that the loss estimates the full softmax. One
thread of BLAS, one random stream: the same seed gives the same model. Shorter sequences of a batch are padded
in front; the state passes over padding as over an item without a vector.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

Array = np.ndarray
Cache = tuple[Array, ...]


@dataclass
class GRU:
    """Item vectors, biases and one recurrent layer; items are 0 … n_items - 1 and n_items is padding."""

    n_items: int
    n_factors: int = 64
    length: int = 100  # items of a training sequence; longer histories are divided
    batch: int = 64
    n_sampled: int = 1024
    lr: float = 2e-3
    dropout: float = 0.3
    seed: int = 0
    n_epochs: int = 0  # trained so far
    params: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        d, scale = self.n_factors, 1 / np.sqrt(self.n_factors)

        def draw(*shape: int) -> Array:
            return (self.rng.standard_normal(shape) * scale).astype(np.float32)

        self.params = {
            "items": draw(self.n_items + 1, d) * np.float32(0.5),
            "bias": np.zeros(self.n_items, np.float32),
            "input": draw(d, 3 * d),
            "state": draw(d, 3 * d),
            "gates": np.zeros(3 * d, np.float32),
            "output": np.eye(d, dtype=np.float32),
        }
        self.params["items"][-1] = 0
        self.adam_means = {name: (np.zeros_like(p), np.zeros_like(p)) for name, p in self.params.items()}
        self.n_steps = 0

    # ------------------------------------------------------------------ recurrence
    def forward(self, x: Array, h: Array) -> tuple[Array, Cache]:
        """(T, B, d) states after each input, and what `backward` needs."""
        p, d = self.params, self.n_factors
        gates_x = (x.reshape(-1, d) @ p["input"] + p["gates"]).reshape(*x.shape[:2], 3 * d)
        before, rz, new, state_part = (np.empty((*x.shape[:2], n), x.dtype) for n in (d, 2 * d, d, d))
        states = np.empty_like(x)
        for t in range(x.shape[0]):
            before[t] = h
            from_state = h @ p["state"]
            gate = rz[t]
            np.add(gates_x[t, :, : 2 * d], from_state[:, : 2 * d], out=gate)
            gate *= np.float32(0.5)
            np.tanh(gate, out=gate)
            gate += 1
            gate *= np.float32(0.5)
            state_part[t] = from_state[:, 2 * d :]
            np.tanh(gates_x[t, :, 2 * d :] + gate[:, :d] * state_part[t], out=new[t])
            h = new[t] + gate[:, d:] * (h - new[t])
            states[t] = h
        return states, (x, before, rz, new, state_part)

    def backward(self, d_states: Array, cache: Cache) -> tuple[Array, dict[str, Array]]:
        """Gradients of the inputs and of the weights."""
        p, d = self.params, self.n_factors
        x, before, rz, new, state_part = cache
        d_x_gates, d_h_gates = (np.empty((*x.shape[:2], 3 * d), x.dtype) for _ in range(2))
        d_h, back = np.zeros_like(before[0]), np.ascontiguousarray(p["state"].T)
        slope_n, slope_rz = 1 - new * new, rz * (1 - rz)
        for t in range(x.shape[0] - 1, -1, -1):
            d_h += d_states[t]
            r, z = rz[t, :, :d], rz[t, :, d:]
            d_n = d_h * (1 - z)
            d_n *= slope_n[t]
            xg, hg = d_x_gates[t], d_h_gates[t]
            xg[:, 2 * d :] = d_n
            hg[:, 2 * d :] = d_n * r
            xg[:, :d] = d_n * state_part[t]
            xg[:, d : 2 * d] = d_h * (before[t] - new[t])
            xg[:, : 2 * d] *= slope_rz[t]
            hg[:, : 2 * d] = xg[:, : 2 * d]
            d_h *= z
            d_h += hg @ back
        flat_x, flat_h = d_x_gates.reshape(-1, 3 * d), d_h_gates.reshape(-1, 3 * d)
        grads = {
            "input": x.reshape(-1, d).T @ flat_x,
            "state": before.reshape(-1, d).T @ flat_h,
            "gates": flat_x.sum(axis=0),
        }
        return (flat_x @ p["input"].T).reshape(x.shape), grads

    # ------------------------------------------------------------------ training
    def loss(
        self, inputs: Array, targets: Array, sampled: Array, masks: tuple[Array, Array]
    ) -> tuple[float, dict[str, Array]]:
        """Mean cross-entropy of a batch (T, B), and the gradients; targets of n_items are left out."""
        p, d = self.params, self.n_factors
        x = p["items"][inputs] * masks[0]
        states, cache = self.forward(x, np.zeros((inputs.shape[1], d), x.dtype))
        valid = np.flatnonzero(targets.ravel() < self.n_items)
        target, n = targets.ravel()[valid], np.float32(valid.size)
        used, drop = states.reshape(-1, d)[valid], masks[1].reshape(-1, d)[valid]
        dropped = used * drop
        h = dropped @ p["output"]
        vectors, own = p["items"][sampled], p["items"][target]
        logits = h @ vectors.T
        logits += p["bias"][sampled] + np.float32(np.log(self.n_items / sampled.size))
        place = np.full(self.n_items, -1)
        place[sampled] = np.arange(sampled.size)
        hit = np.flatnonzero(place[target] >= 0)
        logits[hit, place[target[hit]]] = -np.inf  # the target itself is not among its negatives
        first = np.einsum("nd,nd->n", h, own) + p["bias"][target]
        top = np.maximum(logits.max(axis=1), first)
        logits -= top[:, None]
        np.exp(logits, out=logits)
        mine = np.exp(first - top)
        total = logits.sum(axis=1) + mine
        loss = float((np.log(total) - (first - top)).mean())
        logits /= (total * n)[:, None]
        d_first = (mine / total - 1) / n
        d_h = logits @ vectors + d_first[:, None] * own
        d_items = np.zeros_like(p["items"])
        d_items[sampled] = logits.T @ h
        _add_rows(d_items, target, d_first[:, None] * h)
        d_bias = np.zeros_like(p["bias"])
        d_bias[sampled] = logits.sum(axis=0)
        d_bias += np.bincount(target, d_first, self.n_items).astype(x.dtype)
        d_states = np.zeros((targets.size, d), x.dtype)
        d_states[valid] = (d_h @ p["output"].T) * drop
        d_x, grads = self.backward(d_states.reshape(states.shape), cache)
        _add_rows(d_items, inputs.ravel(), (d_x * masks[0]).reshape(-1, d))
        d_items[-1] = 0
        grads |= {"items": d_items, "bias": d_bias, "output": dropped.T @ d_h}
        return loss, grads

    def fit_epoch(self, sequences: list[Array]) -> float:
        """One pass over all positions; the mean loss."""
        losses = []
        for inputs, targets in self._batches(sequences):
            shape = (*inputs.shape, self.n_factors)
            kept = np.float32(1 - self.dropout)
            masks = tuple((self.rng.random(shape, np.float32) < kept) / kept for _ in range(2))
            sampled = self.rng.choice(self.n_items, min(self.n_sampled, self.n_items), replace=False)
            loss, grads = self.loss(inputs, targets, sampled, masks)
            self._step(grads)
            losses.append(loss)
        self.n_epochs += 1
        return float(np.mean(losses))

    def _batches(self, sequences: list[Array]) -> Iterator[tuple[Array, Array]]:
        """Sequences of similar lengths together, in random order; the first piece of a user varies."""
        pieces = []
        for sequence in sequences:
            end = sequence.size
            step = int(self.rng.integers(self.length // 2, self.length + 1))
            while end > 1:
                pieces.append(sequence[max(0, end - step - 1) : end])
                end, step = end - step, self.length
        order = np.argsort([p.size for p in pieces] + self.rng.random(len(pieces)), kind="stable")
        groups = np.array_split(order, max(1, -(-len(pieces) // self.batch)))
        for number in self.rng.permutation(len(groups)):
            chosen = [pieces[k] for k in groups[number]]
            longest = max(p.size for p in chosen)
            table = np.full((longest, len(chosen)), self.n_items)
            for column, piece in enumerate(chosen):
                table[longest - piece.size :, column] = piece
            yield table[:-1], table[1:].copy()

    def _step(self, grads: dict[str, Array], b1: float = 0.9, b2: float = 0.98) -> None:
        """Adam, with gradients limited to a norm of 1."""
        self.n_steps += 1
        norm = np.sqrt(sum(float((g * g).sum()) for g in grads.values()))
        limit = np.float32(min(1.0, 1.0 / max(norm, 1e-9)))
        rate = self.lr * np.sqrt(1 - b2**self.n_steps) / (1 - b1**self.n_steps)
        for name, gradient in grads.items():
            m, v = self.adam_means[name]
            g = gradient * limit
            m += np.float32(1 - b1) * (g - m)
            v += np.float32(1 - b2) * (g * g - v)
            self.params[name] -= np.float32(rate) * m / (np.sqrt(v) + np.float32(1e-8))

    # ------------------------------------------------------------------ scores
    def states(self, sequences: list[Array], n_last: int = 1, length: int = 200) -> Array:
        """(n_sequences, n_last, d) outputs after each of the last items; earlier ones come first."""
        found = np.zeros((len(sequences), n_last, self.n_factors), np.float32)
        order = np.argsort([s.size for s in sequences], kind="stable")
        for group in np.array_split(order, max(1, -(-len(sequences) // 256))):
            longest = min(length, max(sequences[k].size for k in group))
            table = np.full((max(longest, n_last), group.size), self.n_items)
            for column, k in enumerate(group):
                piece = sequences[k][-longest:]
                table[table.shape[0] - piece.size :, column] = piece
            start = np.zeros((group.size, self.n_factors), np.float32)
            states, _ = self.forward(self.params["items"][table], start)
            found[group] = (states[-n_last:] @ self.params["output"]).transpose(1, 0, 2)
        return found

    def scores(self, states: Array) -> Array:
        """(n, n_items) log-probabilities without their normalization."""
        return states @ self.params["items"][:-1].T + self.params["bias"]


def _add_rows(total: Array, rows: Array, values: Array) -> None:
    """Add each row of values to its row of the total; rows may repeat."""
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    first = np.flatnonzero(np.concatenate([[True], sorted_rows[1:] != sorted_rows[:-1]]))
    total[sorted_rows[first]] += np.add.reduceat(values[order], first, axis=0)
