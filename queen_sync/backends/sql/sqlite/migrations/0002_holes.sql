-- Messages that are deleted one by one leave holes, which every lane has settled. They stand apart
-- from the partition's row, which each push writes; a partition without any has no row here. A
-- partition never begins with a hole: its first_seq passes it.
-- name: partition_holes
create table partition_holes (
    partition_id integer primary key,
    holes blob not null, -- a set of seqs
    hole_count integer not null
);
