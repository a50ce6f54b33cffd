-- compatible since 1

-- +goose Up

-- sandbox_earlier is about a broker that takes its lease with a version which does not say what
-- tables it knows. It is asked before the lease is known to be free, and does nothing where that
-- is another's. The lock has it wait for who adopts at this moment.
-- +goose StatementBegin
CREATE FUNCTION sandbox_earlier() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sandbox_broker b WHERE b.id = NEW.id AND (b.expires_at <= now() OR b.holder = NEW.holder) FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NEW;
    END IF;
    -- A version before adoption would destroy what others have adopted from the broker, and lose
    -- what the broker has adopted.
    IF NEW.adoption = '' AND EXISTS (SELECT 1 FROM sandbox_record r
            WHERE r.bucket = 'instances' AND coalesce(sandbox_json(r.value) ->> 'carries', '') <> ''
            AND (r.broker = NEW.id OR sandbox_json(r.value) ->> 'carries' = NEW.id)) THEN
        RAISE EXCEPTION 'others have adopted instances of broker %, or it has adopted some, which this version would not know and destroy: start broker % with a version that knows tables of version 5, or end these instances first',
            NEW.id, NEW.id USING ERRCODE = 'SBL06';
    END IF;
    -- A version before shares never says what it holds. Nothing runs on from before, and its
    -- instances are counted where they are made. What was used stays used, and may be all it held.
    DELETE FROM sandbox_share s WHERE s.broker = NEW.id AND s.quota IN ('max_concurrent', 'max_instances');
    UPDATE sandbox_share s SET used = s.held WHERE s.broker = NEW.id;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sandbox_earlier BEFORE INSERT ON sandbox_broker FOR EACH ROW WHEN (NEW.knows IS NULL) EXECUTE FUNCTION sandbox_earlier();

-- sandbox_json is a record whose fields can be asked for, and NULL for one that cannot be read: a
-- statement over many records must not fail for one. What asks for a field reads all of the
-- record, and no text of the database has the character NUL, which a provider may have sent.
-- +goose StatementBegin
CREATE FUNCTION sandbox_json(record text) RETURNS json LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF strpos(record, '\u0000') > 0 THEN
        record := regexp_replace(record, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g');
    END IF;
    PERFORM record::json ->> '';
    RETURN record::json;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- This sandbox_released and sandbox_adoptable read with it. Most records say nothing of being
-- released, and are not read for that. What is to be destroyed by now is not adoptable any more.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sandbox_released(record text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(record, '"released"') > 0 THEN coalesce((sandbox_json(record) ->> 'released')::boolean, false) ELSE false END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sandbox_adoptable(owner text, record text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(i ->> 'made', '') <> '' AND NOT coalesce((i ->> 'ephemeral')::boolean, false)
        AND NOT coalesce((i ->> 'ending')::boolean, false) AND NOT coalesce((i ->> 'one_shot')::boolean, false)
        AND i -> 'volumes' IS NULL AND coalesce((i ->> 'deadline')::timestamptz > now(), true)
        -- The copies of a fork that was cut off end with it.
        AND (i ->> 'fork' IS NULL OR NOT EXISTS (
            SELECT 1 FROM sandbox_record s WHERE s.broker = owner AND s.bucket = 'snapshots' AND s.key = convert_to(i ->> 'fork', 'UTF8')
                AND coalesce((sandbox_json(s.value) ->> 'transient')::boolean, false) AND NOT coalesce((sandbox_json(s.value) ->> 'forked')::boolean, false)))
    FROM (SELECT sandbox_json(record) AS i) one
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sandbox_adoptable(owner text, record text) RETURNS boolean LANGUAGE sql STABLE AS $$
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
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION sandbox_released(record text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce((record::json ->> 'released')::boolean, false)
$$;
-- +goose StatementEnd
DROP FUNCTION sandbox_json(text);
DROP TRIGGER sandbox_earlier ON sandbox_broker;
DROP FUNCTION sandbox_earlier();
