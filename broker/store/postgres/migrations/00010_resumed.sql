-- compatible since 1

-- +goose Up

-- This sandbox_dead says of whom nobody waits any more: its lease ended a while ago, and the
-- database has answered for as long. Where all leases had ended, the database itself was away, and
-- the first broker that is back notes that (resumed_at), for the others shall have their time to
-- come back too.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sandbox_dead(ended timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT greatest(ended, (SELECT s.value::timestamptz FROM sandbox_shared s WHERE s.name = 'resumed_at')) < now() - interval '5 seconds'
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sandbox_dead(ended timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT ended < now() - interval '5 seconds'
$$;
-- +goose StatementEnd
DELETE FROM sandbox_shared WHERE name = 'resumed_at';
