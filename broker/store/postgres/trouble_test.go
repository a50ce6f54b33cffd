package postgres_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	server "github.com/sandbox-broker/sandbox-broker/e2e/postgres"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// network stands between a broker and its database.
type network struct {
	to  string
	all sync.WaitGroup

	mu   sync.Mutex
	gate *sync.RWMutex // of the connections that are made now
}

// between returns a network in front of an address, and its own.
func between(t *testing.T, to string) (*network, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	n := &network{to: to, gate: &sync.RWMutex{}}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			n.all.Go(func() { n.carry(client) })
		}
	})
	t.Cleanup(func() {
		assert.Check(t, l.Close())
		accepting.Wait()
		n.all.Wait()
	})
	return n, l.Addr().String()
}

func (n *network) carry(client net.Conn) {
	defer client.Close()
	n.mu.Lock()
	gate := n.gate
	n.mu.Unlock()
	database, err := net.Dial("tcp", n.to)
	if err != nil {
		return
	}
	defer database.Close()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(client, database)
		_ = client.Close()
	})
	buffer := make([]byte, 64<<10)
	for err == nil {
		var read int
		read, err = client.Read(buffer)
		gate.RLock()
		_, _ = database.Write(buffer[:read])
		gate.RUnlock()
	}
	_ = database.(*net.TCPConn).CloseWrite()
	back.Wait()
}

// hold keeps what is sent into the connections that there are until deliver is called, also
// where their client has gone, as a network does that has lost packets. New ones work.
func (n *network) hold() (deliver func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := n.gate
	n.gate = &sync.RWMutex{}
	held.Lock()
	return held.Unlock
}

// A transaction that was given up comes to the database when later ones are done: it changes
// nothing any more.
func TestATransactionThatComesLateIsNotDone(t *testing.T) {
	database := server.Start(t)
	url := database.Database()
	network, address := between(t, database.Address())
	s, err := postgres.OpenFor(t.Context(), options(strings.Replace(url, database.Address(), address, 1)), 2*time.Second)
	assert.NilError(t, err)
	defer s.Close()
	assert.NilError(t, s.Update(t.Context(), put("x", record{Count: 1})))
	deliver := network.hold()
	assert.Equal(t, sdk.CodeOf(s.Update(t.Context(), put("x", record{Count: 2}))), sdk.CodeUnavailable)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := s.Update(t.Context(), put("x", record{Count: 3})); err != nil {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	deliver()
	assert.NilError(t, s.Close()) // and with it all connections
	network.all.Wait()
	again := open(t, options(url))
	got, _ := get(t, again, "x")
	assert.Check(t, is.Equal(got.Count, 3))
}

// However many wait for what they read, the lease is renewed and changes are written.
func TestReadersDoNotCostTheLease(t *testing.T) {
	s, err := postgres.OpenFor(t.Context(), options(server.Start(t).Database()), 2*time.Second)
	assert.NilError(t, err)
	defer s.Close()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			var none string
			assert.Check(t, s.QueryRow(t.Context(), `SELECT pg_sleep(1.5)::text`, &none))
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		assert.NilError(t, s.Held())
		assert.NilError(t, s.Update(t.Context(), put("x", record{})))
	}
}

// The database becomes one that takes no changes, as after a fail-over to a replica, and comes
// back: the broker neither reads there nor stays with the connections that it has.
func TestADatabaseThatTakesNoChanges(t *testing.T) {
	database := server.Start(t)
	s, err := postgres.OpenFor(t.Context(), options(database.Database()), 2*time.Second)
	assert.NilError(t, err)
	defer s.Close()
	read := func() error {
		return s.View(func(tx store.Tx) error { _, err := tx.Get(store.Instances, "x"); return err })
	}
	for name, statements := range map[string][2][]string{
		"for new connections": {
			{`ALTER DATABASE broker1 SET default_transaction_read_only = on`, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sandbox-broker'`},
			{`ALTER DATABASE broker1 RESET default_transaction_read_only`},
		},
		"for those that there are": {
			{`ALTER SYSTEM SET default_transaction_read_only = on`, `SELECT pg_reload_conf()`},
			{`ALTER SYSTEM RESET default_transaction_read_only`, `SELECT pg_reload_conf()`},
		},
	} {
		assert.NilError(t, read())
		for _, statement := range statements[0] {
			database.Exec("postgres", statement)
		}
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if s.Held() == nil {
				return poll.Continue("the lease lasts")
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute))
		assert.Equal(t, sdk.CodeOf(s.Update(t.Context(), put("x", record{}))), sdk.CodeUnavailable)
		assert.Check(t, is.Equal(sdk.CodeOf(read()), sdk.CodeUnavailable), "%s: a replica may know less", name)
		assert.NilError(t, s.Err())
		for _, statement := range statements[1] {
			database.Exec("postgres", statement)
		}
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if err := s.Update(t.Context(), put("x", record{})); err != nil {
				return poll.Continue("%v", err)
			}
			return poll.Success()
		}, poll.WithTimeout(time.Minute))
		_, found := get(t, s, "x")
		assert.Check(t, found)
	}
}

// Who reads while the database does not answer is refused at once when the lease is over.
func TestNobodyWaitsToReadOnceTheLeaseIsOver(t *testing.T) {
	database := server.Start(t)
	s, err := postgres.OpenFor(t.Context(), options(database.Database()), 2*time.Second)
	assert.NilError(t, err)
	defer s.Close()
	s.SetPatience(time.Hour)
	database.Signal(syscall.SIGSTOP)
	defer database.Signal(syscall.SIGCONT)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.Held() == nil {
			return poll.Continue("the lease lasts")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	err = s.View(func(tx store.Tx) error { _, err := tx.Get(store.Instances, "x"); return err })
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
}

// The database is asked to find out soon that a broker's machine is gone.
func TestTheDatabaseLooksWhetherABrokerIsThere(t *testing.T) {
	s := open(t, options(server.Start(t).Database()))
	var idle, unanswered string
	assert.NilError(t, s.QueryRow(t.Context(), `SHOW tcp_keepalives_idle`, &idle))
	assert.NilError(t, s.QueryRow(t.Context(), `SHOW tcp_user_timeout`, &unanswered))
	assert.Check(t, is.Equal(idle+" "+unanswered, "5 10000"))
}

// awaitHeld waits until a store has its lease, or has it no more.
func awaitHeld(t *testing.T, s *postgres.Store, held bool) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := s.Held(); (err == nil) != held {
			return poll.Continue("held: %v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(5*time.Millisecond))
}

// When the database itself was away, nobody counts as dead who had no time to come back; when it
// was one broker alone, the others die as ever.
func TestNobodyIsDeadBecauseTheDatabaseWasAway(t *testing.T) {
	database := server.Start(t)
	o := options(database.Database())
	first, err := postgres.OpenFor(t.Context(), o, 500*time.Millisecond)
	assert.NilError(t, err)
	defer first.Close()
	dead := func() (is bool) {
		t.Helper()
		poll.WaitOn(t, func(poll.LogT) poll.Result { // a connection of before may be offered
			if err := first.QueryRow(t.Context(), `SELECT sandbox_dead(now() - interval '1 hour')`, &is); err != nil {
				return poll.Continue("%v", err)
			}
			return poll.Success()
		}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
		return is
	}
	assert.Check(t, dead())
	database.Kill()
	awaitHeld(t, first, false)
	database.Up()
	awaitHeld(t, first, true)
	assert.Check(t, !dead(), "who has not come back yet")
	assert.NilError(t, first.Exec(t.Context(), `UPDATE sandbox_shared SET value = (now() - interval '6 seconds')::text WHERE name = 'resumed_at'`))
	assert.Check(t, dead(), "who has had the time")

	// The first is cut off, and somebody else is not.
	assert.NilError(t, first.Exec(t.Context(), `INSERT INTO sandbox_broker (id, epoch, holder, version, expires_at, started_at)
		VALUES ('other', 1, 'x', 'x', now() + interval '1 hour', now())`))
	database.Signal(syscall.SIGSTOP)
	awaitHeld(t, first, false)
	database.Signal(syscall.SIGCONT)
	awaitHeld(t, first, true)
	assert.Check(t, dead())
}

// Who waits for a lock that somebody keeps lets go of its own meanwhile: its lease is renewed, and
// what it writes is written once the lock is free.
func TestALockThatIsKeptCostsNoLease(t *testing.T) {
	url := server.Start(t).Database()
	s, err := postgres.OpenFor(t.Context(), options(url), 4*time.Second)
	assert.NilError(t, err)
	defer s.Close()
	keeper, err := pgx.Connect(t.Context(), url)
	assert.NilError(t, err)
	defer keeper.Close(context.WithoutCancel(t.Context()))
	tx, err := keeper.Begin(t.Context())
	assert.NilError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE sandbox_record IN SHARE MODE`)
	assert.NilError(t, err)
	write := func(key string) error { return s.Update(t.Context(), put(key, record{Count: 1})) }
	var writing sync.WaitGroup
	writing.Go(func() { _ = write("x") }) // it may be given up
	var began, now time.Time
	const renewed = `SELECT expires_at FROM sandbox_broker`
	assert.NilError(t, s.QueryRow(t.Context(), renewed, &began))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if err := s.QueryRow(t.Context(), renewed, &now); err != nil {
			return poll.Error(err)
		}
		if now.Sub(began) < 6*time.Second {
			return poll.Continue("the lease is not renewed for longer than it lasts")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	assert.NilError(t, tx.Rollback(t.Context()))
	writing.Wait()
	awaitHeld(t, s, true)
	assert.NilError(t, write("y"))
	_, found := get(t, s, "y")
	assert.Check(t, found)

	// A process that stands still in a transaction is the database's to end.
	var ends string
	assert.NilError(t, s.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`, &ends))
	assert.Equal(t, ends, "3s")
}
