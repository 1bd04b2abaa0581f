-- What receivers report of mail in the name of our domains, and of TLS to our servers (inbound/README.md "DMARC and TLS
-- reports"). All of it is a claim of whoever sent the report.

-- Reports that were counted: each counts once for a domain.
create table authentication_reports (
  domain text not null, -- the sending domain, or a name of this server
  day text not null, -- YYYY-MM-DD, on which the reported time begins
  kind text not null check (kind in ('dmarc', 'tls')),
  reporter text not null, -- as it calls itself
  report_id text not null, -- as the reporter numbers it
  at integer not null, -- when it came
  primary key (domain, day, kind, reporter, report_id)
) strict, without rowid;

create index authentication_reports_day on authentication_reports (day);

-- Messages that a source sent in the name of a domain (RFC 7489 §7.2, RFC 9990).
create table dmarc_sources (
  domain text not null, -- the sending domain
  day text not null, -- YYYY-MM-DD
  reporter text not null, -- empty: of several
  ip text not null, -- canonical; empty: of several
  messages integer not null,
  dkim_passed integer not null, -- of the messages: DKIM passed and was aligned
  spf_passed integer not null, -- of the messages: SPF passed and was aligned
  passed integer not null, -- of the messages: DKIM or SPF
  quarantined integer not null,
  rejected integer not null,
  primary key (domain, day, reporter, ip)
) strict, without rowid;

create index dmarc_sources_day on dmarc_sources (day);

-- Sessions with the servers of a domain (RFC 8460 §4.3).
create table tls_sessions (
  domain text not null, -- the sending domain, or a name of this server
  day text not null, -- YYYY-MM-DD
  result text not null, -- success, a type of failure, or other
  sessions integer not null,
  primary key (domain, day, result)
) strict, without rowid;

create index tls_sessions_day on tls_sessions (day);
