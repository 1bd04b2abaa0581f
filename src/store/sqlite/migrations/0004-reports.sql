-- Mail that comes back: which reports were taken in, what could not be matched, and whose host names take it.

-- Each kind of report counts once for a message, however often it comes.
create table reports (
  message_seq integer not null references messages (seq),
  kind text not null, -- bounce, early-bounce (while it waited), complaint, opt-out, unsubscribe, or what a note is about
  at integer not null, -- when it first came
  primary key (message_seq, kind)
) strict, without rowid;

-- A bounded sample for the operator: the newest, each of them cut.
create table unmatched_reports (
  unmatched_seq integer primary key,
  at integer not null, -- when it came
  kind text not null, -- what the reader took it for
  sender text not null, -- MAIL FROM
  recipient text not null, -- RCPT TO
  remote_address text not null, -- who brought it
  bytes blob not null -- its first bytes
) strict;

create index unmatched_reports_by_time on unmatched_reports (at);

-- Removed domains too: their mail may still come back.
create index domains_returning on domains (return_path);
