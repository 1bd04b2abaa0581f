-- Several nodes on one PostgreSQL. SQLite has one: its row has no name.

create table nodes (
  node_id text primary key, -- as in sternpost.yaml; empty: there is one alone
  epoch integer not null, -- of its last start; what a living epoch holds is held
  state text not null check (state in (
    'living', -- it works, or did when it was seen last
    'stopped', -- it has ended, and gave back what it held
    'dead' -- another node declared it dead: it commits nothing any more
  )),
  is_draining integer not null default 0 check (is_draining in (0, 1)), -- 1: an operator wants it to hold nothing
  version text not null default '', -- of its program
  config_hash text not null default '', -- of what has to be the same on all nodes
  started_at integer not null,
  beat_at integer not null, -- by its own clock: to be shown, and nothing else
  ended_by text -- node that declared it dead, null: nobody
) strict, without rowid;

-- PostgreSQL's alone: what each commit leaves.
create table last_commits (
  node_id text not null, -- whose; empty: of who is no node
  number integer not null, -- of its last commit: by it its writer knows whether that happened
  turn integer not null, -- counts commits of all nodes that numbered rows; of its last one
  last_rows text not null, -- JSON, the greatest number of each table behind that commit; `*`: of others
  primary key (node_id, number)
) strict, without rowid;

create table ip_owners (
  ip text primary key, -- egress IP
  epoch integer not null, -- of the node that sends from it, and no other does
  since integer not null
) strict, without rowid;
