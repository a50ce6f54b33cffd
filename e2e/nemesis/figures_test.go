package nemesis_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	// figureTurns is how often each side is measured, in turn with the others, and figureTime for
	// how long each time.
	figureTurns = 5
	figureTime  = 2 * time.Second
	// figureClients ask side by side, and figureLooks are how often one looks for a session alone.
	figureClients = 16
	figureLooks   = 500
)

// side is brokers that are measured.
type side struct {
	name    string
	brokers []*harness.Broker
	// lives and executions are those a second, of each turn, and looks how long one took.
	lives, executions []float64
	looks             []time.Duration
}

// TestFigures measures a broker on a file beside one and five on a database, in turn, and what one
// instance and one execution cost the database. It decides nothing.
func TestFigures(t *testing.T) {
	if !*figuresFlag {
		t.Skip("make nemesis-figures runs it")
	}
	plugin := filepath.Join(t.TempDir(), "mock")
	assert.NilError(t, binaries.Build(plugin, "github.com/sandbox-broker/sandbox-broker/e2e/mockprovider"))
	server := postgres.Start(t, "fsync=on")
	sides := []*side{{name: "file"}, {name: "database, one"}, {name: "database, five"}}
	start := func(n, count int) {
		authority, database := certtest.NewAuthority(t), ""
		if n > 0 {
			database = server.Database()
		}
		for range count {
			config := harness.Tenants + "provider \"mock\" {}\nlog {\n level = \"warn\"\n}\n"
			o := harness.Options{Config: config, Database: database, Plugins: map[string]string{"mock": plugin}}
			if n > 0 {
				o.Config += "peers {\n listen = \"127.0.0.1:0\"\n cert_file = \"tls.crt\"\n key_file = \"tls.key\"\n ca_file = \"ca.pem\"\n}\n"
				o.Prepare = func(dir string) {
					authority.Issue("127.0.0.1").Write(t, dir)
					assert.NilError(t, os.WriteFile(filepath.Join(dir, "ca.pem"), authority.PEM, 0o600))
				}
			}
			sides[n].brokers = append(sides[n].brokers, harness.Start(t, o))
		}
	}
	start(0, 1)
	start(1, 1)
	start(2, brokers)
	for range figureTurns {
		for _, s := range sides {
			s.lives = append(s.lives, s.rate(t, (*side).live))
			s.executions = append(s.executions, s.rate(t, (*side).execute))
			s.looks = append(s.looks, s.look(t)...)
		}
	}
	for _, s := range sides {
		slices.Sort(s.looks)
		t.Logf("%-15s a second: %5.0f instances made and destroyed, %5.0f executions in fresh instances; a session is found in %.2f ms (p50), %.2f ms (p99)",
			s.name, middle(s.lives), middle(s.executions), ms(s.looks[len(s.looks)/2]), ms(s.looks[len(s.looks)*99/100]))
	}
	for _, b := range sides[2].brokers {
		b.Stop() // what they write would count
	}
	one := sides[1]
	url := one.database(t)
	const times = 500
	for name, do := range map[string]func(*side, int) error{"an instance, made and destroyed": (*side).live, "an execution in a fresh instance": (*side).execute} {
		before := costs(t, url)
		for n := range times {
			assert.NilError(t, do(one, n))
		}
		after := costs(t, url)
		t.Logf("%s: %s", name, after.since(before, times))
	}
	before, began := costs(t, url), time.Now()
	pause(t.Context(), 20*time.Second)
	t.Logf("a broker at rest, each second: %s", costs(t, url).since(before, time.Since(began).Seconds()))
}

// rate is how often something is done a second, by clients side by side through all brokers.
func (s *side) rate(t *testing.T, do func(*side, int) error) float64 {
	t.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, figureClients)
	began := time.Now()
	for n := range figureClients {
		group.Go(func() {
			for time.Since(began) < figureTime {
				if err := do(s, n); err != nil {
					failures <- err
					return
				}
				done.Add(1)
				n++
			}
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		assert.NilError(t, err)
	}
	return float64(done.Load()) / time.Since(began).Seconds()
}

func (s *side) ask(n int, method, path string, body any) (harness.Answer, error) {
	a := s.brokers[n%len(s.brokers)].Do(method, path, harness.Token, body)
	if a.Err == nil && a.Status >= http.StatusMultipleChoices {
		a.Err = errors.New(string(a.Body))
	}
	return a, a.Err
}

// live makes an instance and destroys it, each through another broker where there are several.
func (s *side) live(n int) error {
	made, err := s.ask(n, http.MethodPost, pathInstances, map[string]any{"ttl": hours})
	if err != nil {
		return err
	}
	var i client.Instance
	if err := json.Unmarshal(made.Body, &i); err != nil {
		return err
	}
	_, err = s.ask(n+1, http.MethodDelete, pathInstances+"/"+i.ID, nil)
	return err
}

func (s *side) execute(n int) error {
	_, err := s.ask(n, http.MethodPost, pathExecute, map[string]any{"language": "mock", "code": `{"stdout": "1"}`})
	return err
}

// look looks for a session again and again, through the broker behind its owner where there are
// several.
func (s *side) look(t *testing.T) (took []time.Duration) {
	t.Helper()
	name := map[string]any{"session_id": "figures", "ttl": hours}
	_, err := s.ask(0, http.MethodPost, pathInstances, name)
	assert.NilError(t, err)
	for range figureLooks {
		began := time.Now()
		_, err := s.ask(1, http.MethodPost, pathInstances, name)
		assert.NilError(t, err)
		took = append(took, time.Since(began))
	}
	return took
}

// database is the URL of a side's database.
func (s *side) database(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.brokers[0].ConfigFile())
	assert.NilError(t, err)
	var listen, url string
	_, err = fmt.Sscanf(string(text), "listen = %q\nstate = %q", &listen, &url)
	assert.NilError(t, err)
	return url
}

// cost is what a database has done.
type cost struct{ transactions, rows, bytes float64 }

func costs(t *testing.T, url string) (c cost) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	assert.NilError(t, err)
	defer conn.Close(ctx)
	// Backends at rest tell what they have counted after ten seconds.
	_, err = conn.Exec(ctx, "SELECT pg_sleep(11)")
	assert.NilError(t, err)
	assert.NilError(t, conn.QueryRow(ctx, `SELECT xact_commit, tup_inserted + tup_updated + tup_deleted, pg_current_wal_insert_lsn() - '0/0'
		FROM pg_stat_database WHERE datname = current_database()`).Scan(&c.transactions, &c.rows, &c.bytes))
	return c
}

func (c cost) since(before cost, times float64) string {
	return fmt.Sprintf("%.1f transactions, %.1f rows written, %.0f bytes of its log",
		(c.transactions-before.transactions)/times, (c.rows-before.rows)/times, (c.bytes-before.bytes)/times)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
