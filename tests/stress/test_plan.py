"""The plan of a run is a function of its seed."""

from __future__ import annotations

from stress.options import Options, options, parser
from stress.plan import block, strikes


def test_a_seed_gives_the_same_plan_and_another_seed_another() -> None:
    one, same, other = Options(seed=7), Options(seed=7), Options(seed=8)
    assert [block(one, 0, number) for number in range(5)] == [block(same, 0, number) for number in range(5)]
    assert strikes(one) == strikes(same)
    assert block(one, 0, 0) != block(other, 0, 0)
    assert strikes(one) != strikes(other)


def test_every_block_is_its_own_and_no_payload_occurs_twice() -> None:
    jobs = [job for producer in range(2) for number in range(20) for job in block(Options(), producer, number)]
    assert len({job["payload"].split()[0] for job in jobs}) == len(jobs)


def test_a_default_run_of_two_minutes_kills_a_hundred_times_and_pauses_twenty() -> None:
    kinds = [strike.kind for strike in strikes(Options(seconds=120))]
    assert kinds.count("kill") >= 100
    assert kinds.count("pause") >= 20
    assert {"stop", "lock", "disk"} <= set(kinds)


def test_each_database_has_its_own_strikes() -> None:
    assert {"terminate", "restart"} <= {strike.kind for strike in strikes(Options(postgres=True))}
    assert "restart" not in {strike.kind for strike in strikes(Options(url="postgresql://elsewhere"))}


def test_a_run_of_many_jobs_goes_in_large_batches_unless_told_otherwise() -> None:
    many = options(parser().parse_args(["--jobs", "1000000"]))
    assert (many.batch, many.seconds) == (250, 24 * 3600)
    assert options(parser().parse_args(["--jobs", "1000000", "--batch", "10"])).batch == 10
