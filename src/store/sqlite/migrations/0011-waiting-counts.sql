-- What a verb counted of IPs, as one row, until it is added to the sums together with that of many others: with many
-- IPs and providers, nearly every message would else change a dozen rows of sums.

create table waiting_counts (
  waiting_seq integer primary key, -- in the order in which it happened
  counts text not null -- JSON, waiting-counts.ts reads it
) strict;
