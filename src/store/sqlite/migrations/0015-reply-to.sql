-- Replies may go to several addresses.

alter table contents add column reply_to text; -- JSON list of mailboxes ({name, address}), null: no Reply-To
update contents set reply_to = json_array(json_object('name', reply_to_name, 'address', reply_to_address))
where reply_to_address is not null;
alter table contents drop column reply_to_name;
alter table contents drop column reply_to_address;
