-- What belongs to some sending domains, or to test keys: whoever may not see those sees and changes none of it.

alter table webhook_endpoints add column is_test integer default 0 check (is_test in (0, 1)); -- 1: events of test mail
  -- alone; 0: of all other; null: both, on a server for development
alter table webhook_endpoints add column domains text not null default '[]'; -- JSON list of sending domains, empty: all

create table suppressions_new (
  suppression_seq integer primary key, -- order of the list
  id blob not null, -- sup_…
  address text not null, -- local part as given, domain in lower case
  is_test integer not null check (is_test in (0, 1)), -- 1: the list of test keys
  scope text not null, -- `all`, or the list whose mail it keeps away
  domain text not null default '', -- the sending domain whose mail it keeps away, empty: of all
  owners text not null default '[]', -- JSON list of the sending domains that added or found it, empty: the server
  reason text not null check (reason in (
    'hard_bounce', -- mail to it bounced for good
    'complaint', -- its owner reported mail as spam
    'unsubscribe', -- its owner left the list
    'manual' -- added by the customer
  )),
  message_id blob, -- msg_… that brought it onto the list, null: none
  created_at integer not null,
  unique (address, is_test, scope, domain)
) strict;

insert into suppressions_new
  (suppression_seq, id, address, is_test, scope, owners, reason, message_id, created_at)
select
  suppression_seq, id, address, is_test, scope,
  coalesce((select json_array(lanes.domain) from messages cross join lanes on lanes.lane_id = messages.lane_id
    where messages.id = suppressions.message_id), '[]'),
  reason, message_id, created_at
from suppressions;

drop table suppressions;
alter table suppressions_new rename to suppressions;
create index suppressions_of_list on suppressions (is_test);
