"""A small grocery shop that never existed: generated, seeded, the same bits everywhere."""

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import polars as pl

N_USERS, N_DAYS, SEED = 300, 180, 20240101
OPENING = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())

# the month of a item_stats's season (0: all year), then its goods from the most to the least popular
SHELVES = """
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
# (share of users in 20ths, days between visits, goods per visit, repeats in 100): who lives in this town
HABITS = (
    (5, 30, 4, 25),  # drops by for something new
    (4, 16, 3, 75),  # the same three things, always
    (4, 22, 12, 50),  # fills the trunk now and then
    (3, 9, 2, 60),  # a little, often
    (3, 14, 7, 40),  # the weekly household
    (1, 40, 16, 15),  # throws parties
)
Below = Callable[[int], int]


def sample() -> pl.DataFrame:
    """(user_id, item_id, timestamp, item_name): 300 users over half a year, different in length and user_repeat."""
    below = _dice(SEED)
    lines = [line.split(" ", 1) for line in SHELVES.strip().splitlines()]
    months = [int(month) for month, _ in lines]
    names = [name for _, goods in lines for name in goods.split(", ")]
    ends = np.cumsum([goods.count(", ") + 1 for _, goods in lines]).tolist()
    shelves = [list(range(start, end)) for start, end in zip([0, *ends], ends, strict=False)]
    town = [user_repeat for user_repeat in HABITS for _ in range(user_repeat[0])]
    rows: list[tuple[int, int, int]] = []
    for user in range(N_USERS):
        rows.extend(
            (user, item, when) for item, when in _life(below, town[user % len(town)], shelves, months)
        )
    user, item, when = np.array(rows).T
    return pl.DataFrame(
        {
            "user_id": pl.Series([f"u{index + 1}" for index in user]),
            "item_id": pl.Series([f"i{index + 1}" for index in item]),
            "timestamp": pl.Series(when),
            "item_name": pl.Series([names[index] for index in item]),
        }
    )


def _dice(seed: int) -> Below:
    """Numbers in [0, n) from raw PCG64 words: the raw stream is the part NumPy promises never to change."""
    source = np.random.PCG64(seed)
    return lambda n: ((int(source.random_raw()) >> 32) * n) >> 32


def _life(
    below: Below, user_repeat: tuple[int, int, int, int], shelves: list[list[int]], months: list[int]
) -> list[tuple[int, int]]:
    """(item, time) of everything one user buys."""
    _, gap, size, repeats = user_repeat
    size, repeats = max(1, size + below(5) - 2), min(95, max(5, repeats + below(31) - 15))
    favourites = [below(len(shelves)) for _ in range(2 + below(4))]
    bought: list[int] = []
    rows: list[tuple[int, int]] = []
    day = below(gap)
    while day < N_DAYS:
        when = OPENING + day * 86_400 + (8 + below(12)) * 3_600 + below(3_600)
        basket: set[int] = set()
        for _ in range(1 + below(2 * size - 1)):
            if bought and below(100) < repeats:
                recent = bought[-25:] if below(2) else bought
                basket.add(recent[below(len(recent))])
            else:
                basket.add(_discover(below, favourites, shelves, months, day))
        bought.extend(sorted(basket))
        rows.extend((item, when) for item in sorted(basket))
        day += 1 + below(2 * gap - 1)
    return rows


def _discover(
    below: Below, favourites: list[int], shelves: list[list[int]], months: list[int], day: int
) -> int:
    """Something off the item_stats: favourites, then the season, then this week's offer, then what is popular."""
    at = favourites[below(len(favourites))] if below(100) < 60 else below(len(shelves))
    month = 1 + day // 30
    if months[at] and months[at] != month and below(100) < 70:
        at = next((other for other, season in enumerate(months) if season == month), at)
    item_stats = shelves[at]
    if below(100) < 25:
        return item_stats[(day // 7 * 5 + at) % len(item_stats)]
    return item_stats[min(below(len(item_stats)), below(len(item_stats)))]
