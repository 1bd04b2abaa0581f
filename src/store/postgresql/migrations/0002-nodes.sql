-- Several nodes: store/README.md "Several nodes".

create table nodes (
  node_id text collate "C" primary key, -- as in sternpost.yaml; empty: what was numbered by others than nodes
  epoch bigint not null, -- of its last start; what a living epoch holds is held
  state text collate "C" not null check (state in (
    'living', -- it works, or did when it was seen last
    'stopped', -- it has ended, and gave back what it held
    'dead' -- another node declared it dead: it commits nothing any more
  )),
  is_draining smallint not null default 0 check (is_draining in (0, 1)), -- 1: an operator wants it to hold nothing
  version text collate "C" not null default '', -- of its program
  config_hash text collate "C" not null default '', -- of what has to be the same on all nodes
  started_at bigint not null,
  beat_at bigint not null, -- by its own clock: to be shown, and nothing else
  ended_by text collate "C", -- node that declared it dead, null: nobody
  last_commit bigint not null default 0, -- number of its last commit
  turn bigint not null default 0, -- counts commits of all nodes that numbered rows; of its last one
  last_rows text collate "C" not null default '{}' -- JSON, the greatest number of each table behind that commit; `*`: of others
) with (fillfactor = 50);

create table ip_owners (
  ip text collate "C" primary key, -- egress IP
  epoch bigint not null, -- of the node that sends from it, and no other does
  since bigint not null
);

-- Numbers that blocks were taken for may be in use.
insert into nodes (node_id, epoch, state, started_at, beat_at, last_commit, turn, last_rows)
select '', 0, 'stopped', 0, 0, coalesce((select value from meta where name = 'last_commit'), 0), 1,
  json_build_object('*', case when is_called then last_value + 1000 else 1000 end)
from row_numbers;

delete from meta where name = 'last_commit';
drop sequence row_numbers;

-- Begins what changes anything: one transaction of the cluster at a time. Returns the greatest numbers of rows.
create function begin_writing(node text) returns text language plpgsql as $$
begin
  perform pg_advisory_xact_lock(7394166202);
  if exists (select 1 from nodes where node_id = node and state = 'dead') then
    raise exception 'another node declared this one dead' using errcode = 'STP01';
  end if;
  return (select json_build_object('turn', turn, 'rows', last_rows::json) from nodes order by turn desc limit 1);
end $$;

-- What nodes remember of rows that others change: they look for a new number each second.
insert into meta (name, value) values ('changes', 0);

create function note_change() returns trigger language plpgsql as $$
begin
  update meta set value = value + 1 where name = 'changes';
  return null;
end $$;

create trigger api_keys_change after insert or delete
  or update of name, scopes, domains, allowed_ips, expires_at, revoked_at
  on api_keys for each statement execute function note_change();
create trigger domains_change after insert or update or delete
  on domains for each statement execute function note_change();
create trigger dkim_keys_change after insert or update or delete
  on dkim_keys for each statement execute function note_change();
create trigger egress_ips_change after insert or update of state, until_at, stage, version
  on egress_ips for each statement execute function note_change();
create trigger certificates_change after insert or update of chain or delete
  on certificates for each statement execute function note_change();
