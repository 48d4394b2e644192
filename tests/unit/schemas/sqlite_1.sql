BEGIN TRANSACTION;
CREATE TABLE jobqueue_schema (queue text primary key, version integer not null) without rowid;
INSERT INTO "jobqueue_schema" VALUES('jobs',1);
CREATE TABLE "jobs" (
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
INSERT INTO "jobs" VALUES(1,X'01977420DC7B7C54A4413B2AE28BC3D5','completed','completed',0,1,3,1,1750000000123456,1750000000123456,1750000000123456,1750000000123456,NULL,NULL,NULL,NULL,NULL,'{"ok":true}','{"n":1}');
INSERT INTO "jobs" VALUES(2,X'01977420DC7B789EBC36DFE2FEF63619','failed','failed',0,1,3,1,1750000005502433,1750000000123456,1750000000123456,NULL,NULL,NULL,NULL,NULL,'boom',NULL,'{"n":2}');
INSERT INTO "jobs" VALUES(3,X'01977420DC7B7E219A8FB1DA71840195','dead','dead',0,1,1,1,1750000000123456,1750000000123456,1750000000123456,1750000000123456,NULL,NULL,NULL,NULL,'boom',NULL,'{"n":3}');
INSERT INTO "jobs" VALUES(4,X'01977420DC7B7EABBF3D0B5A6F41A9D7','running','running',0,1,3,1,1750000000123456,1750000000123456,1750000000123456,NULL,1750000030123456,'w1',5000000,'k',NULL,NULL,'{"n":4}');
INSERT INTO "jobs" VALUES(5,X'01977420DC7B7EAABA6EEDD1C1BD16CC','pending','pending',7,0,3,0,1750000060123456,1750000000123456,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"n":5}');
CREATE INDEX "jobs:claim" on "jobs" (type, priority desc, scheduled_at, seq)
    where status in ('pending', 'failed');
CREATE UNIQUE INDEX "jobs:unique_key" on "jobs" (unique_key)
    where unique_key is not null and status in ('pending', 'running', 'failed');
CREATE INDEX "jobs:lease" on "jobs" (lease_expires_at) where status = 'running';
CREATE INDEX "jobs:ended" on "jobs" (status, completed_at) where status in ('completed', 'dead');
CREATE VIEW "jobs_readable" as
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
from "jobs";
COMMIT;
