"""Generated purchases of a fictional grocery store: seeded, the same bits on every machine."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

import numpy as np
import polars as pl

N_USERS, N_DAYS, SEED = 300, 180, 20240101
START = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())

# per category: the month of its season (0: all year), then its products by descending popularity
CATEGORIES = """
6 bananas, apples, oranges, strawberries, grapes, lemons, pears, blueberries, mangoes, plums, kiwis
0 tomatoes, onions, potatoes, carrots, cucumber, peppers, spinach, broccoli, mushrooms, leek, beetroot
0 milk, butter, yoghurt, eggs, cheddar, cream, feta, mozzarella, kefir, cottage cheese, halloumi
0 white bread, rye bread, croissants, bagels, rolls, flatbread, muffins, crispbread, brioche, pretzels
5 mineral water, orange juice, cola, lemonade, apple juice, tonic, iced tea, ginger beer, elderflower
1 ground coffee, black tea, coffee beans, green tea, cocoa, peppermint tea, espresso pods, chai, oolong
6 vanilla ice cream, frozen peas, pizza, fish fingers, ice lollies, chips, dumplings, sorbet, waffles
0 spaghetti, rice, flour, sugar, lentils, oats, chickpeas, honey, couscous, raisins, semolina
0 olive oil, canned tomatoes, soy sauce, mustard, vinegar, coconut milk, pesto, capers, tahini
2 chicken soup, beef stew, lentil soup, ramen, stock cubes, goulash, pumpkin soup, miso paste
0 crisps, dark chocolate, peanuts, biscuits, popcorn, gummy bears, almonds, crackers, marzipan
0 chicken breast, minced beef, bacon, salmon, ham, tuna, sausages, turkey, prawns, lamb, sardines
0 toilet paper, washing-up liquid, detergent, bin bags, soap, toothpaste, sponges, candles, batteries
0 nappies, baby wipes, carrot puree, infant formula, rusks, baby shampoo, pear puree
0 cat food, dog food, cat litter, dog biscuits, bird seed, hay
"""
# (share of users in 20ths, mean days between visits, mean products per visit, percentage of repeats)
CUSTOMER_TYPES = (
    (5, 30, 4, 25),  # buys new products now and then
    (4, 16, 3, 75),  # buys the same few products
    (4, 22, 12, 50),  # large purchases, rarely
    (3, 9, 2, 60),  # small purchases, often
    (3, 14, 7, 40),  # household, every two weeks
    (1, 40, 16, 15),  # very large purchases, mostly new products
)
Below = Callable[[int], int]


@cache
def sample() -> pl.DataFrame:
    """(user_id, item_id, timestamp, item_name) of 300 users over half a year."""
    below = _uniform(SEED)
    lines = [line.split(" ", 1) for line in CATEGORIES.strip().splitlines()]
    months = [int(month) for month, _ in lines]
    names = [name for _, products in lines for name in products.split(", ")]
    ends = np.cumsum([products.count(", ") + 1 for _, products in lines]).tolist()
    categories = [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]
    types = [kind for kind in CUSTOMER_TYPES for _ in range(kind[0])]
    rows: list[tuple[int, int, int]] = []
    for user in range(N_USERS):
        kind = types[user % len(types)]
        rows.extend((user, *row) for row in _purchases(below, kind, categories, months))
    user, item, time = np.array(rows).T
    return pl.DataFrame(
        {
            "user_id": pl.Series([f"u{index + 1}" for index in user]),
            "item_id": pl.Series([f"i{index + 1}" for index in item]),
            "timestamp": pl.Series(time),
            "item_name": pl.Series([names[index] for index in item]),
        }
    )


def _uniform(seed: int) -> Below:
    """A generator of integers in [0, n) from raw PCG64 words, whose stream NumPy keeps stable."""
    source = np.random.PCG64(seed)
    return lambda n: ((int(source.random_raw()) >> 32) * n) >> 32


def _purchases(
    below: Below, customer: tuple[int, int, int, int], categories: list[list[int]], months: list[int]
) -> list[tuple[int, int]]:
    """(item, time) of all purchases of one user."""
    _, gap, size, repeats = customer
    size, repeats = max(1, size + below(5) - 2), min(95, max(5, repeats + below(31) - 15))
    favorites = [below(len(categories)) for _ in range(2 + below(4))]
    bought: list[int] = []
    rows: list[tuple[int, int]] = []
    day = below(gap)
    while day < N_DAYS:
        time = START + day * 86_400 + (8 + below(12)) * 3_600 + below(3_600)
        basket: set[int] = set()
        for _ in range(1 + below(2 * size - 1)):
            if bought and below(100) < repeats:
                recent = bought[-25:] if below(2) else bought
                basket.add(recent[below(len(recent))])
            else:
                basket.add(_new_item(below, favorites, categories, months, day))
        bought.extend(sorted(basket))
        rows.extend((item, time) for item in sorted(basket))
        day += 1 + below(2 * gap - 1)
    return rows


def _new_item(
    below: Below, favorites: list[int], categories: list[list[int]], months: list[int], day: int
) -> int:
    """An item of a favorite, seasonal or random category: the offer of the week or a popular one."""
    at = favorites[below(len(favorites))] if below(100) < 60 else below(len(categories))
    month = 1 + day // 30
    if months[at] and months[at] != month and below(100) < 70:
        at = next((other for other, season in enumerate(months) if season == month), at)
    items = categories[at]
    if below(100) < 25:
        return items[(day // 7 * 5 + at) % len(items)]
    return items[min(below(len(items)), below(len(items)))]
