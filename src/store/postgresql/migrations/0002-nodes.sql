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
  ended_by text collate "C" -- node that declared it dead, null: nobody
) with (fillfactor = 50);

-- Each commit adds its own and removes the one before: of a row that is changed for ever, an old snapshot keeps every
-- version, and each look at it passes them all.
create table last_commits (
  node_id text collate "C" not null, -- whose; empty: of who is no node
  number bigint not null, -- of its last commit: by it its writer knows whether that happened
  turn bigint not null, -- counts commits of all nodes that numbered rows; of its last one
  last_rows text collate "C" not null, -- JSON, the greatest number of each table behind that commit; `*`: of others
  primary key (node_id, number)
);

create index last_commits_by_turn on last_commits (turn, number);

create table ip_owners (
  ip text collate "C" primary key, -- egress IP
  epoch bigint not null, -- of the node that sends from it, and no other does
  since bigint not null
);

-- Numbers that blocks were taken for may be in use.
insert into last_commits (node_id, number, turn, last_rows)
select '', 0, 1, json_build_object('*', case when is_called then last_value + 1000 else 1000 end) from row_numbers;

drop sequence row_numbers;

-- Waits for the lock of all that write. Who has it and stands still in the middle of what it sends, where no limit of
-- its session counts, is ended: by a role that is the same, since others may not.
create function wait_to_write() returns void language plpgsql set lock_timeout = '1s' as $$
begin
  loop
    begin
      perform pg_advisory_xact_lock(7394166202);
      return;
    exception when lock_not_available then
      -- What was seen of sessions is kept for the whole transaction.
      perform pg_stat_clear_snapshot();
      perform pg_terminate_backend(sessions.pid)
      from pg_locks as locks
      join pg_stat_activity as sessions on sessions.pid = locks.pid
      where locks.locktype = 'advisory' and locks.granted and sessions.datname = current_database()
        and locks.database = sessions.datid and (locks.classid::bigint << 32 | locks.objid::bigint) = 7394166202
        and sessions.wait_event = 'ClientRead' and sessions.usename = current_user
        and sessions.state_change < clock_timestamp() - interval '3 seconds';
    end;
  end loop;
end $$;

-- Begins what changes anything: one transaction of the cluster at a time. Returns the greatest numbers of rows.
create function begin_writing(node text) returns text language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(7394166202) then
    perform wait_to_write();
  end if;
  -- A row that is gone was that of a dead node, which an operator has removed.
  if not exists (select 1 from nodes where node_id = node and state <> 'dead') then
    raise exception 'another node declared this one dead' using errcode = 'STP01';
  end if;
  return (
    select json_build_object('turn', turn, 'rows', last_rows::json)
    from last_commits order by turn desc, number desc limit 1);
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
