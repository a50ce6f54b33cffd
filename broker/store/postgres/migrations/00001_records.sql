-- compatible since 1

-- +goose Up

-- One row for each broker that has ever used the database. Who holds the lease of a broker
-- has its epoch; each that takes it over counts on.
CREATE TABLE sandbox_broker (
    id         text PRIMARY KEY,
    epoch      bigint NOT NULL,
    -- holder is the directory that the process has locked: nobody else can be alive in it.
    holder     text NOT NULL,
    version    text NOT NULL,
    expires_at timestamptz NOT NULL,
    started_at timestamptz NOT NULL
);

-- The records of each broker, as in its state file.
CREATE TABLE sandbox_record (
    broker text NOT NULL REFERENCES sandbox_broker (id),
    bucket text NOT NULL,
    key    bytea NOT NULL,
    value  text,
    PRIMARY KEY (broker, bucket, key)
);

-- What all brokers on the database have in common, such as the key of preview links.
CREATE TABLE sandbox_shared (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- sandbox_fence ends the transaction of who does not hold the lease any more. It keeps the
-- lease from being taken over until the transaction has ended.
-- +goose StatementBegin
CREATE FUNCTION sandbox_fence(broker text, held bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sandbox_broker WHERE id = broker AND epoch = held FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has the lease of broker %', broker USING ERRCODE = 'SBL01';
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION sandbox_fence(text, bigint);
DROP TABLE sandbox_shared;
DROP TABLE sandbox_record;
DROP TABLE sandbox_broker;
