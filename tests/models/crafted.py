"""Model files changed at random, with checksums that match: what an attacker could write."""

import hashlib
import json
import re
from typing import NamedTuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from shortlist.core.codec import DTYPES, FORMAT, ZEROS, hash_arrays

WHOLE = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1]
REAL = [np.nan, np.inf, -np.inf, 1e308, -1e308, 3e38, 1e20, -1.0, 0.0, 1e-300, 0.5]
JSON_VALUES = [
    None,
    True,
    "x",
    "",
    -1,
    0,
    1,
    3,
    1e308,
    -1e308,
    1e-300,
    0.5,
    10**12,
    10**30,
    [],
    {},
    [1],
    {"a": 1},
]
JSON_VALUES += [{"array": "history.item"}, {"series": "users"}, {"float": "nan"}, {"float": "-inf"}]
JSON_VALUES += ["uniform", "hinge", "max", "none", "FixedN", "Calibration", "TwoStage", "BasketSize"]


class Parts(NamedTuple):
    """A file taken apart."""

    description: dict
    arrays: dict


def read_parts(path):
    """Take a file apart without any check."""
    with safe_open(path, "np") as file:
        description = json.loads(file.metadata()[FORMAT])
        return Parts(description, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118


def write_parts(path, parts):
    """Write a file whose checksums match."""
    arrays = {name: np.ascontiguousarray(array) for name, array in parts.arrays.items()}
    description = {**parts.description, "checksum": ZEROS, "sha256": hash_arrays(arrays)}
    text = json.dumps(description)
    save_file(arrays, path, {FORMAT: text.replace(ZEROS, hashlib.sha256(text.encode()).hexdigest(), 1)})


def mutate(parts, donor, rng):
    """Change one to three things; return what was changed."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        change = rng.choice(CHANGES if parts.arrays else [change_param, change_notes, change_header])
        with np.errstate(all="ignore"):
            done.append(f"{change.__name__}: {change(parts, donor, rng)}")
    return done


def pick(rng, values):
    values = list(values)
    return values[rng.integers(len(values))]


def pick_array(parts, rng, kinds="iufb"):
    names = [name for name, array in parts.arrays.items() if array.dtype.kind in kinds]
    return pick(rng, names or parts.arrays)


def set_elements(parts, donor, rng):
    """Extreme values in an array."""
    name = pick_array(parts, rng, pick(rng, ["i", "i", "iufb", "f"]))
    flat = parts.arrays[name].reshape(-1)
    if not flat.size:
        return f"{name} is empty"
    at = rng.integers(flat.size, size=pick(rng, [1, 1, 3, flat.size]))
    if rng.random() < 0.3:
        at = np.array([pick(rng, [0, -1])])
    if flat.dtype.kind == "f":
        value = pick(rng, REAL)
    else:
        low, high = (0, 1) if flat.dtype == bool else (np.iinfo(flat.dtype).min, np.iinfo(flat.dtype).max)
        value = pick(rng, [v for v in (*WHOLE, flat.size, int(flat.max()) + 1) if low <= v <= high])
    flat[at] = value
    return f"{name}[{at[:3]}] = {value}"


def nudge_elements(parts, donor, rng):
    """Small changes of integers, which keep most rules."""
    name = pick_array(parts, rng, "iu")
    flat = parts.arrays[name].reshape(-1)
    if not flat.size:
        return f"{name} is empty"
    at, step = rng.integers(flat.size, size=pick(rng, [1, 2, 5])), pick(rng, [-1, 1, 2])
    flat[at] = (flat[at].astype(np.int64) + step).astype(flat.dtype)
    return f"{name}[{at}] += {step}"


def resize(parts, donor, rng):
    """More or fewer rows or columns."""
    name = pick_array(parts, rng)
    array = parts.arrays[name]
    if not array.ndim:
        return f"{name} has no rows"
    axis = int(rng.integers(array.ndim))
    n = max(0, array.shape[axis] + int(pick(rng, [-array.shape[axis], -3, -1, 1, 2, array.shape[axis]])))
    parts.arrays[name] = (
        np.take(array, np.arange(n) % max(array.shape[axis], 1), axis) if array.size else array
    )
    return f"{name} to {parts.arrays[name].shape}"


def reshape(parts, donor, rng):
    name = pick_array(parts, rng)
    array = parts.arrays[name]
    parts.arrays[name] = pick(
        rng, [array.reshape(-1), array.reshape(1, *array.shape), array.T, array[..., None]]
    )
    return f"{name} to {parts.arrays[name].shape}"


def retype(parts, donor, rng):
    """Another type, by conversion or by the same bytes."""
    name, dtype = pick_array(parts, rng), np.dtype(pick(rng, DTYPES.values()))
    array = parts.arrays[name]
    if rng.random() < 0.5 and array.nbytes % dtype.itemsize == 0 and array.ndim == 1:
        parts.arrays[name] = array.view(dtype)
    else:
        parts.arrays[name] = array.astype(dtype)
    return f"{name} to {dtype}"


def reorder(parts, donor, rng):
    name = pick_array(parts, rng)
    array = parts.arrays[name]
    order = pick(rng, [lambda a: a[::-1], lambda a: rng.permutation(a), lambda a: np.sort(a, axis=0)])
    parts.arrays[name] = order(array) if array.ndim else array
    return name


def swap(parts, donor, rng):
    """Two arrays of the file, or one from another file."""
    name = pick_array(parts, rng)
    if rng.random() < 0.5 or not donor.arrays:
        other = pick_array(parts, rng)
        parts.arrays[name], parts.arrays[other] = parts.arrays[other], parts.arrays[name]
        return f"{name} and {other}"
    parts.arrays[name] = donor.arrays[name if name in donor.arrays else pick(rng, donor.arrays)]
    return f"{name} from {donor.description['class']}"


def rename(parts, donor, rng):
    name = pick_array(parts, rng)
    array = parts.arrays.pop(name)
    if rng.random() < 0.5:
        parts.arrays[pick(rng, ["extra", "../secret", "model.item", "history.time", f"{name}.0"])] = array
    return name


def change_param(parts, donor, rng):
    params = parts.description["params"]
    if not isinstance(params, dict):
        return "no params"
    name = pick(rng, [*params, "extra"])
    params[name] = pick(rng, JSON_VALUES)
    if rng.random() < 0.1:
        del params[name]
    return f"{name} = {params.get(name)!r}"


def change_notes(parts, donor, rng):
    """One value anywhere in the notes."""
    where, path = parts.description["notes"], []
    while True:
        if not where or not isinstance(where, (dict, list)):
            return "no notes"
        key = pick(rng, where if isinstance(where, dict) else range(len(where)))
        path.append(str(key))
        if not isinstance(where[key], (dict, list)) or not where[key] or rng.random() < 0.15:
            break
        where = where[key]
    value = pick(rng, JSON_VALUES)
    if isinstance(where, dict) and rng.random() < 0.2:
        del where[key]
        return f"without {'.'.join(path)}"
    where[key] = value
    return f"{'.'.join(path)} = {value!r}"


def change_header(parts, donor, rng):
    key = pick(rng, ["class", "kind", "series", "library", "notes", "params"])
    found = parts.description
    if key == "class":
        found[key] = pick(
            rng, [donor.description["class"], "FactorModel", "Recommender", "object", "../TwoStage"]
        )
    elif key == "series" and isinstance(found[key], dict):
        series = found[key]
        name = pick(rng, [*series, "extra"])
        series[name] = pick(rng, ["String", "Int64", "UInt8", "Float64", 3, "Object"])
        if rng.random() < 0.5:
            del series[name]
    else:
        found[key] = pick(rng, JSON_VALUES)
    return f"{key} = {str(found[key])[:80]}"


def change_ids(parts, donor, rng):
    """Repeated, missing, invalid or fewer ids."""
    names = [name for name in parts.arrays if name.startswith("series.")]
    if not names:
        return "no series"
    name = pick(rng, names)
    array, series = parts.arrays[name], name.rsplit(".", 1)[0]
    if name.endswith("offsets"):
        parts.arrays[name] = pick(
            rng, [array[:-1], np.append(array, array[-1]), array[:1], array * 0, array[::2]]
        )
    elif name.endswith("bytes"):
        array[:] = pick(rng, [0, 65, 255, 195])
    n = parts.arrays[name].size - 1
    if rng.random() < 0.3 and n > 0:
        parts.arrays[f"{series}.valid"] = rng.random(pick(rng, [n, n, n + 1])) < 0.8
    return name


def change_text(parts, donor, rng):
    """One number of a tree text."""
    names = [n for n, a in parts.arrays.items() if a.dtype == np.uint8 and not n.startswith("series.")]
    if not names:
        return set_elements(parts, donor, rng)
    name = pick(rng, names)
    text = parts.arrays[name].tobytes().decode("latin-1")
    found = list(re.finditer(r"(?<=[= ])-?[\d.]+(?:e[+-]?\d+)?(?=[\n ])", text.partition("end of trees")[0]))
    if not found:
        return "no numbers"
    spot = pick(rng, found)
    value = pick(
        rng, ["0", "-1", "1", "2", "99", "1e308", "nan", "inf", "-inf", str(2**31), str(2**70), "", "x"]
    )
    text = text[: spot.start()] + value + text[spot.end() :]
    parts.arrays[name] = np.frombuffer(text.encode("latin-1"), np.uint8)
    return f"{name}: {spot.group()} → {value}"


CHANGES = [set_elements, set_elements, set_elements, nudge_elements, nudge_elements, resize, reshape, retype]
CHANGES += [
    reorder,
    swap,
    swap,
    rename,
    change_param,
    change_param,
    change_notes,
    change_notes,
    change_header,
]
CHANGES += [change_ids, change_text]
