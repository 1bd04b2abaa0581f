-- Dedicated IPs: state, warmup days and their allowance, audit, statistics, and what paths are under (egress/README.md
-- "Warmup" and "Shaping").
--
-- `isp` is the mailbox provider; `*` stands for all together, `other` for those beyond the most that have a name of
-- their own on one day. Hours and slots are known by their beginning.

create table egress_ips (
  ip text primary key,
  state text not null check (state in (
    'cold', -- configured, never warmed up
    'warming', -- sends within its allowance
    'paused', -- only retries of its own mail
    'warmed', -- sends without a warmup cap
    'suspended' -- sends nothing
  )),
  former_state text, -- where paused and suspended go back to, else null
  until_at integer, -- end of the pause or suspension, null: until somebody resumes it
  reason text, -- of the pause or suspension
  actor text not null, -- key_…, cli, gate, clock, config
  since integer not null, -- when it came into this state
  curve text, -- name in warmup.yaml, null: never warmed up here, as the following
  stage integer, -- from 1
  target_daily_volume integer, -- the ramp ends there
  started_at integer,
  hold_reason text, -- why the last closed day did not advance it
  days_held integer not null, -- closed in a row without an advance
  days_at_target integer not null, -- healthy in a row at or above the target
  paused_at text not null, -- JSON list: pauses by a gate within 7 days
  closed_day text, -- YYYY-MM-DD, the last one that was judged
  last_sent_at integer, -- the last grant or attempt
  version integer not null -- raised with each change
) strict, without rowid;

-- What a warming IP may send on a UTC day, and what became of the messages that it tried first on that day.
create table warmup_days (
  ip text not null,
  day text not null, -- YYYY-MM-DD
  isp text not null,
  cap integer not null, -- as it was at the first grant, or at a change of stage since
  granted integer not null, -- net of refunds
  refunded integer not null default 0,
  arrival_at real not null, -- theoretical arrival time of the next grant (GCRA)
  interval_milliseconds real not null, -- by which the last grant moved it: a refund takes as much back
  first_attempts integer not null default 0,
  delivered integer not null default 0,
  hard integer not null default 0,
  soft integer not null default 0,
  block integer not null default 0,
  undetermined integer not null default 0,
  deferred integer not null default 0, -- first attempts put off as rate, ip_block, domain_block or policy
  complained integer not null default 0, -- complaints that came on this day
  primary key (ip, day, isp),
  check (granted between 0 and cap)
) strict, without rowid;

-- Five minutes of one IP: the rolling hour of its allowance, and the gates that look at the last hour. Kept for two
-- days, so that a clock that goes back finds them.
create table ip_slots (
  ip text not null,
  slot_at integer not null,
  granted integer not null default 0,
  first_attempts integer not null default 0,
  delivered integer not null default 0, -- of messages first tried in these minutes, as the next
  hard integer not null default 0,
  complained integer not null default 0, -- complaints that came in these minutes
  blocks integer not null default 0, -- replies of category ip_block
  primary key (ip, slot_at)
) strict, without rowid;

-- What happened, by when it happened (http/README.md "IP statistics").
create table ip_hours (
  ip text not null,
  hour integer not null,
  isp text not null,
  messages integer not null default 0, -- first attempts of the message from this IP
  attempts integer not null default 0, -- that reached MAIL FROM
  delivered integer not null default 0,
  deferred integer not null default 0, -- attempts that end in "later"
  bounced_hard integer not null default 0,
  bounced_soft integer not null default 0,
  bounced_block integer not null default 0,
  bounced_undetermined integer not null default 0,
  complained integer not null default 0,
  opened integer not null default 0, -- messages opened for the first time
  clicked integer not null default 0, -- links clicked for the first time
  primary key (ip, hour, isp)
) strict, without rowid;

create index ip_hours_together on ip_hours (ip, hour) where isp = '*';

create table ip_days (
  ip text not null,
  day text not null, -- YYYY-MM-DD, UTC
  isp text not null,
  messages integer not null default 0, -- as in ip_hours, down to clicked
  attempts integer not null default 0,
  delivered integer not null default 0,
  deferred integer not null default 0,
  bounced_hard integer not null default 0,
  bounced_soft integer not null default 0,
  bounced_block integer not null default 0,
  bounced_undetermined integer not null default 0,
  complained integer not null default 0,
  opened integer not null default 0,
  clicked integer not null default 0,
  durations text not null default '{}', -- JSON: class of duration -> delivering attempts (duration-classes.ts)
  isps integer not null default 0, -- of the row `*`: how many have a name of their own on this day
  primary key (ip, day, isp)
) strict, without rowid;

create index ip_days_together on ip_days (ip, day) where isp = '*';

create table warmup_audit (
  audit_seq integer primary key,
  ip text not null,
  at integer not null,
  actor text not null,
  action text not null, -- start, advance, hold, demote, pause …
  from_state text not null,
  to_state text not null,
  from_stage integer,
  to_stage integer,
  day text, -- the day that was judged, null: none
  figures text not null, -- JSON: what it was decided by
  reason text
) strict;

create index warmup_audit_of_ip on warmup_audit (ip);
create index warmup_audit_at on warmup_audit (at);

create table path_states (
  ip text not null,
  route text not null,
  state text not null, -- JSON, egress/shaping/shaping.ts reads it
  saved_at integer not null,
  primary key (ip, route)
) strict, without rowid;
