-- A domain has several DKIM keys, each with an algorithm and a role; it keeps its row when it is removed, so that the
-- mail that waits still leaves with its keys; and it says when it is checked next.

alter table domains rename to domains_before;

create table domains (
  domain_id integer primary key, -- grows with every addition: of two rows of one name the greater is the newer
  name text not null, -- lower-case A-labels; at most one living row of a name
  removed_at integer, -- null: living
  purged_through integer, -- its waiting messages up to this row end as canceled, null: they drain
  state text not null check (state in (
    'pending', -- never verified
    'verified', -- all required records are right
    'degraded', -- verified once, a required record is wrong now; still sends
    'failed', -- degraded for too long; does not send
    'suspended' -- by the operator
  )),
  return_path text not null, -- host name of the envelope sender's domain
  tracking_domain text not null, -- host name of tracked links
  tracking_opens integer not null check (tracking_opens in (0, 1)), -- 1: opens are seen
  tracking_clicks integer not null check (tracking_clicks in (0, 1)), -- 1: clicks are seen
  allow_subdomains integer not null check (allow_subdomains in (0, 1)), -- 1: names below it may be sent from
  ip_pool text, -- null: the default pool
  created_at integer not null,
  verified_at integer, -- when it last became verified
  last_checked_at integer,
  next_check_at integer, -- when the schedule checks it again, null: not by itself
  failing_since integer, -- since when a required record has been wrong
  failed_checks integer not null, -- checks in a row that found one wrong
  degraded_at integer, -- when it became degraded
  checks text not null -- JSON list of RecordCheck
) strict;

create unique index domains_living on domains (name) where removed_at is null;
create index domains_named on domains (name);
create index domains_due on domains (next_check_at) where removed_at is null and next_check_at is not null;
create index domains_purged on domains (domain_id) where purged_through is not null;

create table dkim_keys (
  dkim_key_id integer primary key,
  domain_id integer not null references domains (domain_id),
  selector text not null, -- where its record stands
  algorithm text not null check (algorithm in (
    'rsa-sha256', -- RFC 6376
    'ed25519-sha256' -- RFC 8463
  )),
  role text not null check (role in (
    'next', -- published soon; does not sign yet
    'active', -- signs
    'retiring' -- signed until the switch; its record has to stand until retire_at
  )),
  public_key text not null, -- the p= of its record
  sealed_private_key blob not null, -- see DkimKeyRecord
  created_at integer not null,
  seen_at integer, -- the first check that saw its record since it became `next`
  retire_at integer, -- until when the record of a retiring key must stand
  unique (domain_id, selector)
) strict;

-- What later columns say of a domain of the first version is what it did: everything by default, due for a check.
insert into domains
  (name, state, return_path, tracking_domain, tracking_opens, tracking_clicks, allow_subdomains, ip_pool, created_at,
  verified_at, last_checked_at, next_check_at, failed_checks, checks)
select
  name, state, return_path, 't.' || name, 1, 1, 0, ip_pool, created_at, verified_at, last_checked_at, created_at, 0,
  checks
from domains_before
order by created_at, name;

insert into dkim_keys
  (domain_id, selector, algorithm, role, public_key, sealed_private_key, created_at, seen_at)
select
  domains.domain_id, domains_before.selector, 'rsa-sha256', 'active', domains_before.public_key,
  domains_before.sealed_private_key, domains_before.created_at, domains_before.verified_at
from domains_before
join domains on domains.name = domains_before.name;

drop table domains_before;

-- What of a domain waits, counted and canceled without a walk through the queue.
create index messages_of_lane on messages (lane_id) where state = 'waiting';
