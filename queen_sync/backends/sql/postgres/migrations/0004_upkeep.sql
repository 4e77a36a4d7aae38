-- How far each step of the sweep has got, in one row per step that goes through the store in chunks. It is
-- written only by whoever holds the step's advisory lock (queen.may_sweep), so that the processes that
-- share a database go on where the last one stopped, and none begins again what another has just done.
create table queen.upkeep (
    step text collate "C" primary key,
    began_at timestamptz not null default '-infinity', -- when its present or last pass began
    under_way boolean not null default false,
    -- The last row that the pass has looked at.
    group_id bigint not null default 0,
    ready_at timestamptz not null default '-infinity',
    partition_id bigint not null default 0,
    found_count bigint not null default 0 -- by the self check, ever
);
insert into queen.upkeep (step) values ('expire'), ('evict'), ('retain'), ('repair');
