-- The queue by destination: a waiting message stands under its queue key (pool, route, lane, first attempt or retry),
-- so that the scheduler takes only what can leave now and a blocked provider's mail is never read over.

-- Where a recipient domain's mail goes, by number; a message refers to it without a foreign key, for it is checked with
-- every acceptance and only ever written by one function.
create table routes (
  route_id integer primary key,
  name text not null unique, -- a provider id or a site name
  isp text -- mailbox provider as the API names it, null: nobody's
) strict;

insert into routes (route_id, name) values (0, ''); -- not looked up yet
insert into routes (name) values ('capture'); -- the server on loopback

-- What was found out about a recipient domain: later mail to it is queued under its route at once.
create table domain_routes (
  domain text primary key, -- lower-case A-labels
  route_id integer not null references routes (route_id)
) strict, without rowid;

alter table messages rename column sticky_ip to last_ip; -- IP of the last attempt; before any, of the last path failure
alter table messages add column route_id integer not null default 0; -- routes.route_id
alter table messages add column dot_sent integer not null default 0 check (dot_sent in (0, 1)); -- 1: see markDotSent
alter table messages add column keep_ip_until integer; -- the next try leaves from last_ip until then, null: free choice
alter table messages add column avoid_ips text; -- JSON list of the IPs that were blocked for it, null: none
alter table messages add column waiting_for text; -- why it waits until next_at, null: see message-views.ts
-- 1: an attempt is behind it. Computed, and stored only in the index of the queue.
alter table messages add column is_retry integer generated always as (attempts > 0) virtual;

-- A message that was under way in the earlier program may have been delivered: there was no mark then.
update messages set dot_sent = 1 where state = 'sending';

update messages
set last_ip = (
  select ip
  from attempts
  where message_seq = seq and ip is not null and result <> 'path-failed'
  order by at desc
  limit 1
)
where state in ('waiting', 'sending') and attempts > 0;

update messages
set route_id = (select route_id from routes where name = 'capture')
where state in ('waiting', 'sending') and pool_id = (select pool_id from pools where name = '(capture)');

drop index messages_due;
create index messages_queue on messages (pool_id, route_id, lane_id, is_retry, next_at) where state = 'waiting';
-- Both hold only what waits for its route to be found: mail to known domains does not touch them. The condition is not
-- `route_id = 0`, for SQLite would look at the value of each `route_id = ?` to see whether they may be used, and so
-- prepare every such statement anew at each call.
create index messages_unrouted on messages (recipient_domain, next_at) where state = 'waiting' and route_id < 1;
-- With route_id the index alone answers.
create index messages_unrouted_due on messages (next_at, recipient_domain, route_id)
  where state = 'waiting' and route_id < 1;

alter table attempts add column tls_facts text; -- JSON of TlsFacts without its protocol, null: plain, or not known
