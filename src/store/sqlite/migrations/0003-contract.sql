-- What the whole HTTP interface needs: contents with everything a request can say, batches, idempotency keys, the
-- suppression list, transcripts, and the indexes of search.
--
-- Only two indexes on `messages` are new, for each costs on every acceptance: the recipient, since search by it must
-- not walk, and the content, through which sender, tag and batch are found; those stand once for each content.

alter table contents add column raw_bytes integer; -- submitted mail: length of the message in the parts; null: composed
alter table contents add column is_test integer not null default 0 check (is_test in (0, 1)); -- 1: mail of a test key
alter table contents add column send_at integer; -- when its messages are due first, null: at once
alter table contents add column retry_of blob; -- msg_… that its only message repeats, null: none
alter table contents add column tracks_opens integer not null default 0 check (tracks_opens in (0, 1)); -- 1: with pixel
alter table contents add column tracks_clicks integer not null default 0 check (tracks_clicks in (0, 1)); -- 1: links
alter table contents add column unsubscribe_list text; -- scope of an unsubscribe, null: no List-Unsubscribe
alter table contents add column unsubscribe_url text; -- the customer's own address for it, null: ours
alter table contents add column tags text; -- JSON object, null: none
alter table contents add column metadata text; -- JSON object, null: none
alter table contents add column headers text; -- JSON list of [name, value], null: none
alter table contents add column addressees text; -- JSON {to, cc} for the header of every message, null: its recipient

create index contents_from on contents (from_address);

-- The same tags as contents.tags, to be found by.
create table content_tags (
  key text not null,
  value text not null,
  content_id integer not null references contents (content_id),
  primary key (key, value, content_id)
) strict, without rowid;

-- A batch is one content; its messages are those of the content. Sender, subject and the rest stand there.
create table batches (
  content_id integer primary key references contents (content_id),
  id blob not null unique, -- bat_…
  api_key_id blob, -- key_… that sent it, null: the administrator
  created_at integer not null,
  rejected integer not null -- recipients that were refused and have no message
) strict;

create index messages_of_content on messages (content_id);
create index messages_to on messages (recipient);

-- Never written.
alter table message_data drop column batch_id;
-- Captured mail waits in a pool of its own; this is the one it was accepted for.
alter table message_data add column pool_id integer references pools (pool_id);

create table idempotency_keys (
  idempotency_seq integer primary key, -- the oldest first
  api_key_id blob not null, -- key_…, no bytes: the administrator
  key text not null, -- as the client sent it
  fingerprint blob not null, -- SHA-256 of method, path and canonical body
  created_at integer not null, -- it lives 24 h
  status integer not null, -- HTTP status of the answer
  body text not null, -- JSON of the answer as if nothing were suppressed
  suppressed text, -- JSON list of {index, reason}: what was, null: nothing
  unique (api_key_id, key)
) strict;

create table suppressions (
  suppression_seq integer primary key, -- order of the list
  id blob not null, -- sup_…
  address text not null, -- local part as given, domain in lower case
  is_test integer not null check (is_test in (0, 1)), -- 1: the list of test keys
  scope text not null, -- `all`, or the list whose mail it keeps away
  reason text not null check (reason in (
    'hard_bounce', -- mail to it bounced for good
    'complaint', -- its owner reported mail as spam
    'unsubscribe', -- its owner left the list
    'manual' -- added by the customer
  )),
  message_id blob, -- msg_… that brought it onto the list, null: none
  created_at integer not null,
  unique (address, is_test, scope)
) strict;

create index suppressions_of_list on suppressions (is_test);

-- The SMTP dialogue of a try, without the message. Beside `attempts`, which lookups read whole.
create table transcripts (
  transcript_seq integer primary key,
  message_seq integer not null references messages (seq),
  at integer not null, -- with the result, names the try as in attempts
  result text not null,
  dialogue text not null -- lines, at most 16 KiB
) strict;

create index transcripts_of_message on transcripts (message_seq);

-- What others do on the same road just now.
create index attempts_by_time on attempts (at);

alter table api_keys add column last_used_at integer; -- right to within five minutes, null: never
create index api_keys_living on api_keys (mode) where revoked_at is null;

-- Written by the verbs for reports and engagement; lookups and batches read them.

alter table bounces add column late integer not null default 0 check (late in (0, 1)); -- 1: after delivery
alter table bounces add column at integer; -- of a late one: when it was known; null: messages.final_at

create table complaints (
  message_seq integer primary key references messages (seq), -- counted once for each message
  at integer not null,
  feedback_type text not null -- of the report, RFC 5965
) strict;

create table engagement_counts (
  message_seq integer primary key references messages (seq),
  opens integer not null default 0, -- by people
  clicks integer not null default 0,
  machine_opens integer not null default 0, -- by privacy proxies and link scanners
  machine_clicks integer not null default 0
) strict;
