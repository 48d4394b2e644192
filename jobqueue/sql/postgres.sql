-- The statements of a queue on PostgreSQL: the names of sqlite.sql in the same order, and two more for many jobs at once;
-- each statement is whole.
-- {queue} is the queue's checked name, {schema} the schema that holds it. Parameters are %(named)s.
-- Clauses are those of spec/lifecycle.md.
--
-- Differs throughout: the table is named with its schema, so that a caller's search_path cannot lead elsewhere; now is
-- the server's statement_timestamp() unless a test gives one (§7); ids are uuid, instants timestamptz, durations
-- interval, which postgres_values.py turns into bytes and microseconds, or the statement itself where its rows may come
-- as text (postgres_transaction.py); no index can be named, so each is one that the
-- planner has no cheaper way around.

-- name: schema
-- Differs: an identity column for seq, because a sequence never gives a number twice. json, not jsonb, which would turn
-- -0.0 into 0. Constraints, indexes and the sequence have names with a colon, which no queue can have.
create table "{schema}"."{queue}" (
    seq bigint generated always as identity (sequence name "{schema}"."{queue}:seq")
        constraint "{queue}:pkey" primary key,
    id uuid not null constraint "{queue}:id" unique,
    type text not null,
    status text not null
        constraint "{queue}:status" check (status in ('pending', 'running', 'completed', 'failed', 'dead')),
    priority smallint not null,
    attempts integer not null,
    max_attempts integer not null,
    fence bigint not null,
    scheduled_at timestamptz not null,
    created_at timestamptz not null,
    started_at timestamptz,
    completed_at timestamptz,
    lease_expires_at timestamptz,
    worker text,
    timeout bigint,
    unique_key text,
    error text,
    result json,
    payload json not null,
    constraint "{queue}:attempts" check (0 <= attempts and attempts <= max_attempts and attempts <= fence),
    constraint "{queue}:leased" check ((status = 'running') = (lease_expires_at is not null)),
    constraint "{queue}:worker" check ((status = 'running') = (worker is not null)),
    constraint "{queue}:completed" check ((status in ('completed', 'dead')) = (completed_at is not null))
);
-- The claim walks its levels (type, priority) by this index alone; it holds only what can be claimed.
create index "{queue}:claim" on "{schema}"."{queue}" (type, priority desc, scheduled_at, seq)
    where status in ('pending', 'failed');
-- G-21: the constraint decides.
create unique index "{queue}:unique_key" on "{schema}"."{queue}" (unique_key)
    where unique_key is not null and status in ('pending', 'running', 'failed');
-- The look of a sweep.
create index "{queue}:lease" on "{schema}"."{queue}" (lease_expires_at) where status = 'running';
-- Cleanup, and the counts of what has ended.
create index "{queue}:ended" on "{schema}"."{queue}" (status, completed_at) where status in ('completed', 'dead');
-- For a person with a plain SQL shell, as on SQLite.
create view "{schema}"."{queue}_readable" as
select
    seq, id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout / 1000000.0 as timeout_seconds, unique_key, error, result, payload
from "{schema}"."{queue}";

-- name: enqueue
-- T-1. A taken unique_key, or the id of a call that is being tried again, changes no row; a key that another
-- transaction has taken and not yet committed is waited for, so that no reply rests on what may be rolled back.
insert into "{schema}"."{queue}" (
    id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, timeout, unique_key, payload
) values (
    %(id)s, %(type)s, 'pending', %(priority)s, 0, %(max_attempts)s, 0,
    coalesce(%(scheduled_at)s, coalesce(%(now)s, statement_timestamp()) + %(delay)s),
    coalesce(%(now)s, statement_timestamp()), %(timeout)s, %(unique_key)s, %(payload)s
) on conflict do nothing;

-- name: enqueue_many
-- T-1 for any number of jobs, in the order of seq.
-- Differs: only here. Each parameter but now is an array, as text; a statement for each job would cost a message and a
-- plan each. For one job the arrays cost more than they save.
insert into "{schema}"."{queue}" (
    id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, timeout, unique_key, payload
)
select
    id, type, 'pending', priority, 0, max_attempts, 0,
    coalesce(scheduled_at, coalesce(%(now)s, statement_timestamp()) + delay),
    coalesce(%(now)s, statement_timestamp()), timeout, unique_key, payload
from unnest(
    %(id)s::uuid[], %(type)s::text[], %(priority)s::smallint[], %(max_attempts)s::integer[],
    %(scheduled_at)s::timestamptz[], %(delay)s::interval[], %(timeout)s::bigint[], %(unique_key)s::text[],
    %(payload)s::json[]
) with ordinality as job (
    id, type, priority, max_attempts, scheduled_at, delay, timeout, unique_key, payload, place
)
order by place
on conflict do nothing;

-- name: key_holder
-- Who holds a unique key (G-21).
select id from "{schema}"."{queue}"
where unique_key = %(unique_key)s and status in ('pending', 'running', 'failed');

-- name: exists
select 1 from "{schema}"."{queue}" where id = %(id)s;

-- name: due
-- Up to n due jobs, for T-2. The levels (type, priority) are walked as on SQLite: the cost does not depend on jobs that
-- are finished, running, due later or of other types.
-- Differs: it is a function, made with the schema, and called by 'dequeue': planning this anew for each call costs
-- three times what running it does, and a plan that the server keeps for a function needs no state of the session, so
-- that poolers do not mind. Its settings leave the planner one plan, whatever the statistics say or do not say.
-- Differs: now is read when the claim begins, once. Its message may have brought a settlement before it, which waited for
-- a lock: the lease must not have run meanwhile (§7).
-- Differs: it marks the jobs, too, and its rows are what the library reads, ids as bytes and instants in microseconds:
-- outside, that would be planned each time.
-- Differs: of a single type it looks at the first claimable jobs before it walks, as 'first' does on SQLite, at some more
-- than n of them, for others may hold some locked. Those that are due and free come first among all that are; where they
-- are enough, or there are no more, the walk is spared.
-- Differs: a job that another transaction has locked is passed over (§6), so looking at n due jobs is not enough: all n
-- may be locked. 'wave' looks, without locking, at the next candidates in order: n of them, then twice as many, and so
-- on; the last part locks them one by one, and stops at n. So the rows that are claimed are locked, and no others; the next
-- wave is computed only if one came short. Both the lock and the update test again what the look had found. They
-- say 'not in', because with 'in' the planner may read all of the claim's index to find one seq there.
create function "{schema}"."{queue}:dequeue" (types json, n bigint, holder text, lease interval, now timestamptz)
returns table (
    id bytea, fence bigint, worker text, type text, priority smallint, attempts integer, max_attempts integer, seq bigint,
    scheduled_at bigint, created_at bigint, started_at bigint, lease_expires_at bigint, timeout bigint, unique_key text,
    error text, payload text
) language plpgsql
set search_path = pg_catalog set plan_cache_mode = force_generic_plan set jit = off
set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    due_at constant timestamptz := coalesce($5, clock_timestamp());
    started_at_us constant bigint := extract(epoch from due_at) * 1000000;
    expires_at_us constant bigint := extract(epoch from due_at + $4) * 1000000;
    enough constant bigint := 2 * $2 + 8;
    seen bigint;
    heads bigint[];
    chosen bigint[];
begin
    if json_array_length($1) = 1 then
        select count(*), array_agg(head.seq) filter (where head.scheduled_at <= due_at) into seen, heads
        from (
            select job.seq, job.scheduled_at from "{schema}"."{queue}" as job
            where job.type = $1 ->> 0 and job.status in ('pending', 'failed')
            order by job.priority desc, job.scheduled_at, job.seq
            limit enough
        ) as head;
        chosen := array(
            select job.seq from "{schema}"."{queue}" as job
            where job.seq = any (heads) and job.status not in ('running', 'completed', 'dead')
                and job.scheduled_at <= due_at
            order by job.priority desc, job.scheduled_at, job.seq
            limit $2
            for no key update skip locked
        );
    end if;
    if chosen is null or (cardinality(chosen) < $2 and seen = enough) then
        chosen := array(
            with recursive
            wanted (type) as (
                select value from json_array_elements_text($1) as value
            ),
            level (type, priority) as (
                select
                    wanted.type,
                    (
                        select head.priority from "{schema}"."{queue}" as head
                        where head.type = wanted.type and head.status in ('pending', 'failed')
                        order by head.priority desc limit 1
                    )
                from wanted
                union all
                select
                    level.type,
                    (
                        select head.priority from "{schema}"."{queue}" as head
                        where head.type = level.type and head.priority < level.priority
                            and head.status in ('pending', 'failed')
                        order by head.priority desc limit 1
                    )
                from level
                where level.priority is not null
            ),
            wave (seqs, priority, scheduled_at, seq, size, more) as (
                select '{}'::bigint[], 32767::smallint, '-infinity'::timestamptz, 0::bigint, $2, true
                union all
                select next.seqs, next.priority, next.scheduled_at, next.seq, wave.size * 2, next.found = wave.size
                from wave cross join lateral (
                    select
                        array_agg(due.seq order by due.priority desc, due.scheduled_at, due.seq),
                        min(due.priority),
                        (array_agg(due.scheduled_at order by due.priority, due.scheduled_at desc, due.seq desc))[1],
                        (array_agg(due.seq order by due.priority, due.scheduled_at desc, due.seq desc))[1],
                        count(*)
                    from (
                        select probe.priority, probe.scheduled_at, probe.seq
                        from level cross join lateral (
                            select candidate.priority, candidate.scheduled_at, candidate.seq
                            from "{schema}"."{queue}" as candidate
                            where candidate.type = level.type and candidate.priority = level.priority
                                and candidate.status in ('pending', 'failed')
                                and candidate.scheduled_at <= due_at
                                and (candidate.scheduled_at, candidate.seq) > (
                                    case when level.priority = wave.priority then wave.scheduled_at else '-infinity' end,
                                    case when level.priority = wave.priority then wave.seq else 0 end
                                )
                            order by candidate.scheduled_at, candidate.seq
                            limit wave.size
                        ) as probe
                        where level.priority <= wave.priority
                        order by probe.priority desc, probe.scheduled_at, probe.seq
                        limit wave.size
                    ) as due
                ) as next (seqs, priority, scheduled_at, seq, found)
                where wave.more and next.found > 0
            )
            select locked.seq
            from wave cross join lateral unnest(wave.seqs) as candidate (seq) cross join lateral (
                select job.seq from "{schema}"."{queue}" as job
                where job.seq = candidate.seq and job.status not in ('running', 'completed', 'dead')
                    and job.scheduled_at <= due_at
                for no key update skip locked
            ) as locked
            limit $2
        );
    end if;
    return query
    update "{schema}"."{queue}" as job set
        status = 'running', attempts = job.attempts + 1, fence = job.fence + 1, started_at = due_at, worker = $3,
        lease_expires_at = due_at + $4
    where job.seq = any (chosen) and job.status not in ('running', 'completed', 'dead') and job.scheduled_at <= due_at
    returning
        uuid_send(job.id), job.fence, job.worker, job.type, job.priority, job.attempts, job.max_attempts, job.seq,
        (extract(epoch from job.scheduled_at) * 1000000)::bigint, (extract(epoch from job.created_at) * 1000000)::bigint,
        started_at_us, expires_at_us, job.timeout, job.unique_key, job.error, job.payload::text;
end
$$;

-- name: dequeue
-- T-2 for up to n jobs: the function above. The order of its rows is not defined: the caller sorts.
select id, fence, worker, type, priority, attempts, max_attempts, seq, scheduled_at, created_at, started_at,
    lease_expires_at, timeout, unique_key, error, payload
from "{schema}"."{queue}:dequeue" (%(types)s::json, %(n)s, %(worker)s, %(lease)s, %(now)s);

-- name: waiting_types
-- The types that hold claimable jobs, each by one step along the index.
with recursive waiting (type) as (
    (select type from "{schema}"."{queue}" where status in ('pending', 'failed') order by type limit 1)
    union all
    select (
        select next.type from "{schema}"."{queue}" as next
        where next.type > waiting.type and next.status in ('pending', 'failed')
        order by next.type limit 1
    )
    from waiting
    where waiting.type is not null
)
select type from waiting where type is not null;

-- name: due_in
-- How long until the earliest claimable job of these types is due: the heads of the levels tell.
with recursive
wanted (type) as (
    select value from json_array_elements_text(%(types)s::json) as value
),
level (type, priority) as (
    select
        wanted.type,
        (
            select head.priority from "{schema}"."{queue}" as head
            where head.type = wanted.type and head.status in ('pending', 'failed')
            order by head.priority desc limit 1
        )
    from wanted
    union all
    select
        level.type,
        (
            select head.priority from "{schema}"."{queue}" as head
            where head.type = level.type and head.priority < level.priority and head.status in ('pending', 'failed')
            order by head.priority desc limit 1
        )
    from level
    where level.priority is not null
)
select (extract(epoch from min((
    select probe.scheduled_at from "{schema}"."{queue}" as probe
    where probe.type = level.type and probe.priority = level.priority and probe.status in ('pending', 'failed')
    order by probe.scheduled_at limit 1
)) - coalesce(%(now)s, statement_timestamp())) * 1000000)::bigint from level;

-- name: complete
-- T-3
update "{schema}"."{queue}" set
    status = 'completed', result = %(result)s::json, completed_at = coalesce(%(now)s, statement_timestamp()),
    lease_expires_at = null, worker = null
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and worker = %(worker)s and status = 'running';

-- name: complete_many
-- T-3 for any number of claims, each by its own compare-and-set.
-- Differs: only here, as enqueue_many. It says 'not in', because with '=' the planner may read all of the running jobs to
-- find a few.
update "{schema}"."{queue}" as job set
    status = 'completed', result = held.result, completed_at = coalesce(%(now)s, statement_timestamp()),
    lease_expires_at = null, worker = null
from unnest(
    %(seq)s::bigint[], %(id)s::uuid[], %(fence)s::bigint[], %(worker)s::text[], %(result)s::json[]
) as held (seq, id, fence, worker, result)
where job.seq = held.seq and job.id = held.id and job.fence = held.fence and job.worker = held.worker
    and job.status not in ('pending', 'completed', 'failed', 'dead');

-- name: retry
-- T-4
update "{schema}"."{queue}" set
    status = 'failed', error = %(error)s, scheduled_at = coalesce(%(now)s, statement_timestamp()) + %(delay)s,
    lease_expires_at = null, worker = null
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and worker = %(worker)s and status = 'running';

-- name: bury
-- T-5
update "{schema}"."{queue}" set
    status = 'dead', error = %(error)s, completed_at = coalesce(%(now)s, statement_timestamp()),
    lease_expires_at = null, worker = null
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and worker = %(worker)s and status = 'running';

-- name: release
-- T-6
update "{schema}"."{queue}" set
    status = 'pending', attempts = attempts - 1,
    scheduled_at = coalesce(coalesce(%(now)s, statement_timestamp()) + %(delay)s::interval, scheduled_at),
    lease_expires_at = null, worker = null
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and worker = %(worker)s and status = 'running';

-- name: extend
-- T-7
update "{schema}"."{queue}" set
    lease_expires_at = greatest(lease_expires_at, coalesce(%(now)s, statement_timestamp()) + %(lease)s)
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and worker = %(worker)s and status = 'running'
returning (extract(epoch from lease_expires_at) * 1000000)::bigint;

-- name: settled_as
-- What became of a claim whose settlement's commit got no answer (spec §5, unknown outcomes).
-- Differs: it locks the row, and so waits for that commit, should the server or a pooler be at it still.
select status, fence, worker, result, error from "{schema}"."{queue}" where seq = %(seq)s and id = %(id)s
for no key update;

-- name: expired
-- The look of T-8.
select id, seq, fence, (extract(epoch from lease_expires_at) * 1000000)::bigint, attempts, max_attempts
from "{schema}"."{queue}"
where status = 'running' and lease_expires_at <= coalesce(%(now)s, statement_timestamp())
order by lease_expires_at
limit %(n)s;

-- name: sweep_retry
-- T-8 while attempts remain: fence and lease are those that were looked at, and the lease is expired still.
update "{schema}"."{queue}" set
    status = 'failed', error = %(error)s, scheduled_at = coalesce(%(now)s, statement_timestamp()) + %(delay)s,
    lease_expires_at = null, worker = null
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and lease_expires_at = %(lease_expires_at)s
    and status = 'running' and lease_expires_at <= coalesce(%(now)s, statement_timestamp());

-- name: sweep_bury
-- T-8 at the last attempt.
update "{schema}"."{queue}" set
    status = 'dead', error = %(error)s, completed_at = coalesce(%(now)s, statement_timestamp()),
    lease_expires_at = null, worker = null
where seq = %(seq)s and id = %(id)s and fence = %(fence)s and lease_expires_at = %(lease_expires_at)s
    and status = 'running' and lease_expires_at <= coalesce(%(now)s, statement_timestamp());

-- name: cancel
-- T-9
update "{schema}"."{queue}" set
    status = 'dead', error = %(error)s, completed_at = coalesce(%(now)s, statement_timestamp()),
    lease_expires_at = null, worker = null
where id = %(id)s and status in ('pending', 'failed', 'running');

-- name: requeue_look
-- What T-10 decides from.
-- Differs: it locks the row, for here others can write between the look and the update.
select attempts, (extract(epoch from scheduled_at) * 1000000)::bigint, (extract(epoch from created_at) * 1000000)::bigint,
    unique_key, fence
from "{schema}"."{queue}"
where id = %(id)s and status in ('dead', 'failed')
for no key update;

-- name: requeue
-- T-10. The row is still as looked at; a taken unique_key changes no row.
-- Differs: an update cannot ignore a conflict, so the key is looked up here. If another transaction takes it at the
-- same moment, the constraint decides: it refuses this one, which then starts again and sees the other (postgres.py).
update "{schema}"."{queue}" as job set
    status = 'pending', attempts = 0, completed_at = null, scheduled_at = %(scheduled_at)s
where id = %(id)s and fence = %(fence)s and attempts = %(attempts)s and status in ('dead', 'failed')
    and not exists (
        select 1 from "{schema}"."{queue}" as holder
        where holder.unique_key = job.unique_key and holder.status in ('pending', 'running', 'failed')
            and holder.seq <> job.seq
    );

-- name: select_ids
-- The jobs that a bulk cancel or requeue looks at, page by page.
select seq, id from "{schema}"."{queue}"
where seq > %(after)s
    and status = any (array(select value from json_array_elements_text(%(statuses)s::json) as value))
    and (%(type)s::text is null or type = %(type)s)
    and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
order by seq
limit %(n)s;

-- name: cleanup
-- T-11, one batch.
-- Differs: the batch is picked once, and what others hold locked (another cleanup, a requeue) is passed over, so that
-- two cleanups share the work and cannot deadlock.
delete from "{schema}"."{queue}"
where seq = any (array(
    select old.seq from "{schema}"."{queue}" as old
    where old.status = %(status)s and old.status in ('completed', 'dead')
        and old.completed_at <= coalesce(%(now)s, statement_timestamp()) - %(retention)s
    order by old.completed_at
    limit %(n)s
    for update skip locked
)) and status = %(status)s and status not in ('pending', 'running', 'failed')
    and completed_at <= coalesce(%(now)s, statement_timestamp()) - %(retention)s;

-- name: counts
select status, count(*) from "{schema}"."{queue}" where status in ('pending', 'failed') group by status
union all
select 'running', count(*) from "{schema}"."{queue}" where status = 'running'
union all
select status, count(*) from "{schema}"."{queue}" where status in ('completed', 'dead') group by status;

-- name: get
select id, seq, type, status, priority, attempts, max_attempts, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout, unique_key, error, payload, result
from "{schema}"."{queue}" where id = %(id)s;

-- name: list
select id, seq, type, status, priority, attempts, max_attempts, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout, unique_key, error
from "{schema}"."{queue}"
where seq > %(after)s
    and (%(status)s::text is null or status = %(status)s)
    and (%(type)s::text is null or type = %(type)s)
    and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
order by seq
limit %(n)s;

-- name: list_wide
-- list, with payload and result.
select id, seq, type, status, priority, attempts, max_attempts, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout, unique_key, error, payload, result
from "{schema}"."{queue}"
where seq > %(after)s
    and (%(status)s::text is null or status = %(status)s)
    and (%(type)s::text is null or type = %(type)s)
    and (%(unique_key)s::text is null or unique_key = %(unique_key)s)
order by seq
limit %(n)s;

-- name: broken_rows
-- audit: rows that break G-1 or G-6, had the table's own checks been off.
-- Differs: no look for what is not JSON, for the columns' type does not hold it; uuid has no min() before version 18.
select id, 'G-1: not one of the five statuses' from "{schema}"."{queue}"
    where status not in ('pending', 'running', 'completed', 'failed', 'dead')
union all
select id, 'G-1: worker and lease_expires_at are set exactly while running' from "{schema}"."{queue}"
    where (status = 'running') <> (lease_expires_at is not null) or (status = 'running') <> (worker is not null)
union all
select id, 'G-1: completed_at is set exactly while completed or dead' from "{schema}"."{queue}"
    where (status in ('completed', 'dead')) <> (completed_at is not null)
union all
select id, 'G-6: attempts is not in 0…max_attempts, or exceeds fence' from "{schema}"."{queue}"
    where not (0 <= attempts and attempts <= max_attempts and attempts <= fence)
union all
select id, 'G-8: dead without a reason' from "{schema}"."{queue}" where status = 'dead' and error is null
union all
select id, 'G-7: failed with no attempt left' from "{schema}"."{queue}"
    where status = 'failed' and attempts >= max_attempts
union all
select (array_agg(id order by seq))[1], 'G-21: unique_key held more than once' from "{schema}"."{queue}"
    where unique_key is not null and status in ('pending', 'running', 'failed') group by unique_key having count(*) > 1
limit %(n)s;
