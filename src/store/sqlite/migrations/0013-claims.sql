-- Which claim holds a row: each claim of a row is an event of its own, and whoever shows an older one of the same process
-- holds nothing any more. What is under way during the migration has none: the next epoch frees it.
alter table messages add column claim integer; -- counted in lease_epoch, null: nobody holds it
