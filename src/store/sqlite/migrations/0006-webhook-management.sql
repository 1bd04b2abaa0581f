-- Webhook endpoints that can be changed, rotated, disabled and removed; deliveries that can be looked at, replayed and
-- forgotten.

alter table webhook_endpoints add column include text not null default '[]'; -- JSON list of fields beside the standard
alter table webhook_endpoints add column disabled_reason text check (disabled_reason in (
  'failing', -- no success for days and dead letters
  'manual' -- by the customer
)); -- null: enabled
alter table webhook_endpoints add column updated_at integer not null default 0; -- when the customer last changed it
alter table webhook_endpoints add column enabled_at integer not null default 0; -- dead letters before are not counted
alter table webhook_endpoints add column removed_at integer; -- null: living; a removed one goes with its deliveries
alter table webhook_endpoints add column last_success_at integer;
alter table webhook_endpoints add column last_failure_at integer;
alter table webhook_endpoints add column consecutive_failures integer not null default 0; -- failed attempts in a row
alter table webhook_endpoints add column next_sealed_secret blob; -- signs from switch_at on, null: no rotation
alter table webhook_endpoints add column switch_at integer; -- null: no rotation

update webhook_endpoints set updated_at = created_at, enabled_at = created_at;

alter table webhook_attempts rename to webhook_attempts_before;
alter table webhook_deliveries rename to webhook_deliveries_before;
drop index webhook_deliveries_due;
drop index webhook_deliveries_leased;

-- One event on its way to one endpoint. A claim moves next_at to the end of its lease, so that a delivery whose holder
-- died is due again without further work.
create table webhook_deliveries (
  delivery_seq integer primary key,
  id blob not null, -- whd_…, in the order of time
  endpoint_id integer not null references webhook_endpoints (endpoint_id),
  event_seq integer not null references events (event_seq),
  state text not null check (state in (
    'pending', -- waits, or is being posted
    'succeeded', -- final: answered 200
    'failed', -- final: dead letter
    'skipped' -- final: its endpoint was disabled when the event happened
  )),
  is_behind integer not null default 0 check (is_behind in (0, 1)), -- 1: goes after those that are not
  next_at integer not null, -- when it is due, or the end of its lease; meaningless once final
  attempts integer not null default 0, -- failed posts
  lease_epoch integer, -- the fence: who is posting it, null: nobody
  ended_at integer, -- null: pending
  body text -- the bytes for an endpoint that asked for more, null: those of the event
) strict;

insert into webhook_deliveries
  (delivery_seq, id, endpoint_id, event_seq, state, next_at, attempts, lease_epoch, ended_at)
select
  delivery_seq, id, endpoint_id, event_seq, state, next_at, attempts, lease_epoch,
  iif(state = 'pending', null, next_at)
from webhook_deliveries_before;

create table webhook_attempts (
  delivery_seq integer not null references webhook_deliveries (delivery_seq),
  at integer not null, -- when the post began
  duration_milliseconds integer not null,
  status integer, -- HTTP status, null: no answer
  error text, -- why there was no answer
  answer text not null, -- first bytes of the answer
  primary key (delivery_seq, at)
) strict, without rowid;

insert into webhook_attempts select * from webhook_attempts_before;

drop table webhook_attempts_before;
drop table webhook_deliveries_before;

create index webhook_deliveries_due on webhook_deliveries (endpoint_id, is_behind, next_at) where state = 'pending';
create index webhook_deliveries_leased on webhook_deliveries (lease_epoch) where lease_epoch is not null;
create index webhook_deliveries_of_endpoint on webhook_deliveries (endpoint_id, id);
create index webhook_deliveries_ended on webhook_deliveries (endpoint_id, state, id, ended_at) where state <> 'pending';
create index webhook_deliveries_of_event on webhook_deliveries (event_seq);
