-- Up to which partition a group's registration has come: several first pops share the work.
alter table queen.consumer_groups add column registered_through bigint not null default 0;
