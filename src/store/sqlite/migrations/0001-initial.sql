-- The walking skeleton: messages and their content, attempts, events, webhooks, domains, API keys.
--
-- Times are integer Unix milliseconds (UTC). Identifiers are the 16 bytes behind their prefix. `messages` is the hot
-- table: narrow, no text longer than an address. What it does not need while a message waits stands beside it.

create table meta (
  name text primary key, -- what is counted: `epoch`
  value integer not null -- the number
) strict, without rowid;

insert into meta (name, value) values ('epoch', 0);

create table pools (
  pool_id integer primary key,
  name text not null unique -- as in pools.yaml; a pool that left the file keeps its row
) strict;

create table lanes (
  lane_id integer primary key,
  domain text not null, -- the sending domain, lower-case A-labels
  stream text not null check (stream in ('transactional', 'bulk')), -- transactional: one person waits; bulk: a batch
  unique (domain, stream)
) strict;

create table contents (
  content_id integer primary key,
  from_name text, -- display name of the sender, null when there is none
  from_address text not null,
  reply_to_name text, -- display name for replies
  reply_to_address text, -- null: no Reply-To
  subject text not null, -- before variables
  has_variables integer not null check (has_variables in (0, 1)), -- 1: {{key}} is replaced
  html_bytes integer, -- length of the html in the parts, null: no html
  text_bytes integer, -- length of the text in the parts, null: made from the html, 0: none wanted
  attachments text -- JSON list of {name, contentType, contentId, sizeBytes} in the order of their bytes, null: none
) strict;

-- The bytes of a content: html, text, attachments one after the other, cut into pieces of at most 1 MiB. A table with
-- an integer key keeps 10 KB in one leaf and two overflow pages; an index on (content, piece) would cost a second tree.
create table content_parts (
  part_key integer primary key, -- content_id * 4096 + number of the piece from 0
  bytes blob not null
) strict;

create table messages (
  seq integer primary key, -- the row; `key` and `message_seq` elsewhere
  id blob not null unique, -- msg_…
  state text not null check (state in (
    'waiting', -- in the queue: scheduled, queued or deferred for the API
    'sending', -- leased to a delivery thread
    'delivered', -- final: the recipient's server took it
    'bounced', -- final: refused, or expired when the bounce's category says so
    'suppressed', -- final: not sent, the address is on the list
    'canceled' -- final: withdrawn
  )),
  pool_id integer not null references pools (pool_id),
  lane_id integer not null references lanes (lane_id), -- sending domain and stream
  content_id integer not null, -- shared with the other messages of a batch
  recipient text not null, -- as given, without display name
  recipient_domain text not null, -- lower-case A-labels
  next_at integer not null, -- when it is due; meaningless once final
  expires_at integer not null, -- end of its lifetime
  created_at integer not null, -- when it was accepted
  attempts integer not null default 0, -- tries that reached MAIL FROM
  path_failures integer not null default 0, -- tries in a row that did not
  ambiguous_count integer not null default 0, -- lost answers to the final dot on a live connection
  possible_duplicate integer not null default 0 check (possible_duplicate in (0, 1)), -- `uncertain` in the API
  sticky_ip text, -- egress IP of the first attempt
  isp text, -- mailbox provider, once known
  lease_epoch integer, -- the fence: who holds the row while it is `sending`
  lease_until integer, -- until when
  final_at integer -- when it reached its final state
) strict;

create index messages_due on messages (pool_id, next_at) where state = 'waiting';
create index messages_expiring on messages (expires_at) where state = 'waiting';
create index messages_leased on messages (lease_until) where state = 'sending';

-- What only rendering and lookup read; no row when there is nothing to say.
create table message_data (
  message_seq integer primary key references messages (seq),
  to_name text, -- display name of the recipient
  variables text, -- JSON object, null: none
  batch_id blob -- bat_…, null: a single send
) strict;

create table bounces (
  message_seq integer primary key references messages (seq), -- a message ends at most once
  type text not null check (type in ('hard', 'soft', 'block', 'undetermined', 'suppressed')),
  category text not null, -- mail/reply/bounce-category.ts
  code text not null, -- d.d.d
  description text not null -- the remote reply or a sentence
) strict;

-- One row for each try on the wire. Its key makes a batch of outcomes repeatable: a try is known by when it began and
-- how it ended.
create table attempts (
  message_seq integer not null references messages (seq),
  at integer not null, -- when it began
  result text not null, -- delivered, deferred, bounced, expired, path-failed, ambiguous
  duration_milliseconds integer not null,
  ip text, -- egress IP, null: the DNS gave the answer
  host text, -- MX host, null: none was asked
  local_address text, -- address our side of the socket had
  remote_address text, -- address of the peer
  tls text, -- protocol, null: plain
  stage text not null, -- where in the dialogue it ended
  reply text not null, -- remote reply or the reason in our words
  stale integer not null default 0 check (stale in (0, 1)), -- 1: the row was no longer held when this was recorded
  primary key (message_seq, at, result)
) strict, without rowid;

create table events (
  event_seq integer primary key,
  id blob not null, -- evt_…
  message_seq integer references messages (seq), -- null: an event of no message
  kind text not null, -- mail/event.ts
  at integer not null, -- when it happened
  body text -- the exact bytes every endpoint gets, null: an event without data
) strict;

-- Entries of one message are in the order of event_seq without naming it.
create index events_of_message on events (message_seq);

create table webhook_endpoints (
  endpoint_id integer primary key,
  id blob not null unique, -- wh_…
  url text not null,
  events text not null, -- JSON list of kinds, or ["*"]
  description text, -- the customer's note
  status text not null check (status in ('enabled', 'disabled')),
  sealed_secret blob not null, -- see WebhookEndpointRecord
  created_at integer not null
) strict;

-- One event on its way to one endpoint. A claim moves next_at to the end of its lease, so that a delivery whose holder
-- died is due again without further work.
create table webhook_deliveries (
  delivery_seq integer primary key,
  id blob not null, -- whd_…
  endpoint_id integer not null references webhook_endpoints (endpoint_id),
  event_seq integer not null references events (event_seq),
  state text not null check (state in (
    'pending', -- waits, or is being posted
    'succeeded', -- final: answered 200
    'failed' -- final: dead letter
  )),
  next_at integer not null, -- when it is due, or the end of its lease
  attempts integer not null default 0, -- failed posts
  lease_epoch integer -- the fence: who is posting it, null: nobody
) strict;

create index webhook_deliveries_due on webhook_deliveries (endpoint_id, next_at) where state = 'pending';
create index webhook_deliveries_leased on webhook_deliveries (lease_epoch) where lease_epoch is not null;

create table webhook_attempts (
  delivery_seq integer not null references webhook_deliveries (delivery_seq),
  at integer not null, -- when the post began
  duration_milliseconds integer not null,
  status integer, -- HTTP status, null: no answer
  error text, -- why there was no answer
  answer text not null, -- first bytes of the answer
  primary key (delivery_seq, at)
) strict, without rowid;

create table api_keys (
  id blob primary key, -- key_…
  hash blob not null unique, -- SHA-256 of the whole key
  name text not null,
  mode text not null check (mode in ('live', 'test')), -- test: its mail never leaves the host
  scopes text not null, -- JSON list
  domains text not null, -- JSON list of sending domains, empty: all
  allowed_ips text not null, -- JSON list of networks, empty: all
  prefix text not null, -- sk_live_ or sk_test_
  last4 text not null, -- last characters, to recognise it by
  created_at integer not null,
  expires_at integer, -- null: never
  revoked_at integer -- null: valid
) strict, without rowid;

create table domains (
  name text primary key, -- lower-case A-labels
  state text not null check (state in (
    'pending', -- never verified
    'verified', -- all required records are right
    'degraded', -- verified once, a required record is wrong now; still sends
    'failed', -- degraded for too long; does not send
    'suspended' -- by the operator
  )),
  selector text not null, -- of the DKIM record
  public_key text not null, -- the p= of the DKIM record
  sealed_private_key blob not null, -- see DomainRecord
  return_path text not null, -- host name of the envelope sender's domain
  ip_pool text, -- null: the default pool
  created_at integer not null,
  verified_at integer, -- when it last became verified
  last_checked_at integer,
  checks text not null -- JSON list of RecordCheck
) strict, without rowid;
