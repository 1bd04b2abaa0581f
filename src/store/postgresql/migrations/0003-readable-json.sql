-- JSON that JavaScript writes, and PostgreSQL does not read: the escapes of U+0000, and of half a character. Whole
-- characters are not written as escapes of halves. A backslash that is one itself stands in front of no escape.
create function readable_json(json text) returns text language sql immutable return
  regexp_replace(json, '(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})', '\1\\ufffd', 'g');

create or replace function json_each(list text) returns table (value text)
  language sql immutable begin atomic select json_array_elements_text(readable_json(list)::json); end;
create or replace function json_extract(json text, path text) returns text
  language sql immutable return jsonb_path_query_first(readable_json(json)::jsonb, path::jsonpath) #>> '{}';
