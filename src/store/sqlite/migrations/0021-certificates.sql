-- Certificates that an authority gives out by ACME (RFC 8555), and our accounts there.

create table acme_accounts (
  directory text primary key, -- URL
  sealed_key blob not null, -- PEM, sealed with the master key
  url text -- null: not known to the authority yet
) strict, without rowid;

create table certificates (
  name text primary key, -- the first that it is for
  names text not null, -- JSON: all that it is for
  chain text, -- PEM; null: none yet
  sealed_key blob, -- of the chain, PEM, sealed with the master key
  renew_at integer, -- null: none yet
  directory text, -- of the order under way
  order_url text, -- null: none is under way, or it is about to be placed
  order_sealed_key blob, -- for its certificate
  failures integer not null, -- tries since the last success
  next_try_at integer not null,
  problem text -- of the last try; null: it went well
) strict, without rowid;
