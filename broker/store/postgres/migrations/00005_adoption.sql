-- compatible since 1

-- +goose Up

-- adoption is the version of the broker at its start, where that leaves alone what others have
-- adopted. One of another version, which may be an earlier one, is not adopted from: it would
-- destroy at its next start what it does not know.
ALTER TABLE sandbox_broker ADD COLUMN adoption text NOT NULL DEFAULT '';
-- forsaken is the epoch that was counted on when others began to adopt what a dead broker had.
ALTER TABLE sandbox_broker ADD COLUMN forsaken bigint;

-- What a dead broker had of a session is looked for by everybody who asks for that.
CREATE INDEX sandbox_instance_session ON sandbox_record (substring(encode(key, 'escape') FROM '^(.*):')) WHERE bucket = 'instances';

-- sandbox_forsake keeps a dead broker from coming back until the transaction has ended, and from
-- writing ever after without having come back. It returns false for one that is alive.
-- +goose StatementBegin
CREATE FUNCTION sandbox_forsake(dead text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE sandbox_broker SET epoch = epoch + 1, forsaken = epoch + 1
        WHERE id = dead AND sandbox_dead(expires_at) AND forsaken IS DISTINCT FROM epoch;
    IF FOUND THEN
        RETURN true;
    END IF;
    -- Several may adopt at once.
    PERFORM 1 FROM sandbox_broker WHERE id = dead AND sandbox_dead(expires_at) AND forsaken = epoch FOR SHARE;
    RETURN FOUND;
END
$$;
-- +goose StatementEnd

-- sandbox_adoptable says of the record of an instance that another broker may go on with it: it
-- was made, somebody may ask for it, and nothing else of its broker's is tied to it.
-- +goose StatementBegin
CREATE FUNCTION sandbox_adoptable(owner text, record text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(i ->> 'made', '') <> '' AND NOT coalesce((i ->> 'ephemeral')::boolean, false)
        AND NOT coalesce((i ->> 'ending')::boolean, false) AND NOT coalesce((i ->> 'one_shot')::boolean, false)
        AND i -> 'volumes' IS NULL
        -- The copies of a fork that was cut off end with it.
        AND (i ->> 'fork' IS NULL OR NOT EXISTS (
            SELECT 1 FROM sandbox_record s WHERE s.broker = owner AND s.bucket = 'snapshots' AND s.key = convert_to(i ->> 'fork', 'UTF8')
                AND coalesce((s.value::json ->> 'transient')::boolean, false) AND NOT coalesce((s.value::json ->> 'forked')::boolean, false)))
    FROM (SELECT record::json AS i) one
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION sandbox_adoptable(text, text);
DROP FUNCTION sandbox_forsake(text);
DROP INDEX IF EXISTS sandbox_instance_session;
ALTER TABLE sandbox_broker DROP COLUMN forsaken;
ALTER TABLE sandbox_broker DROP COLUMN adoption;
