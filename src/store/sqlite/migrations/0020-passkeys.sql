-- Passkeys of people who open the console (W3C Web Authentication, Level 3).

create table passkeys (
  id text primary key, -- of the credential, base64url
  person_id blob not null references people on delete cascade,
  site text not null, -- host name it belongs to (RP ID)
  public_key blob not null, -- COSE
  counter integer not null, -- of signatures, as the authenticator counts; 0: it does not
  label text not null, -- the browser it was made in
  created_at integer not null,
  used_at integer -- null: not yet
) strict, without rowid;
create index passkeys_of_person on passkeys (person_id, created_at);
