-- compatible since 1

-- +goose Up

-- The name of a volume is one broker's, on whose disk it is. key is that of its record.
CREATE TABLE sandbox_volume (
    tenant text NOT NULL,
    name   text NOT NULL,
    broker text NOT NULL REFERENCES sandbox_broker (id),
    key    bytea NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX sandbox_volume_record ON sandbox_volume (broker, key);

CREATE INDEX sandbox_snapshot ON sandbox_record (key) WHERE bucket = 'snapshots';

-- sandbox_named says of a volume's record that its tenant finds it by its name.
-- +goose StatementBegin
CREATE FUNCTION sandbox_named(record json) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT record ->> 'state' IN ('making', 'ready') AND NOT coalesce((record ->> 'ownerless')::boolean, false)
$$;
-- +goose StatementEnd

-- sandbox_name keeps the names of volumes, and ends the transaction that makes one whose name
-- another broker has, dead or not: the disk of that one may come back. A record that is changed
-- is never refused, since its volume is there.
-- +goose StatementBegin
CREATE FUNCTION sandbox_name() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    volume json;
    other  text;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        volume := NEW.value::json;
    END IF;
    IF TG_OP = 'DELETE' OR sandbox_named(volume) IS NOT TRUE THEN
        IF TG_OP <> 'INSERT' THEN
            DELETE FROM sandbox_volume v WHERE v.broker = OLD.broker AND v.key = OLD.key;
        END IF;
        RETURN NULL;
    END IF;
    LOOP
        INSERT INTO sandbox_volume (tenant, name, broker, key) VALUES (volume ->> 'tenant', volume ->> 'name', NEW.broker, NEW.key)
            ON CONFLICT (tenant, name) DO NOTHING;
        EXIT WHEN FOUND OR TG_OP = 'UPDATE';
        SELECT v.broker INTO other FROM sandbox_volume v WHERE v.tenant = volume ->> 'tenant' AND v.name = volume ->> 'name';
        CONTINUE WHEN NOT FOUND; -- it was just removed
        EXIT WHEN other = NEW.broker;
        RAISE EXCEPTION 'the volume is with another broker' USING ERRCODE = 'SBL04', DETAIL = other;
    END LOOP;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sandbox_name AFTER INSERT OR UPDATE ON sandbox_record FOR EACH ROW WHEN (NEW.bucket = 'volumes') EXECUTE FUNCTION sandbox_name();
CREATE TRIGGER sandbox_unname AFTER DELETE ON sandbox_record FOR EACH ROW WHEN (OLD.bucket = 'volumes') EXECUTE FUNCTION sandbox_name();

-- What is there already: of several volumes of a name the oldest has it.
INSERT INTO sandbox_volume (tenant, name, broker, key)
    SELECT DISTINCT ON (value::json ->> 'tenant', value::json ->> 'name') value::json ->> 'tenant', value::json ->> 'name', broker, key
    FROM sandbox_record WHERE bucket = 'volumes' AND sandbox_named(value::json)
    ORDER BY value::json ->> 'tenant', value::json ->> 'name', value::json ->> 'created_at';

-- +goose Down
DROP TRIGGER sandbox_unname ON sandbox_record;
DROP TRIGGER sandbox_name ON sandbox_record;
DROP FUNCTION sandbox_name();
DROP FUNCTION sandbox_named(json);
DROP INDEX sandbox_snapshot;
DROP TABLE sandbox_volume;
