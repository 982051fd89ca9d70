import asyncio

import pytest

from slicewise.kube.background_tasks import BackgroundTasks


async def fail():
    raise RuntimeError("boom")


async def leave():
    pass


@pytest.mark.parametrize(
    ("work", "words"),
    [(fail, "task writer has ended: RuntimeError: boom"), (leave, "task writer has ended: it ret")],
)
def test_task_that_ends_by_itself_is_a_failure_for_good(work, words):
    async def claim():
        tasks = BackgroundTasks()
        tasks.run("writer", work())
        tasks.run("other", asyncio.Event().wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tasks.stop()
        assert tasks.failure.startswith(words)

    asyncio.run(claim())


def test_work_that_is_done_is_no_failure_but_its_error_is():
    async def claim():
        tasks = BackgroundTasks()
        await tasks.run_once("reread", leave())
        assert tasks.failure is None
        await asyncio.gather(tasks.run_once("reread", fail()), return_exceptions=True)
        assert tasks.failure == "task reread has ended: RuntimeError: boom"

    asyncio.run(claim())


def test_tasks_that_are_stopped_are_no_failure():
    async def claim():
        tasks = BackgroundTasks()
        tasks.run("waiting", asyncio.Event().wait())
        await tasks.stop()
        assert tasks.failure is None

    asyncio.run(claim())
