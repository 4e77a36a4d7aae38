-- Counts by minute and queue. p_counts has a row of values for each place of p_minutes and p_queues, in the
-- order of the columns, one after the other. Several processes add to the same rows: all lock them in the
-- order of the key, so that none waits in a circle.
create or replace function queen.add_counts(p_minutes timestamptz[], p_queues text[], p_counts bigint[])
returns void language sql volatile set jit = off as $$
    insert into queen.metrics_minutes as m
    select x.minute, x.queue, c[b + 1], c[b + 2], c[b + 3], c[b + 4], c[b + 5], c[b + 6], c[b + 7], c[b + 8],
        c[b + 9], c[b + 10], c[b + 11], c[b + 12], c[b + 13], c[b + 14], c[b + 15]
    from (select p_counts as c) y,
        unnest(p_minutes, p_queues) with ordinality x(minute, queue, place),
        lateral (select 15 * (x.place::integer - 1) as b) z
    order by x.minute, x.queue
    on conflict (minute, queue_name) do update set
        push_requests = m.push_requests + excluded.push_requests,
        pushed = m.pushed + excluded.pushed,
        duplicates = m.duplicates + excluded.duplicates,
        pop_requests = m.pop_requests + excluded.pop_requests,
        pops_empty = m.pops_empty + excluded.pops_empty,
        popped = m.popped + excluded.popped,
        ack_requests = m.ack_requests + excluded.ack_requests,
        completed = m.completed + excluded.completed,
        failed = m.failed + excluded.failed,
        given_back = m.given_back + excluded.given_back,
        dead_lettered = m.dead_lettered + excluded.dead_lettered,
        refused = m.refused + excluded.refused,
        transactions = m.transactions + excluded.transactions,
        delay_milliseconds = m.delay_milliseconds + excluded.delay_milliseconds,
        max_delay_milliseconds = greatest(m.max_delay_milliseconds, excluded.max_delay_milliseconds)
$$;

-- The counts of the minutes of a span, added up by bucket (of p_bucket minutes, counted from 1970) and, where
-- asked, by queue; p_queues null: of all queues.
create or replace function queen.list_counts(
    p_from timestamptz, p_to timestamptz, p_bucket integer, p_queues text[], p_by_queue boolean
) returns table (
    start_at timestamptz, queue_name text, push_requests bigint, pushed bigint, duplicates bigint,
    pop_requests bigint, pops_empty bigint, popped bigint, ack_requests bigint, completed bigint, failed bigint,
    given_back bigint, dead_lettered bigint, refused bigint, transactions bigint, delay_milliseconds bigint,
    max_delay_milliseconds bigint
) language sql stable set jit = off as $$
    select date_bin(make_interval(mins => p_bucket), m.minute, '1970-01-01 00:00:00+00'::timestamptz) as start_at,
        case when p_by_queue then m.queue_name else '' end as queue_name,
        sum(m.push_requests)::bigint, sum(m.pushed)::bigint, sum(m.duplicates)::bigint,
        sum(m.pop_requests)::bigint, sum(m.pops_empty)::bigint, sum(m.popped)::bigint,
        sum(m.ack_requests)::bigint, sum(m.completed)::bigint, sum(m.failed)::bigint,
        sum(m.given_back)::bigint, sum(m.dead_lettered)::bigint, sum(m.refused)::bigint,
        sum(m.transactions)::bigint, sum(m.delay_milliseconds)::bigint, max(m.max_delay_milliseconds)
    from queen.metrics_minutes m
    where m.minute >= p_from and m.minute <= p_to and (p_queues is null or m.queue_name = any (p_queues))
    group by 1, 2
    order by 1, 2
$$;

create or replace function queen.forget_counts(p_before timestamptz) returns bigint
language plpgsql volatile as $$
declare
    v_total bigint;
begin
    delete from queen.metrics_minutes m using (
        select x.minute, x.queue_name from queen.metrics_minutes x where x.minute < p_before
        order by x.minute, x.queue_name for update skip locked
    ) y where m.minute = y.minute and m.queue_name = y.queue_name;
    get diagnostics v_total = row_count;
    return v_total;
end $$;
