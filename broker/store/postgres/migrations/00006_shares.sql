-- compatible since 1

-- +goose Up

-- What of a quota of a tenant each broker holds: what it has used of it, or has in use, and a
-- reserve beside. All brokers together hold no more than the quota.
CREATE TABLE sandbox_share (
    tenant     text NOT NULL,
    quota      text NOT NULL,
    -- period is the day or the month that is counted; '' for what is in use at a time.
    period     text NOT NULL,
    broker     text NOT NULL REFERENCES sandbox_broker (id) ON DELETE CASCADE,
    held       bigint NOT NULL,
    -- used is the part of held that was no reserve when the broker last said so.
    used       bigint NOT NULL,
    -- nth grows with each change, so that none which is late undoes a later one.
    nth        bigint NOT NULL,
    -- waits has since when those wait who wait for one each, the earliest first.
    waits      timestamptz[] NOT NULL DEFAULT '{}',
    -- wanted_at is when the broker last got less than it wanted.
    wanted_at  timestamptz,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, quota, period, broker)
);

CREATE INDEX sandbox_share_broker ON sandbox_share (broker);
CREATE INDEX sandbox_share_wanted ON sandbox_share (wanted_at) WHERE wanted_at IS NOT NULL;

-- sandbox_wanted says that a broker still wants what it did not get: it asks again until it gets
-- it or wants it no more.
-- +goose StatementBegin
CREATE FUNCTION sandbox_wanted(at timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(at > now() - interval '3 seconds', false)
$$;
-- +goose StatementEnd

-- sandbox_hold says what a broker holds of a quota from now on: what it keeps, and beside that what
-- its waiting requests (since when each has waited, the earliest first), others (want) and its
-- reserve (spare) take, as far as the quota (most) has it. Who has waited longer at another broker
-- comes first. What a dead
-- broker holds of a quota that lasts counts: it was used, or may have been. The tenant must be
-- locked (sandbox_lock).
-- +goose StatementBegin
CREATE FUNCTION sandbox_hold(me text, turn bigint, of_tenant text, of_quota text, of_period text, most bigint, in_use bigint,
    keep bigint, want bigint, fewest bigint, spare bigint, since timestamptz[], lasting boolean,
    OUT holds bigint, OUT others bigint, OUT slack bigint, OUT wanted boolean) LANGUAGE plpgsql AS $$
DECLARE
    room    bigint;
    ahead   bigint;
    served  bigint;
    brokers bigint;
    got     bigint;
    before  sandbox_share;
    lacks   boolean;
BEGIN
    SELECT coalesce(sum(s.held), 0), coalesce(sum(s.held - s.used) FILTER (WHERE b.expires_at > now()), 0),
            coalesce(sum(cardinality(s.waits)) FILTER (WHERE b.expires_at > now() AND sandbox_wanted(s.wanted_at)), 0),
            coalesce(bool_or(b.expires_at > now() AND sandbox_wanted(s.wanted_at)), false)
        INTO others, slack, ahead, wanted
        FROM sandbox_share s JOIN sandbox_broker b ON b.id = s.broker
        WHERE s.tenant = of_tenant AND s.quota = of_quota AND s.period = of_period AND s.broker <> me
        AND (lasting OR NOT sandbox_dead(b.expires_at));
    SELECT greatest(1, count(*)) INTO brokers FROM sandbox_broker b WHERE b.expires_at > now();
    SELECT * INTO before FROM sandbox_share s WHERE s.tenant = of_tenant AND s.quota = of_quota AND s.period = of_period AND s.broker = me;
    room := most - others - in_use;
    SELECT count(*) INTO served FROM unnest(since) WITH ORDINALITY mine (at, n)
        WHERE n <= room AND n + (SELECT count(*) FROM sandbox_share s JOIN sandbox_broker b ON b.id = s.broker, unnest(s.waits) AS other (at)
            WHERE s.tenant = of_tenant AND s.quota = of_quota AND s.period = of_period AND s.broker <> me
            AND b.expires_at > now() AND sandbox_wanted(s.wanted_at) AND other.at < mine.at) <= room;
    holds := greatest(keep, in_use + served);
    -- Who does not wait comes behind all who do. What is too little for any of them (fewest) is left:
    -- two brokers that have a part each would both go on wanting the other's.
    got := greatest(0, least(in_use + served + want - holds, most - others - holds - ahead - (cardinality(since) - served)));
    IF holds + got - in_use - served >= least(fewest, want) THEN
        holds := holds + got;
    END IF;
    lacks := holds < in_use + cardinality(since) + want;
    IF lacks AND most - others - holds > 0 THEN
        slack := slack + ahead; -- they take it in a moment, or have left
    END IF;
    IF NOT lacks AND NOT wanted THEN
        holds := holds + greatest(0, least(spare, (most - others - holds) / (2 * brokers)));
    END IF;
    INSERT INTO sandbox_share AS s (tenant, quota, period, broker, held, used, nth, waits, wanted_at, changed_at)
        VALUES (of_tenant, of_quota, of_period, me, holds, in_use, turn, since, CASE WHEN lacks THEN clock_timestamp() END, now())
        ON CONFLICT (tenant, quota, period, broker) DO UPDATE SET held = excluded.held, used = excluded.used, nth = excluded.nth,
            waits = excluded.waits, wanted_at = excluded.wanted_at, changed_at = excluded.changed_at
        WHERE s.nth < excluded.nth;
    IF before.period IS NULL THEN
        DELETE FROM sandbox_share s WHERE s.tenant = of_tenant AND s.quota = of_quota AND s.period < of_period AND s.changed_at < now() - interval '40 days';
    END IF;
    -- Those who listen look into the table; who does not hear looks every second.
    IF lacks AND (slack > 0 OR cardinality(since) > 0 AND NOT sandbox_wanted(before.wanted_at)) OR wanted AND holds < before.held THEN
        NOTIFY sandbox_share;
    END IF;
END
$$;
-- +goose StatementEnd

-- What counts against a quota of what a tenant keeps: snapshots and volumes. kind is what it counts
-- as, NULL for nothing; most and most_bytes are the quotas as they were when it was written.
ALTER TABLE sandbox_record ADD COLUMN tenant text, ADD COLUMN kind text, ADD COLUMN bytes bigint, ADD COLUMN most_bytes bigint;

CREATE INDEX sandbox_kept ON sandbox_record (bucket, tenant) WHERE kind IS NOT NULL;

-- sandbox_keep ends the transaction in which a tenant comes to keep more than it may. What brokers
-- keep that are dead is there, and counts. The tenant must be locked (sandbox_lock).
-- +goose StatementBegin
CREATE FUNCTION sandbox_keep() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    fresh boolean := true;
    n     bigint;
    total numeric;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        fresh := OLD.kind IS DISTINCT FROM NEW.kind;
        IF NOT fresh AND NEW.bytes <= OLD.bytes THEN
            RETURN NULL;
        END IF;
    END IF;
    SELECT count(*) FILTER (WHERE r.kind = NEW.kind), sum(r.bytes) INTO n, total FROM sandbox_record r
        WHERE r.bucket = NEW.bucket AND r.tenant = NEW.tenant AND r.kind IS NOT NULL;
    IF fresh AND n > NEW.most THEN
        RAISE EXCEPTION 'the tenant keeps as many as it may' USING ERRCODE = 'SBL05', DETAIL = format('max_%s = %s', NEW.bucket, NEW.most);
    END IF;
    -- How large one becomes that is about to be made is not known yet.
    IF total > NEW.most_bytes OR fresh AND NEW.bytes = 0 AND total >= NEW.most_bytes THEN
        RAISE EXCEPTION 'the tenant keeps as much as it may' USING ERRCODE = 'SBL05', DETAIL = format('max_%s_bytes = %s', rtrim(NEW.bucket, 's'), NEW.most_bytes);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER sandbox_keep AFTER INSERT OR UPDATE ON sandbox_record FOR EACH ROW
    WHEN (NEW.kind IS NOT NULL AND (NEW.most IS NOT NULL OR NEW.most_bytes IS NOT NULL)) EXECUTE FUNCTION sandbox_keep();

-- +goose Down
DROP TRIGGER sandbox_keep ON sandbox_record;
DROP FUNCTION sandbox_keep();
DROP INDEX sandbox_kept;
ALTER TABLE sandbox_record DROP COLUMN tenant, DROP COLUMN kind, DROP COLUMN bytes, DROP COLUMN most_bytes;
DROP FUNCTION sandbox_hold(text, bigint, text, text, text, bigint, bigint, bigint, bigint, bigint, bigint, timestamptz[], boolean);
DROP FUNCTION sandbox_wanted(timestamptz);
DROP TABLE sandbox_share;
