package postgres

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"
)

// Standby starts a server that follows this one, by streaming replication. From its call on this
// one confirms nothing that a standby has not written too.
func (s *Server) Standby() *Server {
	s.t.Helper()
	s.mu.Lock()
	databases := s.databases
	s.mu.Unlock()
	next := &Server{t: s.t, programs: s.programs, settings: s.settings, user: s.user, databases: databases}
	dir, err := os.MkdirTemp("", "postgres") //nolint:usetesting // another user shall reach it
	assert.NilError(s.t, err)
	next.dir = dir
	s.t.Cleanup(func() { assert.Check(s.t, os.RemoveAll(dir)) })
	if s.user != nil {
		assert.NilError(s.t, os.Chown(dir, int(s.user.Uid), int(s.user.Gid)))
	}
	s.synchronous()
	out, err := s.command("pg_basebackup", "-D", next.data(), "-d", s.url("postgres"), "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync").CombinedOutput()
	assert.NilError(s.t, err, "%s", out)
	next.port = freePort(s.t)
	next.Up()
	s.t.Cleanup(next.Kill)
	poll.WaitOn(s.t, func(poll.LogT) poll.Result {
		var state string
		if err := s.ask(`SELECT coalesce(min(sync_state), 'none') FROM pg_stat_replication WHERE state = 'streaming'`, &state); err != nil || state != "sync" {
			return poll.Continue("the standby is %q: %v", state, err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
	return next
}

// Promote makes of a standby a server that takes changes. It confirms none before it has a standby
// of its own: there is no moment in which what it confirms could be lost with it.
func (s *Server) Promote() {
	s.t.Helper()
	var promoted bool
	assert.NilError(s.t, s.ask(`SELECT pg_promote()`, &promoted))
	assert.Check(s.t, promoted)
}

// Log is what the server has written so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// synchronous has this server wait for a standby with each transaction.
func (s *Server) synchronous() {
	s.t.Helper()
	s.Exec("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
	s.Exec("postgres", "SELECT pg_reload_conf()")
}

// ask runs a statement that answers with one value.
func (s *Server) ask(statement string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, statement).Scan(into)
}
