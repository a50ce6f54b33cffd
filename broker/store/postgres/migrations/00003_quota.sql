-- compatible since 1

-- +goose Up

-- most is how many instances the tenant may have, as its quota said when the record was written.
ALTER TABLE sandbox_record ADD COLUMN most bigint;

CREATE INDEX sandbox_instance_tenant ON sandbox_record (substring(encode(key, 'escape') FROM '^[^:]*')) WHERE bucket = 'instances';

-- sandbox_lock has what becomes of the instances of tenants, for which the numbers stand, done
-- one after the other until the transaction ends, on whichever brokers. The numbers are in order,
-- so that no two transactions wait for each other.
-- +goose StatementBegin
CREATE FUNCTION sandbox_lock(tenants bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    tenant bigint;
BEGIN
    FOREACH tenant IN ARRAY tenants LOOP
        PERFORM pg_advisory_xact_lock(tenant);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- sandbox_released says of an instance that it is paused and holds nothing.
-- +goose StatementBegin
CREATE FUNCTION sandbox_released(record text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce((record::json ->> 'released')::boolean, false)
$$;
-- +goose StatementEnd

-- sandbox_within ends the transaction in which a tenant comes to more instances than it may have,
-- those on all brokers that live together.
-- +goose StatementBegin
CREATE FUNCTION sandbox_within() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used bigint;
BEGIN
    IF sandbox_released(NEW.value) OR TG_OP = 'UPDATE' AND NOT sandbox_released(OLD.value) THEN
        RETURN NULL;
    END IF;
    SELECT count(*) INTO used FROM sandbox_record r JOIN sandbox_broker b ON b.id = r.broker
        WHERE r.bucket = 'instances' AND substring(encode(r.key, 'escape') FROM '^[^:]*') = substring(encode(NEW.key, 'escape') FROM '^[^:]*')
        AND NOT sandbox_dead(b.expires_at) AND NOT sandbox_released(r.value);
    IF used > NEW.most THEN
        RAISE EXCEPTION 'the tenant has as many instances as it may' USING ERRCODE = 'SBL03', DETAIL = NEW.most;
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sandbox_within AFTER INSERT OR UPDATE ON sandbox_record FOR EACH ROW
    WHEN (NEW.bucket = 'instances' AND NEW.most IS NOT NULL) EXECUTE FUNCTION sandbox_within();

-- +goose Down
DROP TRIGGER sandbox_within ON sandbox_record;
DROP FUNCTION sandbox_within();
DROP FUNCTION sandbox_released(text);
DROP FUNCTION sandbox_lock(bigint[]);
DROP INDEX sandbox_instance_tenant;
ALTER TABLE sandbox_record DROP COLUMN most;
