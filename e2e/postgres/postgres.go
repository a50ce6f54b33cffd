// Package postgres starts PostgreSQL servers for tests: the real programs, as Debian's
// package has them, each in a directory of its own, which a test may stop, kill and start
// again. What a broker keeps in one is package broker/store/postgres's.
package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/sdk/processtree/processtable"
)

// Server is a PostgreSQL server of a test.
type Server struct {
	t          testing.TB
	programs   string
	dir        string
	port       int
	settings   []string
	user       *syscall.Credential // nil for that of the test
	mu         sync.Mutex
	postmaster *exec.Cmd
	ended      chan struct{}
	databases  int
}

// Start starts a server that listens on 127.0.0.1, with settings such as "fsync=on": without
// that it waits for no disk. The test is skipped where PostgreSQL is not installed, and fails
// in CI.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := &Server{t: t, programs: programs(t), settings: []string{"listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"}}
	s.settings = append(s.settings, settings...)
	dir, err := os.MkdirTemp("", "postgres") //nolint:usetesting // another user shall reach it
	assert.NilError(t, err)
	s.dir = dir
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	if os.Geteuid() == 0 {
		s.user = ordinary(t) // the server starts as no other user's than an ordinary one's
		assert.NilError(t, os.Chown(s.dir, int(s.user.Uid), int(s.user.Gid)))
	}
	out, err := s.command("initdb", "-D", s.data(), "-U", "broker", "-A", "trust", "-E", "UTF8", "--locale", "C", "-N").CombinedOutput()
	assert.NilError(t, err, "%s", out)
	s.port = freePort(t)
	s.Up()
	t.Cleanup(s.Kill)
	return s
}

// programs is the directory of the server's programs, which Debian keeps off the PATH.
func programs(t testing.TB) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	assert.NilError(t, err)
	if path, err := exec.LookPath("postgres"); err == nil && len(found) == 0 {
		found = append(found, path)
	}
	if len(found) == 0 {
		binaries.Missing(t, "PostgreSQL (Debian: postgresql)")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1])
}

func ordinary(t testing.TB) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
			gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
			assert.NilError(t, uidErr)
			assert.NilError(t, gidErr)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("there is no ordinary user")
	return nil
}

// freePort is one that the server comes back to after each end. It is below the range from which
// the system takes ports for connections: one that tries to reach a server that is down would
// else be given its port now and then, and speak with itself.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 30000+mathrand.IntN(2500)))
		if err == nil {
			assert.NilError(t, l.Close())
			return l.Addr().(*net.TCPAddr).Port
		}
	}
	t.Fatal("no free port")
	return 0
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(program string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.programs, program), arguments...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user, Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return cmd
}

// Up starts the server again after Kill or Down, and returns when it answers.
func (s *Server) Up() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	assert.NilError(s.t, err)
	defer log.Close()
	arguments := []string{"-D", s.data(), "-p", strconv.Itoa(s.port)}
	for _, setting := range s.settings {
		arguments = append(arguments, "-c", setting)
	}
	cmd := s.command("postgres", arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	assert.NilError(s.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	s.mu.Lock()
	s.postmaster, s.ended = cmd, ended
	s.mu.Unlock()
	poll.WaitOn(s.t, func(poll.LogT) poll.Result {
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return poll.Error(fmt.Errorf("the server ended: %s", text))
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, s.url("postgres"))
		if err != nil {
			return poll.Continue("%v", err)
		}
		_ = conn.Close(ctx)
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// Signal sends a signal to the server and to all of its processes, such as SIGSTOP.
func (s *Server) Signal(signal syscall.Signal) {
	s.t.Helper()
	for _, p := range s.processes() {
		_ = syscall.Kill(p.PID, signal) // one that has just ended is no matter
	}
}

// processes are those of the server: each leads a session of its own.
func (s *Server) processes() []processtable.Process {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := processtable.Read()
	assert.NilError(s.t, err)
	return processtable.Below(all, func(p processtable.Process) bool { return p.PID == s.postmaster.Process.Pid })
}

// Down ends the server in order, which cuts off who is connected.
func (s *Server) Down() { s.end(syscall.SIGINT) }

// Kill ends the server as a loss of power does.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

func (s *Server) end(signal syscall.Signal) {
	s.mu.Lock()
	cmd, ended := s.postmaster, s.ended
	s.mu.Unlock()
	select {
	case <-ended:
		return
	default:
	}
	if signal != syscall.SIGKILL {
		_ = cmd.Process.Signal(signal)
		<-ended
		return
	}
	// All of it at once. Those that it starts at this moment end by themselves, and the next
	// start refuses as long as they live.
	left := s.processes()
	for _, p := range left {
		_ = syscall.Kill(p.PID, signal)
	}
	<-ended
	poll.WaitOn(s.t, func(poll.LogT) poll.Result {
		for _, p := range left {
			if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID)); err == nil && !strings.Contains(string(state), ") Z ") {
				return poll.Continue("process %d lives", p.PID)
			}
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// Database makes an empty database and returns its URL.
func (s *Server) Database() string {
	s.t.Helper()
	s.mu.Lock()
	s.databases++
	name := "broker" + strconv.Itoa(s.databases)
	s.mu.Unlock()
	s.Exec("postgres", "CREATE DATABASE "+name)
	return s.url(name)
}

// Exec runs a statement in a database of the server.
func (s *Server) Exec(database, statement string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	address := database
	if !strings.Contains(database, "://") {
		address = s.url(database)
	}
	conn, err := pgx.Connect(ctx, address)
	assert.NilError(s.t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	assert.NilError(s.t, err)
}

// Address is where the server listens.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *Server) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("broker"), Host: s.Address(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// BesideVariable has the address of the server beside which .ci/with-postgres runs tests.
const BesideVariable = "SANDBOX_BROKER_TEST_POSTGRES"

// Beside makes a database at the server beside which .ci/with-postgres runs the tests, and
// returns its URL; "" where there is none.
func Beside(t testing.TB) string {
	t.Helper()
	server := os.Getenv(BesideVariable)
	if server == "" {
		return ""
	}
	name := "test_" + strings.ToLower(rand.Text())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	assert.NilError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	assert.NilError(t, err)
	u, err := url.Parse(server)
	assert.NilError(t, err)
	u.Path = "/" + name
	return u.String()
}
