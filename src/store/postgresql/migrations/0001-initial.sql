-- The schema of SQLite (../../sqlite/migrations) as PostgreSQL has it: the same tables and columns, bigint for integer,
-- bytea for blob, text compared by its bytes. test/store/schemas.test.ts holds both against each other.
--
-- Rows are numbered from blocks that the program takes of `row_numbers`, so that an insert needs no answer.
-- Tables that are written for each message have no foreign keys. An index ends with the number of its row, as those of
-- SQLite do by themselves: rows of equal keys have an order.

-- What the verbs say, and PostgreSQL has under another name.

create function max(a double precision, b double precision) returns double precision
  language sql immutable return case when a is null or b is null then null when a > b then a else b end;
create function max(a bigint, b bigint) returns bigint
  language sql immutable return case when a is null or b is null then null when a > b then a else b end;
create function min(a bigint, b bigint) returns bigint
  language sql immutable return case when a is null or b is null then null when a < b then a else b end;
create function iif(condition boolean, yes bigint, no bigint) returns bigint
  language sql immutable return case when condition then yes else no end;
create function iif(condition boolean, yes text, no text) returns text
  language sql immutable return case when condition then yes else no end;
create function instr(whole text, part text) returns integer
  language sql immutable return strpos(whole, part);
create function json_each(list text) returns table (value text)
  language sql immutable begin atomic select json_array_elements_text(list::json); end;
create function json_extract(json text, path text) returns text
  language sql immutable return jsonb_path_query_first(json::jsonb, path::jsonpath) #>> '{}';
create function date(day text, change text) returns text
  language sql immutable return to_char(day::timestamp + change::interval, 'YYYY-MM-DD');
-- `forms`: an expression that matches the address however its letters are written.
create function without_address(whole text, forms text, replacement text) returns text
  language sql immutable return regexp_replace(whole, forms, replacement, 'gi');

create function lesser(a bytea, b bytea) returns bytea
  language sql immutable return case when b is null or a < b then a else coalesce(b, a) end;
create aggregate min(bytea) (sfunc = lesser, stype = bytea, sortop = <);

create sequence row_numbers start 1000 increment by 1000;

create table schema_version (
  version bigint not null -- of the last migration that ran
);

insert into schema_version values (0);

create table meta (
  name text collate "C" primary key, -- what is counted: `epoch`
  value bigint not null -- the number
);

create table pools (
  pool_id bigint primary key,
  name text collate "C" not null unique -- as in pools.yaml; a pool that left the file keeps its row
);

create table lanes (
  lane_id bigint primary key,
  domain text collate "C" not null, -- the sending domain, lower-case A-labels
  stream text collate "C" not null check (stream in ('transactional', 'bulk')), -- transactional: one person waits; bulk: a batch
  unique (domain, stream)
);

create table contents (
  content_id bigint primary key,
  from_name text collate "C", -- display name of the sender, null when there is none
  from_address text collate "C" not null,
  subject text collate "C" not null, -- before variables
  has_variables smallint not null check (has_variables in (0, 1)), -- 1: {{key}} is replaced
  html_bytes bigint, -- length of the html in the parts, null: no html
  text_bytes bigint, -- length of the text in the parts, null: made from the html, 0: none wanted
  attachments text collate "C", -- JSON list of {name, contentType, contentId, sizeBytes} in the order of their bytes, null: none
  raw_bytes bigint, -- submitted mail: length of the message in the parts; null: composed
  is_test smallint not null default 0 check (is_test in (0, 1)), -- 1: mail of a test key
  send_at bigint, -- when its messages are due first, null: at once
  retry_of bytea, -- msg_… that its only message repeats, null: none
  tracks_opens smallint not null default 0 check (tracks_opens in (0, 1)), -- 1: with pixel
  tracks_clicks smallint not null default 0 check (tracks_clicks in (0, 1)), -- 1: links
  unsubscribe_list text collate "C", -- scope of an unsubscribe, null: no List-Unsubscribe
  unsubscribe_url text collate "C", -- the customer's own address for it, null: ours
  tags text collate "C", -- JSON object, null: none
  metadata text collate "C", -- JSON object, null: none
  headers text collate "C", -- JSON list of [name, value], null: none
  addressees text collate "C", -- JSON {to, cc} for the header of every message, null: its recipient
  reply_to text collate "C" -- JSON list of mailboxes ({name, address}), null: no Reply-To
);

create table content_parts (
  part_key bigint primary key, -- content_id * 4096 + number of the piece from 0
  bytes bytea not null
);

create table messages (
  seq bigint primary key, -- the row; `key` and `message_seq` elsewhere
  id bytea not null unique, -- msg_…
  state text collate "C" not null check (
    state = 'waiting' -- in the queue: scheduled, queued or deferred for the API
    or state = 'sending' -- leased to a delivery thread
    or state = 'delivered' -- final: the recipient's server took it
    or state = 'bounced' -- final: refused, or expired when the bounce's category says so
    or state = 'suppressed' -- final: not sent, the address is on the list
    or state = 'canceled' -- final: withdrawn
  ),
  pool_id bigint not null,
  lane_id bigint not null, -- sending domain and stream
  content_id bigint not null, -- shared with the other messages of a batch
  recipient text collate "C" not null, -- as given, without display name
  recipient_domain text collate "C" not null, -- lower-case A-labels
  next_at bigint not null, -- when it is due; meaningless once final
  expires_at bigint not null, -- end of its lifetime
  created_at bigint not null, -- when it was accepted
  attempts bigint not null default 0, -- tries that reached MAIL FROM
  path_failures bigint not null default 0, -- tries in a row that did not
  ambiguous_count bigint not null default 0, -- lost answers to the final dot on a live connection
  possible_duplicate smallint not null default 0 check (possible_duplicate in (0, 1)), -- `uncertain` in the API
  last_ip text collate "C", -- egress IP of the first attempt
  isp text collate "C", -- mailbox provider, once known
  lease_epoch bigint, -- the fence: who holds the row while it is `sending`
  lease_until bigint, -- until when
  final_at bigint, -- when it reached its final state
  route_id bigint not null default 0, -- routes.route_id
  dot_sent smallint not null default 0 check (dot_sent in (0, 1)), -- 1: see markDotSent
  keep_ip_until bigint, -- the next try leaves from last_ip until then, null: free choice
  avoid_ips text collate "C", -- JSON list of the IPs that were blocked for it, null: none
  waiting_for text collate "C", -- why it waits until next_at, null: see message-views.ts
  is_retry smallint not null generated always as (case when attempts > 0 then 1 else 0 end) stored, -- 1: an attempt is behind it. Computed, and stored only in the index of the queue.
  claim bigint -- counted in lease_epoch, null: nobody holds it
);

-- An index of the rows that wait looks as if it were nearly empty, so any of them seems good enough for any question. It
-- passes for those alone that say something of its own column: it must not be null, which it never is.
create index messages_expiring on messages (expires_at, seq) where state = 'waiting' and expires_at is not null;

create index messages_leased on messages (lease_until, seq) where state = 'sending';

create table message_data (
  message_seq bigint primary key,
  to_name text collate "C", -- display name of the recipient
  variables text collate "C", pool_id bigint);

create table bounces (
  message_seq bigint primary key, -- a message ends at most once
  type text collate "C" not null check (type in ('hard', 'soft', 'block', 'undetermined', 'suppressed')),
  category text collate "C" not null, -- mail/reply/bounce-category.ts
  code text collate "C" not null, -- d.d.d
  description text collate "C" not null, -- the remote reply or a sentence
  late smallint not null default 0 check (late in (0, 1)), -- 1: after delivery
  at bigint -- of a late one: when it was known; null: messages.final_at
);

create table attempts (
  message_seq bigint not null,
  at bigint not null, -- when it began
  result text collate "C" not null, -- delivered, deferred, bounced, expired, path-failed, ambiguous
  duration_milliseconds bigint not null,
  ip text collate "C", -- egress IP, null: the DNS gave the answer
  host text collate "C", -- MX host, null: none was asked
  local_address text collate "C", -- address our side of the socket had
  remote_address text collate "C", -- address of the peer
  tls text collate "C", -- protocol, null: plain
  stage text collate "C" not null, -- where in the dialogue it ended
  reply text collate "C" not null, -- remote reply or the reason in our words
  stale smallint not null default 0 check (stale in (0, 1)), tls_facts text collate "C", -- 1: the row was no longer held when this was recorded
  primary key (message_seq, at, result)
);

create table events (
  event_seq bigint primary key,
  id bytea not null, -- evt_…
  message_seq bigint, -- null: an event of no message
  kind text collate "C" not null, -- mail/event.ts
  at bigint not null, -- when it happened
  body text collate "C" -- the exact bytes every endpoint gets, null: an event without data
);

create index events_of_message on events (message_seq, event_seq);

create table webhook_endpoints (
  endpoint_id bigint primary key,
  id bytea not null unique, -- wh_…
  url text collate "C" not null,
  events text collate "C" not null, -- JSON list of kinds, or ["*"]
  description text collate "C", -- the customer's note
  status text collate "C" not null check (status in ('enabled', 'disabled')),
  sealed_secret bytea not null, -- see WebhookEndpointRecord
  created_at bigint not null,
  include text collate "C" not null default '[]', -- JSON list of fields beside the standard
  disabled_reason text collate "C" check (disabled_reason in ( -- null: enabled
  'failing', -- no success for days and dead letters
  'manual' -- by the customer
)),
  updated_at bigint not null default 0, -- when the customer last changed it
  enabled_at bigint not null default 0, -- dead letters before are not counted
  removed_at bigint, -- null: living; a removed one goes with its deliveries
  last_success_at bigint,
  last_failure_at bigint,
  consecutive_failures bigint not null default 0, -- failed attempts in a row
  next_sealed_secret bytea, -- signs from switch_at on, null: no rotation
  switch_at bigint, -- null: no rotation
  is_test smallint default 0 check (is_test in (0, 1)), -- 1: events of test mail
  domains text collate "C" not null default '[]' -- JSON list of sending domains, empty: all
);

create table api_keys (
  id bytea primary key, -- key_…
  hash bytea not null unique, -- SHA-256 of the whole key
  name text collate "C" not null,
  mode text collate "C" not null check (mode in ('live', 'test')), -- test: its mail never leaves the host
  scopes text collate "C" not null, -- JSON list
  domains text collate "C" not null, -- JSON list of sending domains, empty: all
  allowed_ips text collate "C" not null, -- JSON list of networks, empty: all
  prefix text collate "C" not null, -- sk_live_ or sk_test_
  last4 text collate "C" not null, -- last characters, to recognise it by
  created_at bigint not null,
  expires_at bigint, -- null: never
  revoked_at bigint, -- null: valid
  last_used_at bigint -- right to within five minutes, null: never
);

create table domains (
  domain_id bigint primary key, -- grows with every addition: of two rows of one name the greater is the newer
  name text collate "C" not null, -- lower-case A-labels; at most one living row of a name
  removed_at bigint, -- null: living
  purged_through bigint, -- its waiting messages up to this row end as canceled, null: they drain
  state text collate "C" not null check (state in (
    'pending', -- never verified
    'verified', -- all required records are right
    'degraded', -- verified once, a required record is wrong now; still sends
    'failed', -- degraded for too long; does not send
    'suspended' -- by the operator
  )),
  return_path text collate "C" not null, -- host name of the envelope sender's domain
  tracking_domain text collate "C" not null, -- host name of tracked links
  tracking_opens smallint not null check (tracking_opens in (0, 1)), -- 1: opens are seen
  tracking_clicks smallint not null check (tracking_clicks in (0, 1)), -- 1: clicks are seen
  allow_subdomains smallint not null check (allow_subdomains in (0, 1)), -- 1: names below it may be sent from
  ip_pool text collate "C", -- null: the default pool
  created_at bigint not null,
  verified_at bigint, -- when it last became verified
  last_checked_at bigint,
  next_check_at bigint, -- when the schedule checks it again, null: not by itself
  failing_since bigint, -- since when a required record has been wrong
  failed_checks bigint not null, -- checks in a row that found one wrong
  degraded_at bigint, -- when it became degraded
  checks text collate "C" not null -- JSON list of RecordCheck
);

create unique index domains_living on domains (name) where removed_at is null;

create index domains_named on domains (name, domain_id);

create index domains_due on domains (next_check_at, domain_id) where removed_at is null and next_check_at is not null;

create index domains_purged on domains (domain_id) where purged_through is not null;

create table dkim_keys (
  dkim_key_id bigint primary key,
  domain_id bigint not null references domains (domain_id),
  selector text collate "C" not null, -- where its record stands
  algorithm text collate "C" not null check (algorithm in (
    'rsa-sha256', -- RFC 6376
    'ed25519-sha256' -- RFC 8463
  )),
  role text collate "C" not null check (role in (
    'next', -- published soon; does not sign yet
    'active', -- signs
    'retiring' -- signed until the switch; its record has to stand until retire_at
  )),
  public_key text collate "C" not null, -- the p= of its record
  sealed_private_key bytea not null, -- see DkimKeyRecord
  created_at bigint not null,
  seen_at bigint, -- the first check that saw its record since it became `next`
  retire_at bigint, -- until when the record of a retiring key must stand
  unique (domain_id, selector)
);

create index messages_of_lane on messages (lane_id, seq) where state = 'waiting' and seq is not null;

create index contents_from on contents (from_address, content_id);

create table batches (
  content_id bigint primary key,
  id bytea not null unique, -- bat_…
  api_key_id bytea, -- key_… that sent it, null: the administrator
  created_at bigint not null,
  rejected bigint not null -- recipients that were refused and have no message
);

create index messages_of_content on messages (content_id, seq);

create index messages_to on messages (recipient, seq);

create table idempotency_keys (
  idempotency_seq bigint primary key, -- the oldest first
  api_key_id bytea not null, -- key_…, no bytes: the administrator
  key text collate "C" not null, -- as the client sent it
  fingerprint bytea not null, -- SHA-256 of method, path and canonical body
  created_at bigint not null, -- it lives 24 h
  status bigint not null, -- HTTP status of the answer
  body text collate "C" not null, -- JSON of the answer as if nothing were suppressed
  suppressed text collate "C", -- JSON list of {index, reason}: what was, null: nothing
  unique (api_key_id, key)
);

create table transcripts (
  transcript_seq bigint primary key,
  message_seq bigint not null,
  at bigint not null, -- with the result, names the try as in attempts
  result text collate "C" not null,
  dialogue text collate "C" not null -- lines, at most 16 KiB
);

create index transcripts_of_message on transcripts (message_seq, transcript_seq);

create index attempts_by_time on attempts (at);

create index api_keys_living on api_keys (mode) where revoked_at is null;

create table complaints (
  message_seq bigint primary key, -- counted once for each message
  at bigint not null,
  feedback_type text collate "C" not null -- of the report, RFC 5965
);

create table engagement_counts (
  message_seq bigint primary key,
  opens bigint not null default 0, -- by people
  clicks bigint not null default 0,
  machine_opens bigint not null default 0, -- by privacy proxies and link scanners
  machine_clicks bigint not null default 0
);

create table reports (
  message_seq bigint not null,
  kind text collate "C" not null, -- bounce, early-bounce (while it waited), complaint, opt-out, unsubscribe, or what a note is about
  at bigint not null, -- when it first came
  primary key (message_seq, kind)
);

create table unmatched_reports (
  unmatched_seq bigint primary key,
  at bigint not null, -- when it came
  kind text collate "C" not null, -- what the reader took it for
  sender text collate "C" not null, -- MAIL FROM
  recipient text collate "C" not null, -- RCPT TO
  remote_address text collate "C" not null, -- who brought it
  bytes bytea not null -- its first bytes
);

create index unmatched_reports_by_time on unmatched_reports (at, unmatched_seq);

create index domains_returning on domains (return_path, domain_id);

create table engagement (
  message_seq bigint not null,
  kind text collate "C" not null check (kind in (
    'open', -- the pixel was fetched
    'click' -- a link was followed
  )),
  link bigint not null, -- its number in the html, 0 for an open
  machine smallint not null check (machine in (0, 1)), -- 1: by a privacy proxy or a link scanner
  first_at bigint not null, -- when it was seen first
  hits bigint not null, -- how often
  client_address text collate "C", -- of the first hit, null: not kept
  user_agent text collate "C", -- of the first hit, null: not kept
  primary key (message_seq, kind, link, machine)
);

create table webhook_deliveries (
  delivery_seq bigint primary key,
  id bytea not null, -- whd_…, in the order of time
  endpoint_id bigint not null,
  event_seq bigint not null,
  state text collate "C" not null check (
    state = 'pending' -- waits, or is being posted
    or state = 'succeeded' -- final: answered 200
    or state = 'failed' -- final: dead letter
    or state = 'skipped' -- final: its endpoint was disabled when the event happened
  ),
  is_behind smallint not null default 0 check (is_behind in (0, 1)), -- 1: goes after those that are not
  next_at bigint not null, -- when it is due, or the end of its lease; meaningless once final
  attempts bigint not null default 0, -- failed posts
  lease_epoch bigint, -- the fence: who is posting it, null: nobody
  ended_at bigint, -- null: pending
  body text collate "C" -- the bytes for an endpoint that asked for more, null: those of the event
);

create table webhook_attempts (
  delivery_seq bigint not null,
  at bigint not null, -- when the post began
  duration_milliseconds bigint not null,
  status bigint, -- HTTP status, null: no answer
  error text collate "C", -- why there was no answer
  answer text collate "C" not null, -- first bytes of the answer
  primary key (delivery_seq, at)
);

create index webhook_deliveries_due on webhook_deliveries (endpoint_id, is_behind, next_at, delivery_seq) where state = 'pending';

create index webhook_deliveries_leased on webhook_deliveries (lease_epoch, delivery_seq) where lease_epoch is not null;

create index webhook_deliveries_of_endpoint on webhook_deliveries (endpoint_id, id, delivery_seq);

create index webhook_deliveries_ended on webhook_deliveries (endpoint_id, state, id, ended_at, delivery_seq) where state <> 'pending';

create index webhook_deliveries_of_event on webhook_deliveries (event_seq, delivery_seq);

create table routes (
  route_id bigint primary key,
  name text collate "C" not null unique, -- a provider id or a site name
  isp text collate "C" -- mailbox provider as the API names it, null: nobody's
);

create table domain_routes (
  domain text collate "C" primary key, -- lower-case A-labels
  route_id bigint not null
);

create index messages_queue on messages (pool_id, route_id, lane_id, is_retry, next_at, seq) where state = 'waiting';

create index messages_unrouted on messages (recipient_domain, next_at, seq) where state = 'waiting' and route_id < 1;

create index messages_unrouted_due on messages (next_at, recipient_domain, route_id, seq)
  where state = 'waiting' and route_id < 1;

create table egress_ips (
  ip text collate "C" primary key,
  state text collate "C" not null check (state in (
    'cold', -- configured, never warmed up
    'warming', -- sends within its allowance
    'paused', -- only retries of its own mail
    'warmed', -- sends without a warmup cap
    'suspended' -- sends nothing
  )),
  former_state text collate "C", -- where paused and suspended go back to, else null
  until_at bigint, -- end of the pause or suspension, null: until somebody resumes it
  reason text collate "C", -- of the pause or suspension
  actor text collate "C" not null, -- key_…, cli, gate, clock, config
  since bigint not null, -- when it came into this state
  curve text collate "C", -- name in warmup.yaml, null: never warmed up here, as the following
  stage bigint, -- from 1
  target_daily_volume bigint, -- the ramp ends there
  started_at bigint,
  hold_reason text collate "C", -- why the last closed day did not advance it
  days_held bigint not null, -- closed in a row without an advance
  days_at_target bigint not null, -- healthy in a row at or above the target
  paused_at text collate "C" not null, -- JSON list: pauses by a gate within 7 days
  closed_day text collate "C", -- YYYY-MM-DD, the last one that was judged
  last_sent_at bigint, -- the last grant or attempt
  version bigint not null -- raised with each change
);

create table warmup_days (
  ip text collate "C" not null,
  day text collate "C" not null, -- YYYY-MM-DD
  isp text collate "C" not null,
  cap bigint not null, -- as it was at the first grant, or at a change of stage since
  granted bigint not null, -- net of refunds
  refunded bigint not null default 0,
  arrival_at double precision not null, -- theoretical arrival time of the next grant (GCRA)
  interval_milliseconds double precision not null, -- by which the last grant moved it: a refund takes as much back
  first_attempts bigint not null default 0,
  delivered bigint not null default 0,
  hard bigint not null default 0,
  soft bigint not null default 0,
  block bigint not null default 0,
  undetermined bigint not null default 0,
  deferred bigint not null default 0, -- first attempts put off as rate, ip_block, domain_block or policy
  complained bigint not null default 0, -- complaints that came on this day
  primary key (ip, day, isp),
  check (granted between 0 and cap)
);

create table ip_slots (
  ip text collate "C" not null,
  slot_at bigint not null,
  granted bigint not null default 0,
  first_attempts bigint not null default 0,
  delivered bigint not null default 0, -- of messages first tried in these minutes, as the next
  hard bigint not null default 0,
  complained bigint not null default 0, -- complaints that came in these minutes
  blocks bigint not null default 0, -- replies of category ip_block
  primary key (ip, slot_at)
);

create table ip_hours (
  ip text collate "C" not null,
  hour bigint not null,
  isp text collate "C" not null,
  messages bigint not null default 0, -- first attempts of the message from this IP
  attempts bigint not null default 0, -- that reached MAIL FROM
  delivered bigint not null default 0,
  deferred bigint not null default 0, -- attempts that end in "later"
  bounced_hard bigint not null default 0,
  bounced_soft bigint not null default 0,
  bounced_block bigint not null default 0,
  bounced_undetermined bigint not null default 0,
  complained bigint not null default 0,
  opened bigint not null default 0, -- messages opened for the first time
  clicked bigint not null default 0, -- links clicked for the first time
  primary key (ip, hour, isp)
);

create index ip_hours_together on ip_hours (ip, hour) where isp = '*';

create table ip_days (
  ip text collate "C" not null,
  day text collate "C" not null, -- YYYY-MM-DD, UTC
  isp text collate "C" not null,
  messages bigint not null default 0, -- as in ip_hours, down to clicked
  attempts bigint not null default 0,
  delivered bigint not null default 0,
  deferred bigint not null default 0,
  bounced_hard bigint not null default 0,
  bounced_soft bigint not null default 0,
  bounced_block bigint not null default 0,
  bounced_undetermined bigint not null default 0,
  complained bigint not null default 0,
  opened bigint not null default 0,
  clicked bigint not null default 0,
  durations text collate "C" not null default '{}', -- JSON: class of duration -> delivering attempts (duration-classes.ts)
  isps bigint not null default 0, -- of the row `*`: how many have a name of their own on this day
  primary key (ip, day, isp)
);

create index ip_days_together on ip_days (ip, day) where isp = '*';

create table warmup_audit (
  audit_seq bigint primary key,
  ip text collate "C" not null,
  at bigint not null,
  actor text collate "C" not null,
  action text collate "C" not null, -- start, advance, hold, demote, pause …
  from_state text collate "C" not null,
  to_state text collate "C" not null,
  from_stage bigint,
  to_stage bigint,
  day text collate "C", -- the day that was judged, null: none
  figures text collate "C" not null, -- JSON: what it was decided by
  reason text collate "C"
);

create index warmup_audit_of_ip on warmup_audit (ip, audit_seq);

create index warmup_audit_at on warmup_audit (at, audit_seq);

create table path_states (
  ip text collate "C" not null,
  route text collate "C" not null,
  state text collate "C" not null, -- JSON, egress/shaping/shaping.ts reads it
  saved_at bigint not null,
  primary key (ip, route)
);

create table sts_policies (
  domain text collate "C" primary key, -- the recipient domain
  policy_id text collate "C" not null, -- of the TXT record
  mode text collate "C" not null check (mode in ('enforce', 'testing', 'none')),
  mx text collate "C" not null, -- JSON list of patterns
  fetched_at bigint not null,
  expires_at bigint not null -- end of max_age
);

create index sts_policies_fetched on sts_policies (fetched_at);

create index sts_policies_expiring on sts_policies (expires_at);

create table plain_memories (
  ip text collate "C" not null, -- egress IP
  host text collate "C" not null, -- MX host
  until_at bigint not null,
  reason text collate "C" not null, -- what failed
  primary key (ip, host)
);

create index plain_memories_until on plain_memories (until_at);

create table tls_results (
  day text collate "C" not null, -- YYYY-MM-DD
  domain text collate "C" not null, -- the recipient domain
  policy_type text collate "C" not null check (policy_type in ('sts', 'tlsa', 'no-policy-found')),
  host text collate "C" not null, -- MX host
  ip text collate "C" not null, -- egress IP
  result text collate "C" not null, -- success, or a result type of RFC 8460 §4.3
  policy text collate "C" not null, -- JSON list: the lines of the policy
  count bigint not null, -- connections
  primary key (day, domain, policy_type, host, ip, result, policy)
);

create table tls_reports (
  day text collate "C" not null, -- YYYY-MM-DD, which was reported
  domain text collate "C" not null,
  primary key (day, domain)
);

create table content_tags (
  key text collate "C" not null,
  value text collate "C" not null,
  content_id bigint not null, -- contents.content_id
  primary key (key, value, content_id)
);

create table kept_links (
  content_id bigint primary key, -- contents.content_id
  links text collate "C" not null -- JSON list by number, content/kept-links.ts reads it
);

create table traces (
  trace_seq bigint primary key, -- in the order of removal
  id bytea not null unique, -- msg_…
  content_id bigint not null, -- contents.content_id; its facts stay as long as a trace needs them
  lane_id bigint not null, -- sending domain
  recipient text collate "C" not null, -- who leaves the list
  variables text collate "C", -- what targets with placeholders are filled with, null: none
  ended_at bigint not null -- messages.final_at
);

create index traces_of_content on traces (content_id, trace_seq);

create index traces_to on traces (recipient, trace_seq);

create table database_days (
  day text collate "C" primary key, -- YYYY-MM-DD, UTC
  bytes bigint not null -- in use at the first look on that day
);

create table waiting_counts (
  waiting_seq bigint primary key, -- in the order in which it happened
  counts text collate "C" not null -- JSON, waiting-counts.ts reads it
);

create table suppressions (
  suppression_seq bigint primary key, -- order of the list
  id bytea not null, -- sup_…
  address text collate "C" not null, -- local part as given, domain in lower case
  is_test smallint not null check (is_test in (0, 1)), -- 1: the list of test keys
  scope text collate "C" not null, -- `all`, or the list whose mail it keeps away
  domain text collate "C" not null default '', -- the sending domain whose mail it keeps away, empty: of all
  owners text collate "C" not null default '[]', -- JSON list of the sending domains that added or found it, empty: the server
  reason text collate "C" not null check (reason in (
    'hard_bounce', -- mail to it bounced for good
    'complaint', -- its owner reported mail as spam
    'unsubscribe', -- its owner left the list
    'manual' -- added by the customer
  )),
  message_id bytea, -- msg_… that brought it onto the list, null: none
  created_at bigint not null,
  unique (address, is_test, scope, domain)
);

create index suppressions_of_list on suppressions (is_test, suppression_seq);

create table authentication_reports (
  domain text collate "C" not null, -- the sending domain, or a name of this server
  day text collate "C" not null, -- YYYY-MM-DD, on which the reported time begins
  kind text collate "C" not null check (kind in ('dmarc', 'tls')),
  reporter text collate "C" not null, -- as it calls itself
  report_id text collate "C" not null, -- as the reporter numbers it
  at bigint not null, -- when it came
  primary key (domain, day, kind, reporter, report_id)
);

create index authentication_reports_day on authentication_reports (day);

create table dmarc_sources (
  domain text collate "C" not null, -- the sending domain
  day text collate "C" not null, -- YYYY-MM-DD
  reporter text collate "C" not null, -- empty: of several
  ip text collate "C" not null, -- canonical; empty: of several
  messages bigint not null,
  dkim_passed bigint not null, -- of the messages: DKIM passed and was aligned
  spf_passed bigint not null, -- of the messages: SPF passed and was aligned
  passed bigint not null, -- of the messages: DKIM or SPF
  quarantined bigint not null,
  rejected bigint not null,
  primary key (domain, day, reporter, ip)
);

create index dmarc_sources_day on dmarc_sources (day);

create table tls_sessions (
  domain text collate "C" not null, -- the sending domain, or a name of this server
  day text collate "C" not null, -- YYYY-MM-DD
  result text collate "C" not null, -- success, a type of failure, or other
  sessions bigint not null,
  primary key (domain, day, result)
);

create index tls_sessions_day on tls_sessions (day);

create table statistics (
  is_test smallint not null check (is_test in (0, 1)), -- 1: of messages of test keys
  dimension text collate "C" not null check (dimension in ('domain', 'tag', 'pool', 'provider', 'ip')),
  hour bigint not null, -- its beginning
  name text collate "C" not null, -- of the pool, the provider, the IP … or `key:value` of a tag
  domain text collate "C" not null, -- that signed
  accepted bigint not null default 0,
  delivered bigint not null default 0,
  deferred bigint not null default 0,
  bounced bigint not null default 0,
  complained bigint not null default 0,
  opened bigint not null default 0, -- by people
  clicked bigint not null default 0, -- by people
  machine_opened bigint not null default 0,
  machine_clicked bigint not null default 0,
  suppressed bigint not null default 0,
  canceled bigint not null default 0,
  unsubscribed bigint not null default 0,
  primary key (is_test, dimension, hour, name, domain)
);

create index statistics_by_hour on statistics (hour);

create table people (
  id bytea primary key, -- per_…
  name text collate "C" not null unique,
  role text collate "C" not null check (role in (
    'owner', -- everything
    'operator', -- everything but people and API keys
    'reader' -- looks, and changes nothing
  )),
  created_at bigint not null
);

create table login_links (
  hash bytea primary key, -- SHA-256 of the link's secret
  person_id bytea not null references people on delete cascade,
  expires_at bigint not null,
  used_at bigint -- null: not yet
);

create index login_links_of_person on login_links (person_id);

create table sessions (
  id bytea primary key, -- ses_…
  hash bytea not null unique, -- SHA-256 of the cookie
  person_id bytea references people on delete cascade, -- null: opened with an API key
  key_id bytea references api_keys (id), -- key_…, null: a person's
  address text collate "C" not null, -- it was opened from
  user_agent text collate "C" not null, -- of the browser that opened it
  created_at bigint not null,
  used_at bigint not null, -- right to within a minute
  expires_at bigint not null,
  check ((person_id is null) <> (key_id is null))
);

create index sessions_of_person on sessions (person_id);

create index sessions_by_use on sessions (used_at);

create index sessions_of_key on sessions (key_id);

create table audit (
  audit_seq bigint primary key,
  at bigint not null,
  actor text collate "C" not null, -- name of a person, or of a key with its last four characters
  act text collate "C" not null, -- e.g. `message canceled`
  facts text collate "C" not null, -- JSON: what it was done to
  request_id text collate "C" not null
);

create index audit_at on audit (at, audit_seq);

create table passkeys (
  id text collate "C" primary key, -- of the credential, base64url
  person_id bytea not null references people on delete cascade,
  site text collate "C" not null, -- host name it belongs to (RP ID)
  public_key bytea not null, -- COSE
  counter bigint not null, -- of signatures, as the authenticator counts; 0: it does not
  label text collate "C" not null, -- the browser it was made in
  created_at bigint not null,
  used_at bigint -- null: not yet
);

create index passkeys_of_person on passkeys (person_id, created_at);

create table acme_accounts (
  directory text collate "C" primary key, -- URL
  sealed_key bytea not null, -- PEM, sealed with the master key
  url text collate "C" -- null: not known to the authority yet
);

create table certificates (
  name text collate "C" primary key, -- the first that it is for
  names text collate "C" not null, -- JSON: all that it is for
  chain text collate "C", -- PEM; null: none yet
  sealed_key bytea, -- of the chain, PEM, sealed with the master key
  renew_at bigint, -- null: none yet
  directory text collate "C", -- of the order under way
  order_url text collate "C", -- null: none is under way
  order_sealed_key bytea, -- for its certificate
  failures bigint not null, -- tries since the last success
  next_try_at bigint not null,
  problem text collate "C" -- of the last try; null: it went well
);


create table subjects (
  rowid bigint primary key, -- contents.content_id
  subject text[] -- its words, null: it has none
);

create index subjects_words on subjects using gin (subject);

insert into meta (name, value) values ('epoch', 0);
-- Not looked up yet; the server on loopback.
insert into routes (route_id, name) values (0, ''), (1, 'capture');

-- Bodies seldom become smaller, and are read whole.
alter table content_parts alter bytes set storage external;
-- Rows that are written five times in a minute.
alter table messages set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
alter table webhook_deliveries set (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
alter table waiting_counts set (autovacuum_vacuum_scale_factor = 0.02);
