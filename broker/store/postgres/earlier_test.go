package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/quota"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
)

// TestBrokersOfEarlierVersions go back to a version that does not know what later ones do with
// what they had.
func TestBrokersOfEarlierVersions(t *testing.T) {
	s := server.Start(t)
	for name, test := range map[string]func(t *testing.T, url string){
		"one whose instances others have adopted is refused": adoptedKeepsEarlierAway,
		"one that has adopted instances is refused":          adopterIsNoEarlier,
		"it waits for who adopts at this moment":             earlierAwaitsAdoption,
		"the lease of another process is that one's":         earlierIsSecond,
		"it holds nothing that it does not know of":          earlierGivesBack,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s.Database())
		})
	}
}

// startEarlier takes the lease of a broker with the statement of the versions before adoption.
func startEarlier(ctx context.Context, t *testing.T, url, broker, holder string) error {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	assert.NilError(t, err)
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is the test's
	var epoch, attempt int64
	return conn.QueryRow(ctx, `
		INSERT INTO sandbox_broker AS b (id, epoch, holder, version, expires_at, started_at)
		VALUES ($1, 1, $2, $3, now() + $4::interval, now())
		ON CONFLICT (id) DO UPDATE SET epoch = b.epoch + 1, holder = excluded.holder, version = excluded.version,
			expires_at = excluded.expires_at, started_at = excluded.started_at
		WHERE b.expires_at <= now() OR b.holder = excluded.holder
		RETURNING epoch, attempt`, broker, holder, "earlier", "5 minutes").Scan(&epoch, &attempt)
}

// adoptedByB has b adopt an instance of a, which is dead.
func adoptedByB(t *testing.T, url string) (b *postgres.Store) {
	t.Helper()
	all := brokers(t, url, "a", "b")
	has(t, all[0], store.Instances, map[string]any{"acme:s:1": made{Provider: "cloud", Made: "x1"}})
	dies(t, all[0], all[1])
	adopted, err := all[1].Adopt(t.Context(), "a", found(t, all[1], "cloud"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(adopted, 1))
	return all[1]
}

func adoptedKeepsEarlierAway(t *testing.T, url string) {
	b := adoptedByB(t, url)
	err := startEarlier(t.Context(), t, url, "a", "directory of a")
	assert.ErrorContains(t, err, "start broker a with a version that knows tables of version 5")
	assert.NilError(t, startEarlier(t.Context(), t, url, "new", "directory of new"), "nobody has anything of that one")

	// This version may come back, and the earlier one once the instance has ended.
	o := options(url)
	o.Holder = "directory of a"
	a := open(t, o)
	assert.NilError(t, a.Close())
	assert.ErrorContains(t, startEarlier(t.Context(), t, url, "a", "directory of a"), "tables of version 5")
	assert.NilError(t, b.Update(t.Context(), end("acme:s:1")))
	assert.NilError(t, startEarlier(t.Context(), t, url, "a", "directory of a"))
}

func adopterIsNoEarlier(t *testing.T, url string) {
	b := adoptedByB(t, url)
	assert.NilError(t, b.Close())
	err := startEarlier(t.Context(), t, url, "b", "directory of b")
	assert.ErrorContains(t, err, "start broker b with a version that knows tables of version 5")
}

func earlierAwaitsAdoption(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	a, b := all[0], all[1]
	has(t, a, store.Instances, map[string]any{"acme:s:1": made{Provider: "cloud", Made: "x1"}})
	dies(t, a, b)
	conn, err := pgx.Connect(t.Context(), url)
	assert.NilError(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck // it is the test's
	tx, err := conn.Begin(t.Context())
	assert.NilError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT sandbox_forsake('a')`)
	assert.NilError(t, err)
	_, err = tx.Exec(t.Context(), `UPDATE sandbox_record SET broker = 'b', value = '{"provider":"cloud","made":"x1","carries":"a"}' WHERE broker = 'a' AND bucket = 'instances'`)
	assert.NilError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- startEarlier(t.Context(), t, url, "a", "directory of a") }()
	awaitBlocked(t, b)
	assert.NilError(t, tx.Commit(t.Context()))
	assert.ErrorContains(t, <-ended, "tables of version 5")
}

func earlierIsSecond(t *testing.T, url string) {
	a := brokers(t, url, "a")[0]
	assert.NilError(t, a.Exec(t.Context(), `INSERT INTO sandbox_share (tenant, quota, period, broker, held, used, nth, changed_at) VALUES ('acme', 'max_concurrent', '', 'a', 3, 3, 1, now())`))
	err := startEarlier(t.Context(), t, url, "a", "a copy of it")
	assert.Check(t, errors.Is(err, pgx.ErrNoRows), "%v", err)
	var held int64
	assert.NilError(t, a.QueryRow(t.Context(), `SELECT coalesce(sum(held), 0)::bigint FROM sandbox_share`, &held))
	assert.Equal(t, held, int64(3))
}

// earlierGivesBack has a broker of an earlier version hold no places, and what was used stay used.
func earlierGivesBack(t *testing.T, url string) {
	all := brokers(t, url, "a", "b")
	keepers := keepersOn(t, all, quota.Limits{Concurrent: 4, ExecutionsPerDay: 100, Paused: 2, Instances: 3})
	for range 3 {
		_, err := keepers[0].Admit(t.Context(), execution())
		assert.NilError(t, err)
	}
	grant, err := keepers[0].Admit(t.Context(), quota.Demand{Tenant: "acme", Instance: true, Provider: "local"})
	assert.NilError(t, err)
	assert.NilError(t, grant.Instance.ClaimPause())
	grant.Instance.Settle(true)
	dies(t, all[0], all[1])
	assert.NilError(t, startEarlier(t.Context(), t, url, "a", "directory of a"))
	assert.Equal(t, takes(t, keepers[1]), 4)
	for limit, kept := range map[quota.Limit]bool{quota.MaxConcurrent: false, quota.MaxInstances: false, quota.MaxPaused: true, quota.ExecutionsPerDay: true} {
		var held, reserve int64
		assert.NilError(t, all[1].QueryRow(t.Context(), fmt.Sprintf(`SELECT coalesce(sum(held), 0)::bigint FROM sandbox_share WHERE broker = 'a' AND quota = '%s'`, limit), &held))
		assert.NilError(t, all[1].QueryRow(t.Context(), fmt.Sprintf(`SELECT coalesce(sum(held - used), 0)::bigint FROM sandbox_share WHERE broker = 'a' AND quota = '%s'`, limit), &reserve))
		assert.Check(t, is.Equal(held > 0, kept), "%s", limit)
		assert.Check(t, is.Equal(reserve, int64(0)), "nothing of %s comes back", limit)
	}
}

// awaitBlocked waits until somebody waits for a lock in the database.
func awaitBlocked(t *testing.T, s *postgres.Store) {
	t.Helper()
	inAMoment(t, func() error {
		var blocked int64
		if err := s.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, &blocked); err != nil || blocked == 0 {
			return errors.Join(err, fmt.Errorf("%d wait", blocked))
		}
		return nil
	})
}
