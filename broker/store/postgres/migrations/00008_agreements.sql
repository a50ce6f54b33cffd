-- compatible since 1

-- +goose Up

-- Which brokers can use the tables of a version: those that know the version since, and later
-- ones. A broker that finds newer tables than it knows looks here.
CREATE TABLE sandbox_compatible (
    version bigint PRIMARY KEY,
    since   bigint NOT NULL
);

-- knows is the version of the tables that the broker knows; NULL for one that does not say.
ALTER TABLE sandbox_broker ADD COLUMN knows bigint;

-- The configuration that brokers share: what was proposed, and what became of it.
CREATE TABLE sandbox_generation (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    number      bigint NOT NULL,
    text        bytea NOT NULL,
    proposer    text NOT NULL REFERENCES sandbox_broker (id),
    state       text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'committed', 'refused')),
    -- reason says why it was refused.
    reason      text NOT NULL DEFAULT '',
    expires_at  timestamptz NOT NULL
);

-- One is proposed at a time, and none twice.
CREATE UNIQUE INDEX sandbox_generation_open ON sandbox_generation (state) WHERE state = 'open';
CREATE UNIQUE INDEX sandbox_generation_committed ON sandbox_generation (number) WHERE state = 'committed';

-- The brokers that share the configuration, each with the generation that is in force there.
CREATE TABLE sandbox_member (
    broker text PRIMARY KEY REFERENCES sandbox_broker (id),
    number bigint NOT NULL
);

CREATE TABLE sandbox_vote (
    proposal bigint NOT NULL REFERENCES sandbox_generation (id) ON DELETE CASCADE,
    broker   text NOT NULL REFERENCES sandbox_broker (id),
    agrees   boolean NOT NULL,
    reason   text NOT NULL DEFAULT '',
    PRIMARY KEY (proposal, broker)
);

-- sandbox_decide says what has become of a proposal. Whoever asks may be the one who decides it:
-- it is refused if one that lives refuses, or its time is over; it is committed when all that live
-- agree.
-- +goose StatementBegin
CREATE FUNCTION sandbox_decide(proposed bigint) RETURNS sandbox_generation LANGUAGE plpgsql AS $$
DECLARE
    g       sandbox_generation;
    missing text;
BEGIN
    SELECT * INTO g FROM sandbox_generation WHERE id = proposed FOR UPDATE;
    IF g.state IS DISTINCT FROM 'open' THEN
        RETURN g;
    END IF;
    SELECT string_agg(format('broker %s refuses it: %s', v.broker, v.reason), E'\n' ORDER BY v.broker) INTO g.reason
        FROM sandbox_vote v JOIN sandbox_broker b ON b.id = v.broker
        WHERE v.proposal = proposed AND NOT v.agrees AND NOT sandbox_dead(b.expires_at);
    SELECT string_agg(m.broker, ', ' ORDER BY m.broker) INTO missing
        FROM sandbox_member m JOIN sandbox_broker b ON b.id = m.broker
        WHERE NOT sandbox_dead(b.expires_at)
        AND NOT EXISTS (SELECT 1 FROM sandbox_vote v WHERE v.proposal = proposed AND v.broker = m.broker);
    IF EXISTS (SELECT 1 FROM sandbox_generation o WHERE o.state = 'committed' AND o.number >= g.number) THEN
        g.reason := 'another one was first';
    END IF;
    IF g.reason IS NULL AND missing IS NOT NULL AND g.expires_at < now() THEN
        g.reason := format('no answer in time from broker %s', missing);
    END IF;
    IF g.reason IS NOT NULL THEN
        g.state := 'refused';
    ELSIF missing IS NULL THEN
        g.state := 'committed';
    END IF;
    g.reason := coalesce(g.reason, '');
    UPDATE sandbox_generation SET state = g.state, reason = g.reason WHERE id = proposed;
    RETURN g;
END
$$;
-- +goose StatementEnd

-- The ends of the audit logs of all brokers, in one order: each has the sum of the one before.
CREATE TABLE sandbox_audit_head (
    number bigint PRIMARY KEY,
    broker text NOT NULL REFERENCES sandbox_broker (id),
    seq    bigint NOT NULL,
    hash   text NOT NULL,
    prev   text NOT NULL,
    sum    text NOT NULL
);

-- sandbox_sign gives the end of a log the next place in the order, one after the other. Of heads
-- that are very old the logs alone tell.
-- +goose StatementBegin
CREATE FUNCTION sandbox_sign(signer text, held bigint, line bigint, line_hash text) RETURNS sandbox_audit_head LANGUAGE plpgsql AS $$
DECLARE
    head sandbox_audit_head;
BEGIN
    PERFORM sandbox_fence(signer, held);
    PERFORM pg_advisory_xact_lock(hashtextextended('sandbox_audit_head', 0));
    SELECT * INTO head FROM sandbox_audit_head ORDER BY number DESC LIMIT 1;
    head.number := coalesce(head.number, 0) + 1;
    head.prev := coalesce(head.sum, repeat('0', 64));
    head.broker := signer;
    head.seq := line;
    head.hash := line_hash;
    head.sum := encode(sha256(convert_to(format(E'%s\n%s\n%s\n%s\n%s\n', head.number, head.broker, head.seq, head.hash, head.prev), 'UTF8')), 'hex');
    INSERT INTO sandbox_audit_head SELECT head.*;
    DELETE FROM sandbox_audit_head WHERE number <= head.number - 100000;
    RETURN head;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION sandbox_sign(text, bigint, bigint, text);
DROP TABLE sandbox_audit_head;
DROP FUNCTION sandbox_decide(bigint);
DROP TABLE sandbox_vote;
DROP TABLE sandbox_member;
DROP TABLE sandbox_generation;
ALTER TABLE sandbox_broker DROP COLUMN knows;
DROP TABLE sandbox_compatible;
