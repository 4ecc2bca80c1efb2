"""Micro-batches: who is answered together, where, and what a failure does."""

import asyncio
import threading
import time

import pytest

from shortlist.serve.lists import MAX_BATCH, QUICK_SECONDS, BatchRunner
from shortlist.serve.schemas import RequestError


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


@pytest.mark.parametrize(
    ("seconds", "small", "in_loop"), [(0, True, True), (0, False, False), (0.03, True, False)]
)
def test_only_quick_batches_of_small_jobs_are_computed_in_the_event_loop(seconds, small, in_loop):
    assert seconds == 0 or seconds > QUICK_SECONDS
    threads = []

    def compute(jobs):
        threads.append(threading.current_thread())
        time.sleep(seconds)
        return jobs

    async def scenario():
        runner = BatchRunner(compute, None if small else lambda job: 1)
        for job in range(3):
            assert await runner.submit(job) == job
        runner.close()

    run(scenario())
    assert threads[0] is not threading.main_thread()  # nothing is known about the first batch
    assert (threads[-1] is threading.main_thread()) == in_loop


@pytest.mark.parametrize("small", [True, False])
def test_a_failure_reaches_its_requests_and_no_others(small):
    def compute(jobs):
        if "crash" in jobs:
            raise RuntimeError("crash")
        return [ValueError(job) if job == "bad" else job for job in jobs]

    async def scenario():
        runner = BatchRunner(compute, None if small else lambda job: 1)
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


def test_a_request_after_a_large_batch_is_answered_although_nobody_follows():
    async def scenario():
        runner = BatchRunner(lambda jobs: jobs)
        await asyncio.gather(*map(runner.submit, range(20)))
        started = time.perf_counter()
        assert await asyncio.wait_for(runner.submit(1), 5) == 1
        runner.close()
        return time.perf_counter() - started

    assert run(scenario()) < 1


def test_clients_take_turns_if_more_is_waiting_than_one_batch_takes():
    batches = []

    async def scenario():
        runner = BatchRunner(lambda jobs: batches.append(list(jobs)) or jobs)
        many = [runner.submit(job, "many") for job in range(2 * MAX_BATCH)]
        one = runner.submit("one", "other")
        await asyncio.gather(*many, one)
        runner.close()

    run(scenario())
    assert batches[0] == [0, "one", *range(1, MAX_BATCH - 1)]
    assert [job for batch in batches[1:] for job in batch] == list(range(MAX_BATCH - 1, 2 * MAX_BATCH))


@pytest.mark.parametrize("small", [True, False])
def test_a_request_that_would_wait_too_long_is_refused_at_once(small):
    async def scenario():
        blocked = threading.Event()

        def compute(jobs):
            time.sleep(0.02 * len(jobs))
            if "slow" in jobs:
                blocked.wait(10)
            return jobs

        runner = BatchRunner(compute, None if small else lambda job: 1, max_seconds=0.1)
        for job in range(12):  # until it is known how long a job takes
            await runner.submit(job)
        waiting = [runner.submit("slow")]
        await asyncio.sleep(0.1)
        refused = None
        while refused is None and len(waiting) < 100:
            try:
                waiting.append(runner.submit("next"))
            except RequestError as error:
                refused = error
        blocked.set()
        await asyncio.gather(*waiting)
        assert await runner.submit("later") == "later"
        runner.close()
        return refused, len(waiting)

    refused, n_accepted = run(scenario())
    assert (refused.status, refused.error) == (503, "overloaded")
    assert 2 <= n_accepted < 30
