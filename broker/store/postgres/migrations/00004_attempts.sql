-- compatible since 1

-- +goose Up

-- attempt is counted on by the holder of the lease when it does not know what became of a
-- transaction: that may still be on its way to the database, and must not come behind later ones.
ALTER TABLE sandbox_broker ADD COLUMN attempt bigint NOT NULL DEFAULT 0;

-- This sandbox_fence ends the transactions of who does not hold the lease any more, and those
-- that their sender has given up. The one with two parameters is for brokers of the version
-- before, which may be running.
-- +goose StatementBegin
CREATE FUNCTION sandbox_fence(broker text, held bigint, nth bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM sandbox_broker WHERE id = broker AND epoch = held AND attempt = nth FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has the lease of broker %', broker USING ERRCODE = 'SBL01';
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION sandbox_fence(text, bigint, bigint);
ALTER TABLE sandbox_broker DROP COLUMN attempt;
