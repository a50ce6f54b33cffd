-- compatible since 1

-- +goose Up

-- address is where the broker listens for its peers; '' for nowhere.
ALTER TABLE sandbox_broker ADD COLUMN address text NOT NULL DEFAULT '';

-- A session is with one broker as long as that has an instance of it. The name is what stands
-- before the last colon of their IDs.
CREATE TABLE sandbox_session (
    name      text PRIMARY KEY,
    broker    text NOT NULL REFERENCES sandbox_broker (id),
    instances integer NOT NULL
);

-- A key of a tenant's is with the broker that was asked with it first.
CREATE UNIQUE INDEX sandbox_one_answer ON sandbox_record (key) WHERE bucket = 'answers';

CREATE INDEX sandbox_instance ON sandbox_record (key) WHERE bucket = 'instances';
CREATE INDEX sandbox_instance_name ON sandbox_record (substring(encode(key, 'escape') FROM '[^:]*$')) WHERE bucket = 'instances';

-- sandbox_dead says of whom nobody waits any more: its lease ended a while ago.
-- +goose StatementBegin
CREATE FUNCTION sandbox_dead(ended timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT ended < now() - interval '5 seconds'
$$;
-- +goose StatementEnd

-- sandbox_claim has the session of a new instance with its broker, and ends the transaction
-- where another one has it that lives. That of a dead one is taken over: that one's instances of
-- the session are forgotten, and its epoch goes on, so that it can write nothing any more.
-- +goose StatementBegin
CREATE FUNCTION sandbox_claim() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    session text;
    other   text;
BEGIN
    IF TG_OP = 'DELETE' THEN
        session := substring(encode(OLD.key, 'escape') FROM '^(.*):');
        UPDATE sandbox_session s SET instances = s.instances - 1 WHERE s.name = session AND s.broker = OLD.broker;
        DELETE FROM sandbox_session s WHERE s.name = session AND s.instances <= 0;
        RETURN NULL;
    END IF;
    session := substring(encode(NEW.key, 'escape') FROM '^(.*):');
    IF session IS NULL THEN
        RETURN NULL;
    END IF;
    LOOP
        INSERT INTO sandbox_session AS s (name, broker, instances) VALUES (session, NEW.broker, 1)
            ON CONFLICT (name) DO UPDATE SET instances = s.instances + 1 WHERE s.broker = NEW.broker;
        EXIT WHEN FOUND;
        SELECT s.broker INTO other FROM sandbox_session s JOIN sandbox_broker b ON b.id = s.broker
            WHERE s.name = session AND NOT sandbox_dead(b.expires_at);
        IF FOUND THEN
            RAISE EXCEPTION 'the session is with another broker' USING ERRCODE = 'SBL02', DETAIL = other;
        END IF;
        SELECT s.broker INTO other FROM sandbox_session s WHERE s.name = session;
        CONTINUE WHEN NOT FOUND; -- it has just ended
        UPDATE sandbox_broker b SET epoch = b.epoch + 1 WHERE b.id = other AND sandbox_dead(b.expires_at);
        CONTINUE WHEN NOT FOUND; -- it lives again
        DELETE FROM sandbox_record r WHERE r.broker = other AND r.bucket = 'instances'
            AND substring(encode(r.key, 'escape') FROM '^(.*):') = session;
        DELETE FROM sandbox_session s WHERE s.name = session AND s.broker = other;
    END LOOP;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sandbox_claim AFTER INSERT ON sandbox_record FOR EACH ROW WHEN (NEW.bucket = 'instances') EXECUTE FUNCTION sandbox_claim();
CREATE TRIGGER sandbox_disclaim AFTER DELETE ON sandbox_record FOR EACH ROW WHEN (OLD.bucket = 'instances') EXECUTE FUNCTION sandbox_claim();

-- What is there already.
INSERT INTO sandbox_session (name, broker, instances)
    SELECT DISTINCT ON (name) name, broker, count(*) OVER (PARTITION BY name, broker)
    FROM (SELECT substring(encode(key, 'escape') FROM '^(.*):') AS name, broker FROM sandbox_record WHERE bucket = 'instances') had
    WHERE name IS NOT NULL;

-- +goose Down
DROP TRIGGER sandbox_disclaim ON sandbox_record;
DROP TRIGGER sandbox_claim ON sandbox_record;
DROP FUNCTION sandbox_claim();
DROP FUNCTION sandbox_dead(timestamptz);
DROP INDEX sandbox_instance_name;
DROP INDEX sandbox_instance;
DROP INDEX sandbox_one_answer;
DROP TABLE sandbox_session;
ALTER TABLE sandbox_broker DROP COLUMN address;
