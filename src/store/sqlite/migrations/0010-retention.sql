-- What stays when content and messages are removed: the targets of tracked links, and a slim trace of each message that
-- a link in somebody's mailbox still names; and the size of the database by day.

-- The same rows, without a foreign key: a content that is removed would be looked for in all tags.
alter table content_tags rename to content_tags_before;

create table content_tags (
  key text not null,
  value text not null,
  content_id integer not null, -- contents.content_id
  primary key (key, value, content_id)
) strict, without rowid;

insert into content_tags select * from content_tags_before;

drop table content_tags_before;

create table kept_links (
  content_id integer primary key, -- contents.content_id
  links text not null -- JSON list by number, content/kept-links.ts reads it
) strict;

-- A message that was removed while links of it may still be followed.
create table traces (
  trace_seq integer primary key, -- in the order of removal
  id blob not null unique, -- msg_…
  content_id integer not null, -- contents.content_id; its facts stay as long as a trace needs them
  lane_id integer not null, -- sending domain
  recipient text not null, -- who leaves the list
  variables text, -- what targets with placeholders are filled with, null: none
  ended_at integer not null -- messages.final_at
) strict;

create index traces_of_content on traces (content_id);
create index traces_to on traces (recipient);

create table database_days (
  day text primary key, -- YYYY-MM-DD, UTC
  bytes integer not null -- in use at the first look on that day
) strict, without rowid;
