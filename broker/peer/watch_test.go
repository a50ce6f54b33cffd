package peer_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/peer"
	"github.com/sandbox-broker/sandbox-broker/config/certtest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// said is what a directory says of a peer.
type said struct {
	epoch int64
	alive bool
	err   error
}

// registrar is a directory that says the same of every peer, until it is told otherwise.
type registrar struct {
	mu    sync.Mutex
	now   said
	looks int
}

func (r *registrar) Lives(context.Context, string) (int64, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looks++
	return r.now.epoch, r.now.alive, r.now.err
}

// turns has it say something from now on.
func (r *registrar) turns(now said) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
}

// says has it say something, and returns when somebody has heard it a few times.
func (r *registrar) says(t *testing.T, now said) {
	t.Helper()
	r.turns(now)
	r.mu.Lock()
	want := r.looks + 3
	r.mu.Unlock()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.looks < want {
			return poll.Continue("%d looks of %d", r.looks, want)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute), poll.WithDelay(time.Millisecond))
}

// silent is a peer that takes requests, answers with what it is told to, and then says nothing
// until it is closed.
type silent struct {
	peer.Peer
	forwarder *peer.Forwarder
	living    *registrar
	arrived   chan struct{} // has one for each request
}

func beside(t *testing.T, begins string) *silent {
	t.Helper()
	authority := certtest.NewAuthority(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{authority.Issue("owner").TLS(t)}})
	assert.NilError(t, err)
	s := &silent{Peer: peer.Peer{ID: "owner", Address: listener.Addr().String()}, living: &registrar{now: said{epoch: 1, alive: true}}, arrived: make(chan struct{}, 100)}
	s.forwarder = peer.NewForwarder("second", s.living)
	s.forwarder.Hasten(5*time.Millisecond, time.Hour)
	s.forwarder.SetIdentity(&peer.Identity{Certificate: authority.Issue("second").TLS(t), Authorities: authority.Pool()})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { s.serve(conn, begins) })
		}
	})
	t.Cleanup(func() {
		assert.Check(t, listener.Close())
		s.forwarder.Close()
		group.Wait()
	})
	return s
}

func (s *silent) serve(conn net.Conn, begins string) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	if _, err := http.ReadRequest(reader); err != nil {
		return
	}
	_, _ = io.WriteString(conn, begins)
	s.arrived <- struct{}{}
	_, _ = io.Copy(io.Discard, reader)
}

// ask passes a call on, and returns what becomes of it.
func (s *silent) ask(ctx context.Context) <-chan error {
	w, ended := httptest.NewRecorder(), make(chan error, 1)
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	r = r.WithContext(context.WithValue(ctx, http.ServerContextKey, &http.Server{}))
	go func() {
		ended <- s.forwarder.Forward(w, r, s.Peer, peer.Call{Target: "/x", RequestID: "r", Hop: peer.Hop{Remote: "a:1", Scheme: "http"}})
	}()
	return ended
}

func assertSilent(t *testing.T, err error) {
	t.Helper()
	coded, ok := errors.AsType[*sdk.Error](err)
	assert.Assert(t, ok, "%v", err)
	assert.Check(t, is.Equal(coded.Code, sdk.CodeUnavailable))
	assert.Check(t, is.Contains(coded.Message, "does not answer any more"))
	assert.Check(t, coded.RetryAfter > 0)
}

func goesOn(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		t.Fatalf("it has ended: %v", err)
	default:
	}
}

func TestACallAtAPeerThatStandsStillEndsWithIt(t *testing.T) {
	for name, begins := range map[string]string{
		"before it answers": "",
		"in its answer":     "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"in its events":     "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nid: 1\n\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := beside(t, begins)
			first := s.ask(t.Context())
			second := s.ask(t.Context())
			<-s.arrived
			<-s.arrived
			s.living.says(t, said{epoch: 1, alive: true})
			goesOn(t, first)
			s.living.turns(said{epoch: 1})
			assertSilent(t, <-first)
			assertSilent(t, <-second)
			assert.Equal(t, s.forwarder.Watched(), 0)
		})
	}
}

func TestACallEndsWithTheProcessThatHadIt(t *testing.T) {
	s := beside(t, "")
	ended := s.ask(t.Context())
	<-s.arrived
	s.living.says(t, said{epoch: 1, alive: true})
	s.living.turns(said{epoch: 2, alive: true})
	assertSilent(t, <-ended)
	later := s.ask(t.Context())
	<-s.arrived
	s.living.says(t, said{epoch: 2, alive: true})
	goesOn(t, later)
	s.living.turns(said{})
	assertSilent(t, <-later)
}

// While the directory is away nobody can say that it lives, and just after that some have not
// yet.
func TestACallGoesOnWhileNobodyKnows(t *testing.T) {
	s := beside(t, "")
	ctx, leave := context.WithCancel(t.Context())
	ended := s.ask(ctx)
	<-s.arrived
	s.living.says(t, said{epoch: 1, alive: true})
	s.living.says(t, said{err: errors.New("the database is away")})
	s.living.says(t, said{epoch: 1})
	goesOn(t, ended)
	s.living.says(t, said{epoch: 1, alive: true})
	goesOn(t, ended)
	leave()
	assert.ErrorIs(t, <-ended, context.Canceled)
	assert.Equal(t, s.forwarder.Watched(), 0)
}

func TestOneLooksAfterAllCallsAtAPeer(t *testing.T) {
	s := beside(t, "")
	const calls = 50
	var all []<-chan error
	for range calls {
		ended := s.ask(t.Context())
		all = append(all, ended)
	}
	for range calls {
		<-s.arrived
	}
	assert.Equal(t, s.forwarder.Watched(), 1)
	s.living.says(t, said{epoch: 1, alive: true})
	s.living.turns(said{epoch: 1})
	for _, ended := range all {
		assertSilent(t, <-ended)
	}
}
