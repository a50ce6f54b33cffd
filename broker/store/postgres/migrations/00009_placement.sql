-- compatible since 1

-- +goose Up

-- load is what the broker says of itself to the others, which decide by it where new sessions go,
-- and loaded_at is when it has. Those of the version before say nothing.
ALTER TABLE sandbox_broker ADD COLUMN load text;
ALTER TABLE sandbox_broker ADD COLUMN loaded_at timestamptz;

-- draining says that the operator has taken the broker out, until it is taken back.
ALTER TABLE sandbox_broker ADD COLUMN draining boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE sandbox_broker DROP COLUMN draining;
ALTER TABLE sandbox_broker DROP COLUMN loaded_at;
ALTER TABLE sandbox_broker DROP COLUMN load;
