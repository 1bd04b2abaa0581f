-- The same states, compared one by one: of a list of three values and more, SQLite makes a table of its own at each
-- check, about a third of what a change of state cost. No row changes, so only the text of the schema does, as
-- sqlite.org/lang_altertable.html describes it for changes that do not affect what is stored.

pragma writable_schema = on;

update sqlite_schema
set sql = substr(sql, 1, instr(sql, 'check (state in (') - 1) || 'check (
    state = ''waiting'' -- in the queue: scheduled, queued or deferred for the API
    or state = ''sending'' -- leased to a delivery thread
    or state = ''delivered'' -- final: the recipient''s server took it
    or state = ''bounced'' -- final: refused, or expired when the bounce''s category says so
    or state = ''suppressed'' -- final: not sent, the address is on the list
    or state = ''canceled'' -- final: withdrawn
  )' || substr(sql, instr(sql, '))') + 2)
where type = 'table' and name = 'messages' and instr(sql, 'check (state in (') > 0;

update sqlite_schema
set sql = substr(sql, 1, instr(sql, 'check (state in (') - 1) || 'check (
    state = ''pending'' -- waits, or is being posted
    or state = ''succeeded'' -- final: answered 200
    or state = ''failed'' -- final: dead letter
    or state = ''skipped'' -- final: its endpoint was disabled when the event happened
  )' || substr(sql, instr(sql, '))') + 2)
where type = 'table' and name = 'webhook_deliveries' and instr(sql, 'check (state in (') > 0;

pragma writable_schema = reset;
