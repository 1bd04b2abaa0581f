-- Who opens the console: people, the links they come in by, their sessions; and what people and keys have done.

create table people (
  id blob primary key, -- per_…
  name text not null unique,
  role text not null check (role in (
    'owner', -- everything
    'operator', -- everything but people and API keys
    'reader' -- looks, and changes nothing
  )),
  created_at integer not null
) strict, without rowid;

create table login_links (
  hash blob primary key, -- SHA-256 of the link's secret
  person_id blob not null references people on delete cascade,
  expires_at integer not null,
  used_at integer -- null: not yet
) strict, without rowid;
create index login_links_of_person on login_links (person_id);

create table sessions (
  id blob primary key, -- ses_…
  hash blob not null unique, -- SHA-256 of the cookie
  person_id blob references people on delete cascade, -- null: opened with an API key
  key_id blob references api_keys (id), -- key_…, null: a person's
  address text not null, -- it was opened from
  user_agent text not null, -- of the browser that opened it
  created_at integer not null,
  used_at integer not null, -- right to within a minute
  expires_at integer not null,
  check ((person_id is null) <> (key_id is null))
) strict, without rowid;
create index sessions_of_person on sessions (person_id);
create index sessions_by_use on sessions (used_at);
create index sessions_of_key on sessions (key_id);

create table audit (
  audit_seq integer primary key,
  at integer not null,
  actor text not null, -- name of a person, or of a key with its last four characters
  act text not null, -- e.g. `message canceled`
  facts text not null, -- JSON: what it was done to
  request_id text not null
) strict;
create index audit_at on audit (at);
