"""Time limits of requests."""

import asyncio

import pytest

from shortlist.serve.gate import Deadlines


async def limited(deadlines, seconds):
    async with deadlines.start():
        await asyncio.sleep(seconds)
    return seconds


def test_only_requests_that_take_too_long_are_ended():
    async def scenario():
        deadlines = Deadlines(0.2)
        tasks = [limited(deadlines, seconds) for seconds in (0, 30, 0.05, 30)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert await limited(deadlines, 0.01) == 0.01  # the timer starts again
        return found

    found = asyncio.run(asyncio.wait_for(scenario(), 10))
    assert [type(one) for one in found] == [int, TimeoutError, float, TimeoutError]


def test_a_request_that_is_canceled_from_outside_stays_canceled():
    async def scenario():
        task = asyncio.create_task(limited(Deadlines(5), 30))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_an_error_passes_through():
    async def scenario():
        async with Deadlines(1).start():
            raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        asyncio.run(scenario())
