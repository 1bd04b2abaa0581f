-- Opens and clicks. `engagement_counts` holds what lookups show; this is what was seen, once for each link and
-- judgement, so that a link which is fetched over and over costs one row.

create table engagement (
  message_seq integer not null references messages (seq),
  kind text not null check (kind in (
    'open', -- the pixel was fetched
    'click' -- a link was followed
  )),
  link integer not null, -- its number in the html, 0 for an open
  machine integer not null check (machine in (0, 1)), -- 1: by a privacy proxy or a link scanner
  first_at integer not null, -- when it was seen first
  hits integer not null, -- how often
  client_address text, -- of the first hit, null: not kept
  user_agent text, -- of the first hit, null: not kept
  primary key (message_seq, kind, link, machine)
) strict, without rowid;
