-- What happened to messages, by hour (http/README.md "Statistics"): summed from the events behind the job, so that no
-- mail waits for it. `meta` has the number of the last event that is in the sums (`summed_event`; none: 0).

create table statistics (
  is_test integer not null check (is_test in (0, 1)), -- 1: of messages of test keys
  dimension text not null check (dimension in ('domain', 'tag', 'pool', 'provider', 'ip')),
  hour integer not null, -- its beginning
  name text not null, -- of the pool, the provider, the IP … or `key:value` of a tag
  domain text not null, -- that signed
  accepted integer not null default 0,
  delivered integer not null default 0,
  deferred integer not null default 0,
  bounced integer not null default 0,
  complained integer not null default 0,
  opened integer not null default 0, -- by people
  clicked integer not null default 0, -- by people
  machine_opened integer not null default 0,
  machine_clicked integer not null default 0,
  suppressed integer not null default 0,
  canceled integer not null default 0,
  unsubscribed integer not null default 0,
  primary key (is_test, dimension, hour, name, domain)
) strict, without rowid;
create index statistics_by_hour on statistics (hour);
