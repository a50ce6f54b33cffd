package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
)

// later are the migrations of this version and of later ones, by their file names.
func later(t *testing.T, more map[string]string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	assert.NilError(t, fs.WalkDir(postgres.Migrations(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(postgres.Migrations(), path)
		files[path] = &fstest.MapFile{Data: text}
		return err
	}))
	for name, text := range more {
		files["migrations/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

const (
	additive = "-- compatible since 8\n\n-- +goose Up\nALTER TABLE sandbox_record ADD COLUMN later text;\n\n-- +goose Down\nALTER TABLE sandbox_record DROP COLUMN later;\n"
	breaking = "-- +goose Up\nCREATE TABLE sandbox_later (id bigint);\n\n-- +goose Down\nDROP TABLE sandbox_later;\n"
)

func named(id string, url string) postgres.Options {
	o := options(url)
	o.Broker, o.Holder, o.Version = id, "directory of "+id, "version of "+id
	return o
}

// olderOnNewer starts brokers on tables that are newer than what they know.
func olderOnNewer(t *testing.T, url string) {
	old := open(t, named("old", url))
	one := map[string]string{"90001_one.sql": additive}
	s, err := postgres.OpenWith(t.Context(), named("new", url), later(t, one))
	assert.NilError(t, err, "it can be used by the old one, which runs")
	assert.NilError(t, old.Update(t.Context(), put("1", record{Count: 1})))
	assert.NilError(t, s.Close())
	assert.NilError(t, old.Close())
	old = open(t, named("old", url))
	assert.NilError(t, old.Update(t.Context(), put("2", record{Count: 2})), "it says that it can be used by it")

	two := map[string]string{"90002_two.sql": breaking}
	maps.Copy(two, one)
	_, err = postgres.OpenWith(t.Context(), named("new", url), later(t, two))
	assert.ErrorContains(t, err, "broker old of version version of old uses them and knows version ")
	assert.NilError(t, old.Update(t.Context(), put("3", record{Count: 3})), "nothing was done to it")
	assert.NilError(t, old.Close())
	s, err = postgres.OpenWith(t.Context(), named("new", url), later(t, two))
	assert.NilError(t, err)
	assert.NilError(t, s.Close())
	_, err = postgres.Open(t.Context(), named("old", url))
	assert.ErrorContains(t, err, "its tables have version 90002 and are for brokers that know version 90002 at least")
	assert.ErrorContains(t, err, "start a later version of the broker")

	// A third one that keeps to what the second has broken: what is between counts too.
	three := map[string]string{"90003_three.sql": strings.ReplaceAll(additive, "later", "latest")}
	maps.Copy(three, two)
	s, err = postgres.OpenWith(t.Context(), named("new", url), later(t, three))
	assert.NilError(t, err)
	assert.NilError(t, s.Close())
	_, err = postgres.Open(t.Context(), named("old", url))
	assert.ErrorContains(t, err, "know version 90002 at least")
	s, err = postgres.OpenWith(t.Context(), named("new", url), later(t, two))
	assert.NilError(t, err)
	assert.NilError(t, s.Close())
}

// TestEachMigrationSaysWhoCanUseIt has nobody forget it.
func TestEachMigrationSaysWhoCanUseIt(t *testing.T) {
	assert.NilError(t, fs.WalkDir(postgres.Migrations(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(postgres.Migrations(), path)
		assert.Check(t, strings.HasPrefix(string(text), "-- compatible since "), "%s: begin it with the line -- compatible since N: brokers that know the tables of version N can use those that it makes", path)
		return err
	}))
}

// oldBroker writes with the statements of the brokers that knew a version of the tables.
type oldBroker struct {
	version int
	conn    *pgx.Conn
	done    atomic.Int64
}

// write is one transaction of its: an instance is made, or ends.
func (o *oldBroker) write(ctx context.Context, n int) error {
	batch := &pgx.Batch{}
	if o.version >= 4 {
		batch.Queue(`SELECT sandbox_fence($1, $2, $3)`, "older", int64(1), int64(0))
	} else {
		batch.Queue(`SELECT sandbox_fence($1, $2)`, "older", int64(1))
	}
	key := fmt.Appendf(nil, "acme:s%d:%d", n%5, n)
	if o.version >= 3 {
		batch.Queue(`SELECT sandbox_lock($1)`, []int64{7})
		batch.Queue(`INSERT INTO sandbox_record (broker, bucket, key, value, most)
			SELECT $1, * FROM unnest($2::text[], $3::bytea[], $4::text[], $5::bigint[])
			ON CONFLICT (broker, bucket, key) DO UPDATE SET value = excluded.value, most = excluded.most`,
			"older", []string{"instances"}, [][]byte{key}, []string{"{}"}, []*int64{nil})
	} else {
		batch.Queue(`INSERT INTO sandbox_record (broker, bucket, key, value)
			SELECT $1, * FROM unnest($2::text[], $3::bytea[], $4::text[])
			ON CONFLICT (broker, bucket, key) DO UPDATE SET value = excluded.value`,
			"older", []string{"instances"}, [][]byte{key}, []string{"{}"})
	}
	if n%2 == 1 {
		batch.Queue(`DELETE FROM sandbox_record r USING unnest($2::text[], $3::bytea[]) AS gone (bucket, key)
			WHERE r.broker = $1 AND r.bucket = gone.bucket AND r.key = gone.key`, "older", []string{"instances"}, [][]byte{key})
	}
	if err := o.conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	_, err := o.conn.Exec(ctx, `UPDATE sandbox_broker SET expires_at = now() + $3::interval WHERE id = $1 AND epoch = $2 RETURNING epoch`, "older", int64(1), "5 seconds")
	return err
}

// run writes until ctx ends. Brokers do again what the database gave up because of others, and
// what it could not do with a plan of before.
func (o *oldBroker) run(ctx context.Context) error {
	for n := 0; ctx.Err() == nil; {
		err := o.write(context.WithoutCancel(ctx), n)
		refused, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil:
			n++
			o.done.Store(int64(n))
		case !ok || !strings.HasPrefix(refused.Code, "40"):
			return fmt.Errorf("after %d: %w", n, err)
		}
	}
	return nil
}

// TestTablesAreBroughtUpWhileBrokersOfBeforeWrite goes from each earlier version of the tables to
// this one, while a broker that knows no other writes, and back by one while two of this version
// write.
func TestTablesAreBroughtUpWhileBrokersOfBeforeWrite(t *testing.T) {
	s := server.Start(t)
	for version := 1; version <= 4; version++ {
		t.Run(fmt.Sprint("from ", version), func(t *testing.T) {
			url := s.Database()
			assert.NilError(t, postgres.UpTo(t.Context(), url, int64(version)))
			conn, err := pgx.Connect(t.Context(), url)
			assert.NilError(t, err)
			defer conn.Close(context.Background()) //nolint:errcheck // it is the test's
			_, err = conn.Exec(t.Context(), `INSERT INTO sandbox_broker (id, epoch, holder, version, expires_at, started_at) VALUES ('older', 1, 'there', 'before', now() + interval '5 seconds', now())`)
			assert.NilError(t, err)
			old := &oldBroker{version: version, conn: conn}
			writing, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- old.run(writing) }()
			awaitWrites(t, &old.done)
			fresh := open(t, named("fresh", url))
			for n := range 50 {
				assert.NilError(t, fresh.Update(t.Context(), put(fmt.Sprint("rival:s:", n), record{Count: n})))
			}
			awaitWrites(t, &old.done)
			end()
			assert.NilError(t, <-ended)
			var kept int64
			assert.NilError(t, fresh.QueryRow(t.Context(), `SELECT count(*) FROM sandbox_record WHERE broker = 'older'`, &kept))
			assert.Equal(t, kept, (old.done.Load()+1)/2)
		})
	}
	t.Run("back by one", func(t *testing.T) {
		url := s.Database()
		all := brokers(t, url, "a", "b")
		var done atomic.Int64
		writing, end := context.WithCancel(t.Context())
		ended := make(chan error, len(all))
		for i, s := range all {
			go func() {
				var err error
				for n := 0; err == nil && writing.Err() == nil; n++ {
					err = s.Update(context.WithoutCancel(writing), put(fmt.Sprintf("acme:%d:%d", i, n), record{Count: n}))
					done.Add(1)
				}
				ended <- err
			}()
		}
		for range 3 {
			awaitWrites(t, &done)
			assert.NilError(t, all[0].DownOne(t.Context()))
			awaitWrites(t, &done)
			assert.NilError(t, all[0].Up(t.Context()))
		}
		awaitWrites(t, &done)
		end()
		for range all {
			assert.NilError(t, <-ended)
		}
	})
}

// awaitWrites waits until some more are done.
func awaitWrites(t *testing.T, done *atomic.Int64) {
	t.Helper()
	const more = 50
	from := done.Load()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if now := done.Load(); now < from+more {
			return poll.Continue("%d of %d", now-from, more)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(5*time.Millisecond))
}
