-- Statistics read a value of each message twice. Few bodies have escapes, and most of the rest was the making of a jsonb.
create or replace function readable_json(json text) returns text language sql immutable return
  case when strpos(json, '\u') = 0 then json
    else regexp_replace(json, '(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})', '\1\\ufffd', 'g') end;

-- `path`: names alone, as `$.data.ip`.
create or replace function json_extract(json text, path text) returns text
  language sql immutable return readable_json(json)::json #>> string_to_array(substr(path, 3), '.');
