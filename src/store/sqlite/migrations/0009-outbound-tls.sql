-- What outbound TLS remembers: MTA-STS policies, hosts whose STARTTLS failed, results for TLS-RPT (delivery/README.md
-- "TLS").

create table sts_policies (
  domain text primary key, -- the recipient domain
  policy_id text not null, -- of the TXT record
  mode text not null check (mode in ('enforce', 'testing', 'none')),
  mx text not null, -- JSON list of patterns
  fetched_at integer not null,
  expires_at integer not null -- end of max_age
) strict, without rowid;

create index sts_policies_fetched on sts_policies (fetched_at);
create index sts_policies_expiring on sts_policies (expires_at);

-- The one plain fallback of delivery/README.md "TLS".
create table plain_memories (
  ip text not null, -- egress IP
  host text not null, -- MX host
  until_at integer not null,
  reason text not null, -- what failed
  primary key (ip, host)
) strict, without rowid;

create index plain_memories_until on plain_memories (until_at);

-- Connections of a UTC day with the same facts (RFC 8460 §4).
create table tls_results (
  day text not null, -- YYYY-MM-DD
  domain text not null, -- the recipient domain
  policy_type text not null check (policy_type in ('sts', 'tlsa', 'no-policy-found')),
  host text not null, -- MX host
  ip text not null, -- egress IP
  result text not null, -- success, or a result type of RFC 8460 §4.3
  policy text not null, -- JSON list: the lines of the policy
  count integer not null, -- connections
  primary key (day, domain, policy_type, host, ip, result, policy)
) strict, without rowid;

create table tls_reports (
  day text not null, -- YYYY-MM-DD, which was reported
  domain text not null,
  primary key (day, domain)
) strict, without rowid;
