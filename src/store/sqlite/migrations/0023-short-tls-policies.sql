-- A policy is part of the key of its row, and a key of PostgreSQL has its limit: what is longer than the text of a new
-- one (delivery/README.md "TLS reports") is cut to its first lines.

insert into tls_results (day, domain, policy_type, host, ip, result, policy, count)
select day, domain, policy_type, host, ip, result, short, sum(count)
from (
  select day, domain, policy_type, host, ip, result, count, (
    select json_group_array(line)
    from (
      select iif(length(value) > 300, substr(value, 1, 300) || '…', value) as line
      from json_each(policy)
      where key < 3
      union all
      select 'and ' || (json_array_length(policy) - 3) || ' more' where json_array_length(policy) > 3)) as short
  from tls_results
  where length(policy) > 1000)
group by day, domain, policy_type, host, ip, result, short
on conflict (day, domain, policy_type, host, ip, result, policy) do update set count = count + excluded.count;

delete from tls_results where length(policy) > 1000;
