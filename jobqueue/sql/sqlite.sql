-- The statements of a queue on SQLite. postgres.sql has the same names in the same order; each statement is whole.
-- {queue} is the queue's checked name. Parameters are :named. Clauses are those of spec/lifecycle.md.

-- name: schema
-- Instants and durations are microseconds. The wide columns come last, so that a reader of the others does not touch them.
-- The status is checked with or: for a list of more than two SQLite builds a temporary table at every write, which is a
-- third of an insert. No AUTOINCREMENT: SQLite may give a deleted top seq again, and every write compares the id (G-15).
create table "{queue}" (
    seq integer primary key,
    id blob not null unique check (length(id) = 16),
    type text not null,
    status text not null check (
        status = 'pending' or status = 'running' or status = 'completed' or status = 'failed' or status = 'dead'
    ),
    priority integer not null check (priority between -32768 and 32767),
    attempts integer not null,
    max_attempts integer not null,
    fence integer not null,
    scheduled_at integer not null,
    created_at integer not null,
    started_at integer,
    completed_at integer,
    lease_expires_at integer,
    worker text,
    timeout integer,
    unique_key text,
    error text,
    result text,
    payload text not null,
    check (0 <= attempts and attempts <= max_attempts and attempts <= fence),
    check ((status = 'running') = (lease_expires_at is not null)),
    check ((status = 'running') = (worker is not null)),
    check ((status in ('completed', 'dead')) = (completed_at is not null))
);
-- The claim walks its levels (type, priority) by this index alone; it holds only what can be claimed.
create index "{queue}:claim" on "{queue}" (type, priority desc, scheduled_at, seq)
    where status in ('pending', 'failed');
-- G-21: the constraint decides.
create unique index "{queue}:unique_key" on "{queue}" (unique_key)
    where unique_key is not null and status in ('pending', 'running', 'failed');
-- The look of a sweep.
create index "{queue}:lease" on "{queue}" (lease_expires_at) where status = 'running';
-- Cleanup, and the counts of what has ended.
create index "{queue}:ended" on "{queue}" (status, completed_at) where status in ('completed', 'dead');
-- For a person with a plain SQL shell.
create view "{queue}_readable" as
select
    seq,
    lower(substr(hex(id), 1, 8) || '-' || substr(hex(id), 9, 4) || '-' || substr(hex(id), 13, 4) || '-'
        || substr(hex(id), 17, 4) || '-' || substr(hex(id), 21)) as id,
    type, status, priority, attempts, max_attempts, fence,
    strftime('%Y-%m-%d %H:%M:%S', scheduled_at / 1000000, 'unixepoch') || printf('.%06dZ', scheduled_at % 1000000) as scheduled_at,
    strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch') || printf('.%06dZ', created_at % 1000000) as created_at,
    strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch') || printf('.%06dZ', started_at % 1000000) as started_at,
    strftime('%Y-%m-%d %H:%M:%S', completed_at / 1000000, 'unixepoch') || printf('.%06dZ', completed_at % 1000000) as completed_at,
    strftime('%Y-%m-%d %H:%M:%S', lease_expires_at / 1000000, 'unixepoch') || printf('.%06dZ', lease_expires_at % 1000000) as lease_expires_at,
    worker, timeout / 1000000.0 as timeout_seconds, unique_key, error, result, payload
from "{queue}";

-- name: enqueue
-- T-1. A taken unique_key, or the id of a call that is being tried again, changes no row.
insert into "{queue}" (
    id, type, status, priority, attempts, max_attempts, fence, scheduled_at, created_at, timeout, unique_key, payload
) values (
    :id, :type, 'pending', :priority, 0, :max_attempts, 0, coalesce(:scheduled_at, :now + :delay), :now, :timeout,
    :unique_key, :payload
) on conflict do nothing;

-- name: key_holder
-- Who holds a unique key (G-21).
select id from "{queue}" indexed by "{queue}:unique_key"
where unique_key = :unique_key and status in ('pending', 'running', 'failed');

-- name: exists
select 1 from "{queue}" where id = :id;

-- name: first
-- The first :n claimable jobs of one type below a priority, in order (§6), due or not, as they will be once claimed.
-- Where all of them are due they are what T-2 wants; one that is not due tells that its level holds no more. So the common
-- claim is spared the walk of the next statement, at three times the cost.
select id, fence + 1, :worker, type, priority, attempts + 1, max_attempts, seq, scheduled_at, created_at, :now,
    :now + :lease, timeout, unique_key, error, cast(payload as blob)
from "{queue}" indexed by "{queue}:claim"
where type = :type and priority < :below and status in ('pending', 'failed')
order by priority desc, scheduled_at, seq
limit :n;

-- name: due
-- Up to :n due jobs, in order (§6), as they will be once claimed (T-2). The levels (type, priority) that hold claimable
-- jobs are walked one by one, highest priority of each type first; of each, up to :n due jobs are looked at. So the cost
-- does not depend on jobs that are finished, running, due later or of other types.
with recursive
wanted (type) as (
    select value from json_each(:types)
),
level (type, priority) as (
    select
        wanted.type,
        (
            select head.priority from "{queue}" as head indexed by "{queue}:claim"
            where head.type = wanted.type and head.status in ('pending', 'failed')
            order by head.priority desc limit 1
        )
    from wanted
    union all
    select
        level.type,
        (
            select head.priority from "{queue}" as head indexed by "{queue}:claim"
            where head.type = level.type and head.priority < level.priority and head.status in ('pending', 'failed')
            order by head.priority desc limit 1
        )
    from level
    where level.priority is not null
)
select due.id, due.fence + 1, :worker, due.type, due.priority, due.attempts + 1, due.max_attempts, due.seq,
    due.scheduled_at, due.created_at, :now, :now + :lease, due.timeout, due.unique_key, due.error,
    cast(due.payload as blob)
from level
cross join "{queue}" as due on due.seq in (
    select probe.seq from "{queue}" as probe indexed by "{queue}:claim"
    where probe.type = level.type and probe.priority = level.priority and probe.scheduled_at <= :now
        and probe.status in ('pending', 'failed')
    order by probe.scheduled_at, probe.seq
    limit :n
)
order by due.priority desc, due.scheduled_at, due.seq
limit :n;

-- name: dequeue
-- T-2 for one job that was found due. Found and marked in one statement it takes three times as long: SQLite then builds,
-- and frees, one more temporary table for each claim.
update "{queue}" set
    status = 'running', attempts = attempts + 1, fence = fence + 1, started_at = :now, worker = :worker,
    lease_expires_at = :now + :lease
where seq = :seq and id = :id and fence = :fence - 1 and status in ('pending', 'failed') and scheduled_at <= :now;

-- name: dequeue_many
-- T-2 for several jobs that were found due in the same transaction: nobody comes between, so their seqs name them.
update "{queue}" set
    status = 'running', attempts = attempts + 1, fence = fence + 1, started_at = :now, worker = :worker,
    lease_expires_at = :now + :lease
where seq in (select value from json_each(:seqs)) and status in ('pending', 'failed') and scheduled_at <= :now;

-- name: waiting_types
-- The types that hold claimable jobs, each by one step along the index.
with recursive waiting (type) as (
    select min(type) from "{queue}" indexed by "{queue}:claim" where status in ('pending', 'failed')
    union all
    select (
        select min(next.type) from "{queue}" as next indexed by "{queue}:claim"
        where next.type > waiting.type and next.status in ('pending', 'failed')
    )
    from waiting
    where waiting.type is not null
)
select type from waiting where type is not null;

-- name: due_in
-- How long until the earliest claimable job of these types is due: the heads of the levels tell.
with recursive
wanted (type) as (
    select value from json_each(:types)
),
level (type, priority) as (
    select
        wanted.type,
        (
            select head.priority from "{queue}" as head indexed by "{queue}:claim"
            where head.type = wanted.type and head.status in ('pending', 'failed')
            order by head.priority desc limit 1
        )
    from wanted
    union all
    select
        level.type,
        (
            select head.priority from "{queue}" as head indexed by "{queue}:claim"
            where head.type = level.type and head.priority < level.priority and head.status in ('pending', 'failed')
            order by head.priority desc limit 1
        )
    from level
    where level.priority is not null
)
select min((
    select probe.scheduled_at from "{queue}" as probe indexed by "{queue}:claim"
    where probe.type = level.type and probe.priority = level.priority and probe.status in ('pending', 'failed')
    order by probe.scheduled_at limit 1
)) - :now from level;

-- name: complete
-- T-3
update "{queue}" set
    status = 'completed', result = :result, completed_at = :now, lease_expires_at = null, worker = null
where seq = :seq and id = :id and fence = :fence and worker = :worker and status = 'running';

-- name: retry
-- T-4
update "{queue}" set
    status = 'failed', error = :error, scheduled_at = :now + :delay, lease_expires_at = null, worker = null
where seq = :seq and id = :id and fence = :fence and worker = :worker and status = 'running';

-- name: bury
-- T-5
update "{queue}" set
    status = 'dead', error = :error, completed_at = :now, lease_expires_at = null, worker = null
where seq = :seq and id = :id and fence = :fence and worker = :worker and status = 'running';

-- name: release
-- T-6
update "{queue}" set
    status = 'pending', attempts = attempts - 1, scheduled_at = coalesce(:now + :delay, scheduled_at),
    lease_expires_at = null, worker = null
where seq = :seq and id = :id and fence = :fence and worker = :worker and status = 'running';

-- name: extend
-- T-7
update "{queue}" set lease_expires_at = max(lease_expires_at, :now + :lease)
where seq = :seq and id = :id and fence = :fence and worker = :worker and status = 'running'
returning lease_expires_at;

-- name: settled_as
-- What became of a claim whose settlement's commit got no answer (spec §5, unknown outcomes).
select status, fence, worker, result, error from "{queue}" where seq = :seq and id = :id;

-- name: expired
-- The look of T-8.
select id, seq, fence, lease_expires_at, attempts, max_attempts
from "{queue}" indexed by "{queue}:lease"
where status = 'running' and lease_expires_at <= :now
order by lease_expires_at
limit :n;

-- name: sweep_retry
-- T-8 while attempts remain: fence and lease are those that were looked at, and the lease is expired still.
update "{queue}" set
    status = 'failed', error = :error, scheduled_at = :now + :delay, lease_expires_at = null, worker = null
where seq = :seq and id = :id and fence = :fence and lease_expires_at = :lease_expires_at and status = 'running'
    and lease_expires_at <= :now;

-- name: sweep_bury
-- T-8 at the last attempt.
update "{queue}" set
    status = 'dead', error = :error, completed_at = :now, lease_expires_at = null, worker = null
where seq = :seq and id = :id and fence = :fence and lease_expires_at = :lease_expires_at and status = 'running'
    and lease_expires_at <= :now;

-- name: cancel
-- T-9
update "{queue}" set
    status = 'dead', error = :error, completed_at = :now, lease_expires_at = null, worker = null
where id = :id and status in ('pending', 'failed', 'running');

-- name: requeue_look
-- What T-10 decides from.
select attempts, scheduled_at, created_at, unique_key, fence from "{queue}"
where id = :id and status in ('dead', 'failed');

-- name: requeue
-- T-10. The row is still as looked at; a taken unique_key changes no row (or ignore).
update or ignore "{queue}" set
    status = 'pending', attempts = 0, completed_at = null, scheduled_at = :scheduled_at
where id = :id and fence = :fence and attempts = :attempts and status in ('dead', 'failed');

-- name: select_ids
-- The jobs that a bulk cancel or requeue looks at, page by page.
select seq, id from "{queue}"
where seq > :after
    and status in (select value from json_each(:statuses))
    and (:type is null or type = :type)
    and (:unique_key is null or unique_key = :unique_key)
order by seq
limit :n;

-- name: cleanup
-- T-11, one batch. 'not indexed': the batch is found by the index once and deleted by seq, not searched a second time.
delete from "{queue}" not indexed
where seq in (
    select old.seq from "{queue}" as old indexed by "{queue}:ended"
    where old.status = :status and old.status in ('completed', 'dead') and old.completed_at <= :now - :retention
    limit :n
) and status = :status and status in ('completed', 'dead') and completed_at <= :now - :retention;

-- name: counts
select status, count(*) from "{queue}" indexed by "{queue}:claim" where status in ('pending', 'failed') group by status
union all
select 'running', count(*) from "{queue}" indexed by "{queue}:lease" where status = 'running'
union all
select status, count(*) from "{queue}" indexed by "{queue}:ended" where status in ('completed', 'dead') group by status;

-- name: get
select id, seq, type, status, priority, attempts, max_attempts, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout, unique_key, error,
    cast(payload as blob), cast(result as blob)
from "{queue}" where id = :id;

-- name: list
select id, seq, type, status, priority, attempts, max_attempts, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout, unique_key, error
from "{queue}"
where seq > :after
    and (:status is null or status = :status)
    and (:type is null or type = :type)
    and (:unique_key is null or unique_key = :unique_key)
order by seq
limit :n;

-- name: list_wide
-- list, with payload and result.
select id, seq, type, status, priority, attempts, max_attempts, scheduled_at, created_at, started_at, completed_at,
    lease_expires_at, worker, timeout, unique_key, error,
    cast(payload as blob), cast(result as blob)
from "{queue}"
where seq > :after
    and (:status is null or status = :status)
    and (:type is null or type = :type)
    and (:unique_key is null or unique_key = :unique_key)
order by seq
limit :n;

-- name: broken_rows
-- audit: rows that break G-1 or G-6, had the table's own checks been off.
select id, 'G-1: not one of the five statuses' from "{queue}"
    where status not in ('pending', 'running', 'completed', 'failed', 'dead')
union all
select id, 'G-1: worker and lease_expires_at are set exactly while running' from "{queue}"
    where (status = 'running') <> (lease_expires_at is not null) or (status = 'running') <> (worker is not null)
union all
select id, 'G-1: completed_at is set exactly while completed or dead' from "{queue}"
    where (status in ('completed', 'dead')) <> (completed_at is not null)
union all
select id, 'G-6: attempts is not in 0…max_attempts, or exceeds fence' from "{queue}"
    where not (0 <= attempts and attempts <= max_attempts and attempts <= fence)
union all
select id, 'G-8: dead without a reason' from "{queue}" where status = 'dead' and error is null
union all
select id, 'G-7: failed with no attempt left' from "{queue}" where status = 'failed' and attempts >= max_attempts
union all
select id, '§8: payload is not JSON' from "{queue}" where not json_valid(payload)
union all
select id, '§8: result is not JSON' from "{queue}" where result is not null and not json_valid(result)
union all
select min(id), 'G-21: unique_key held more than once' from "{queue}"
    where unique_key is not null and status in ('pending', 'running', 'failed') group by unique_key having count(*) > 1
limit :n;
