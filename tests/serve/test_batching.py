"""Small requests: which are answered together, where, and what a failure does."""

import asyncio
import threading
import time

import pytest

from shortlist.serve.lists import QUICK_SECONDS, BatchRunner


def run(scenario):
    return asyncio.run(scenario)


def test_requests_that_arrive_together_are_computed_together():
    sizes = []

    def compute(jobs):
        sizes.append(len(jobs))
        return [job * 2 for job in jobs]

    async def scenario():
        runner = BatchRunner(compute)
        answers = await asyncio.gather(*(runner.submit(job) for job in range(40)))
        runner.close()
        return answers

    assert run(scenario()) == [2 * job for job in range(40)]
    assert sizes == [40]


@pytest.mark.parametrize(("seconds", "in_loop"), [(0, True), (0.03, False)])
def test_only_quick_batches_are_computed_in_the_event_loop(seconds, in_loop):
    assert seconds == 0 or seconds > QUICK_SECONDS
    threads = []

    def compute(jobs):
        threads.append(threading.current_thread())
        time.sleep(seconds)
        return jobs

    async def scenario():
        runner = BatchRunner(compute)
        for job in range(3):
            assert await runner.submit(job) == job
        runner.close()

    run(scenario())
    assert threads[0] is not threading.main_thread()  # nothing is known about the first batch
    assert (threads[-1] is threading.main_thread()) == in_loop


def test_a_failure_reaches_its_requests_and_no_others():
    def compute(jobs):
        if "crash" in jobs:
            raise RuntimeError("crash")
        return [ValueError(job) if job == "bad" else job for job in jobs]

    async def scenario():
        runner = BatchRunner(compute)
        await runner.submit("first")
        answers = await asyncio.gather(*map(runner.submit, ("good", "bad")), return_exceptions=True)
        assert answers[0] == "good"
        assert isinstance(answers[1], ValueError)
        with pytest.raises(RuntimeError):
            await runner.submit("crash")
        assert await runner.submit("next") == "next"
        runner.close()

    run(scenario())


def test_a_canceled_request_is_left_out():
    seen = []

    async def scenario():
        runner = BatchRunner(lambda jobs: seen.extend(jobs) or jobs)
        first, second = runner.submit(1), runner.submit(2)
        first.cancel()
        assert await second == 2
        runner.close()

    run(scenario())
    assert seen == [2]


def test_requests_that_arrive_while_a_batch_is_computed_are_the_next_one():
    batches, blocked = [], threading.Event()

    def compute(jobs):
        batches.append(list(jobs))
        blocked.wait(10)
        return jobs

    async def scenario():
        runner = BatchRunner(compute)
        first = runner.submit(0)
        await asyncio.sleep(0.05)
        others = [runner.submit(job) for job in range(1, 30)]
        blocked.set()
        await asyncio.gather(first, *others)
        runner.close()

    run(scenario())
    assert batches == [[0], list(range(1, 30))]
