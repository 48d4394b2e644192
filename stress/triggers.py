"""The database's own log of every change of a job, in commit order, written by triggers that the run installs.

On SQLite there is one writer at a time, so the numbers of the log are the order of commits. On PostgreSQL they are not,
but those of one job are: its row is locked until the commit. The log is read back one job at a time.
"""

from __future__ import annotations

COLUMNS = "n, at, seq, was, status, attempts, max_attempts, fence, worker, scheduled_at, unique_key, note"

SQLITE = """
create table "{queue}_log" (
    n integer primary key, at real, seq integer, id blob, was text, status text, attempts integer, max_attempts integer,
    fence integer, worker text, scheduled_at integer, unique_key text, note text
);
create trigger "{queue}_log_insert" after insert on "{queue}" begin
    insert into "{queue}_log"
        (at, seq, id, was, status, attempts, max_attempts, fence, worker, scheduled_at, unique_key)
    values (julianday('now'), new.seq, new.id, 'absent', new.status, new.attempts, new.max_attempts, new.fence,
        new.worker, new.scheduled_at, new.unique_key);
end;
create trigger "{queue}_log_update" after update on "{queue}"
when old.status <> new.status or old.fence <> new.fence or old.attempts <> new.attempts or old.id <> new.id begin
    insert into "{queue}_log"
        (at, seq, id, was, status, attempts, max_attempts, fence, worker, scheduled_at, unique_key, note)
    values (julianday('now'), new.seq, new.id, old.status, new.status, new.attempts, new.max_attempts, new.fence,
        coalesce(new.worker, old.worker), new.scheduled_at, new.unique_key,
        case when new.status = 'completed' then new.result when new.status in ('failed', 'dead') then new.error end);
end;
create trigger "{queue}_log_delete" after delete on "{queue}" begin
    insert into "{queue}_log" (at, seq, id, was, status, attempts, max_attempts, fence, scheduled_at, unique_key)
    values (julianday('now'), old.seq, old.id, old.status, 'deleted', 0, old.max_attempts, 0, old.scheduled_at,
        old.unique_key);
end;
"""

POSTGRES = """
create table "{schema}"."{queue}_log" (
    n bigint generated always as identity primary key, at timestamptz default clock_timestamp(), seq bigint, id uuid,
    was text, status text, attempts integer, max_attempts integer, fence bigint, worker text, scheduled_at timestamptz,
    unique_key text, note text
);
create function "{schema}"."{queue}_log_change" () returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        insert into "{schema}"."{queue}_log"
            (seq, id, was, status, attempts, max_attempts, fence, scheduled_at, unique_key)
        values (old.seq, old.id, old.status, 'deleted', 0, old.max_attempts, 0, old.scheduled_at, old.unique_key);
    elsif tg_op = 'INSERT' then
        insert into "{schema}"."{queue}_log"
            (seq, id, was, status, attempts, max_attempts, fence, worker, scheduled_at, unique_key)
        values (new.seq, new.id, 'absent', new.status, new.attempts, new.max_attempts, new.fence, new.worker,
            new.scheduled_at, new.unique_key);
    elsif (old.status, old.fence, old.attempts, old.id)
            is distinct from (new.status, new.fence, new.attempts, new.id) then
        insert into "{schema}"."{queue}_log"
            (seq, id, was, status, attempts, max_attempts, fence, worker, scheduled_at, unique_key, note)
        values (new.seq, new.id, old.status, new.status, new.attempts, new.max_attempts, new.fence,
            coalesce(new.worker, old.worker), new.scheduled_at, new.unique_key,
            case when new.status = 'completed' then new.result::text
                when new.status in ('failed', 'dead') then new.error end);
    end if;
    return null;
end
$$;
create trigger "{queue}_log" after insert or update or delete on "{schema}"."{queue}"
    for each row execute function "{schema}"."{queue}_log_change" ();
"""
