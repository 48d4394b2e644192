"""Who waits for jobs is told at commit, and not of what is rolled back; the listener is looked after (B65, W-9)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobqueue import InvalidArgument, Queue
from jobqueue.postgres import PostgresDatabase
from jobqueue.protocols import Wakeup
from tests.postgres.conftest import Connection, OpenPostgres, OpenSession, until
from tests.postgres.proxy import Proxy
from tests.servers import Server

pytestmark = pytest.mark.direct
LONG = 30.0  # Seconds that no test waits: it is told earlier, or has failed.


@pytest.fixture
def queue(open_postgres: OpenPostgres) -> Queue:
    return open_postgres()


def _database(queue: Queue) -> PostgresDatabase:
    assert isinstance(queue.database, PostgresDatabase)
    return queue.database


def listening(queue: Queue) -> Wakeup:
    """A watch whose listener has begun to listen, armed after its catch-up."""
    wakeup = queue.wakeup()
    listener = _database(queue)._listener
    assert listener is not None
    until(lambda: listener.count)
    wakeup.arm()
    return wakeup


@pytest.fixture
def watch(queue: Queue, session: OpenSession) -> Connection:
    """A plain session that listens to the queue's channel."""
    connection = session(autocommit=True)
    connection.execute(f'listen "{_database(queue).channel}"'.encode())
    return connection


def told(connection: Connection) -> list[str]:
    """The payloads of what has been sent by now. A notification to oneself marks the end: they come in order."""
    connection.execute('listen "end"; notify "end", \'end\'')
    found = []
    for notification in connection.notifies(timeout=LONG):
        if notification.channel == "end":
            break
        found.append(notification.payload)
    connection.execute('unlisten "end"')
    return found


def test_what_makes_a_job_claimable_tells_and_what_does_not_does_not(queue: Queue, watch: Connection) -> None:
    id = queue.enqueue("t")
    assert told(watch) == [""]
    queue.enqueue_many([{"type": "t"} for _ in range(50)])
    assert told(watch) == [""]  # Once per transaction, however many jobs.
    job = queue.dequeue()
    assert job is not None
    queue.extend(job)
    assert told(watch) == []
    queue.release(job, begun=False)
    assert told(watch) == [""]
    job = queue.dequeue()
    assert job is not None
    queue.fail(job, "e", delay=0)
    assert told(watch) == [""]
    job = queue.dequeue()
    assert job is not None
    queue.fail(job, "e", delay=60)  # Due later: whoever polls meanwhile sees when.
    queue.cancel(id)
    assert told(watch) == []
    queue.requeue(id)
    assert told(watch) == [""]
    job = queue.dequeue()
    assert job is not None
    queue.complete(job)
    queue.cleanup(0)
    assert told(watch) == []


def test_no_payload_leaves_the_table_by_a_notification(queue: Queue, watch: Connection) -> None:
    queue.enqueue("t", {"password": "secret"}, unique_key="secret")
    assert told(watch) == [""]


def test_a_callers_transaction_tells_at_its_commit_and_never_after_a_rollback(
    queue: Queue, watch: Connection, session: OpenSession
) -> None:
    connection = session()
    queue.enqueue("t", transaction=connection)
    assert told(watch) == []
    connection.rollback()
    assert told(watch) == []
    queue.enqueue("t", transaction=connection)
    connection.commit()
    assert told(watch) == [""]


def test_a_duplicate_that_stores_nothing_tells_nobody(queue: Queue, watch: Connection) -> None:
    queue.enqueue("t", unique_key="k")
    assert told(watch) == [""]
    queue.enqueue("t", unique_key="k", on_duplicate="keep")
    assert told(watch) == []


def test_a_handle_that_is_to_tell_nobody_tells_nobody(queue: Queue, watch: Connection, postgres_url: str) -> None:
    with Queue(PostgresDatabase(postgres_url, "jobs", notify=False)) as quiet:
        quiet.enqueue("t")
        assert told(watch) == []
        assert queue.dequeue() is not None


def test_a_sleeper_is_woken_by_a_commit_elsewhere(queue: Queue, open_postgres: OpenPostgres) -> None:
    wakeup = listening(queue)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wakeup.wait, LONG)
        open_postgres().enqueue("t")
        assert waiting.result()


def test_w9_what_came_between_the_baseline_and_the_sleep_ends_the_sleep(
    queue: Queue, open_postgres: OpenPostgres
) -> None:
    wakeup = listening(queue)
    listener = _database(queue)._listener
    assert listener is not None
    before = listener.count
    open_postgres().enqueue("t")
    until(lambda: listener.count > before)
    assert wakeup.wait(LONG)
    wakeup.arm()
    assert not wakeup.wait(0)


def test_one_queue_is_not_woken_by_another_and_all_watches_of_a_handle_are(
    queue: Queue, open_postgres: OpenPostgres
) -> None:
    first, second = listening(queue), listening(queue)
    other = listening(open_postgres(name="other"))
    queue.enqueue("t")
    assert first.wait(LONG)
    assert second.wait(LONG)
    assert not other.wait(0)


def test_wake_ends_the_sleep_from_any_thread_with_and_without_a_listener(
    queue: Queue, open_postgres: OpenPostgres
) -> None:
    deaf = open_postgres(listen=False)
    for wakeup in (listening(queue), deaf.wakeup()):
        wakeup.arm()
        threading.Thread(target=wakeup.wake).start()
        assert wakeup.wait(LONG)
        assert not wakeup.wait(0)


@pytest.mark.parametrize("listen", [False, "postgresql://localhost/app"])
def test_sqlite_refuses_to_be_told_how_to_listen(tmp_path: Path, listen: bool | str) -> None:
    with pytest.raises(InvalidArgument, match="PostgreSQL"):
        Queue.open(tmp_path / "queue.db", listen=listen)


def test_b65_a_terminated_listener_comes_back_and_catches_up_with_one_poll(
    queue: Queue, open_postgres: OpenPostgres, session: OpenSession
) -> None:
    wakeup, observer = listening(queue), session(autocommit=True)
    observer.execute("select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen%'")
    assert wakeup.wait(LONG)  # The catch-up: it listens again, and what was sent meanwhile was missed.
    wakeup.arm()
    open_postgres().enqueue("t")
    assert wakeup.wait(LONG)


def test_b65_a_listener_outlives_a_restart_of_the_server(stoppable: Server, stoppable_url: str) -> None:
    with Queue.open(stoppable_url) as queue:
        wakeup = listening(queue)
        stoppable.stop()
        stoppable.start()
        assert wakeup.wait(LONG)
        wakeup.arm()
        queue.enqueue("t")
        assert wakeup.wait(LONG)


def test_b69_where_listen_is_refused_jobs_are_still_found_and_waiting_works(
    proxied_url: str, proxy: Proxy, open_postgres: OpenPostgres
) -> None:
    queue = open_postgres(url=proxied_url)
    proxy.cut("listen", "before", times=1000)
    wakeup = queue.wakeup()
    wakeup.arm()
    queue.enqueue("t")
    assert not wakeup.wait(0.05)
    assert queue.dequeue() is not None


def test_a_listener_may_go_past_a_pooler_by_an_address_of_its_own(
    proxied_url: str, postgres_url: str, proxy: Proxy
) -> None:
    with Queue.open(proxied_url, listen=postgres_url) as queue:
        proxy.cut("listen", "before")
        wakeup = listening(queue)
        queue.enqueue("t")
        assert wakeup.wait(LONG)
        assert not proxy.done


def test_close_ends_the_listening_thread_and_its_session(queue: Queue, session: OpenSession) -> None:
    listening(queue)
    before = {thread.name for thread in threading.enumerate()}
    assert any("listen" in name for name in before)
    queue.close()
    assert not any("listen" in thread.name for thread in threading.enumerate())
    observer = session(autocommit=True)
    until(lambda: not observer.execute("select 1 from pg_stat_activity where query like 'listen%'").fetchone())
