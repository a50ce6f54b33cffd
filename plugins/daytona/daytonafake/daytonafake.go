// Package daytonafake is a Daytona on this machine: the API, the proxy before the toolbox
// of each sandbox and, for each port that somebody previews, a server on a port of the
// loopback. Code that is sent to it really runs, in namespaces that bubblewrap makes, with
// the interpreters below /usr: a sandbox has its own files, processes and loopback. Its
// files are kept as long as it is, its processes until it stops.
//
// It is written from what was seen of the original and from what is published of it.
// Requests must be what is published: members, types, ranges, parameters. Where the
// original is not known to mind, the fake does. On request it lies: see Fault.
//
// A state on the way to another one lasts until it was looked at, once unless Linger says
// more, by a request for the sandbox or for a list. Clocks stand on Forward alone: nothing
// that a sandbox does when its time is over needs a wait.
//
// A test binary that uses it calls Main first in its TestMain, for the sandboxes are
// started from the same executable.
package daytonafake

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake/toolbox"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/fault"
)

// Main is that of the toolbox.
func Main() { toolbox.Main() }

// Fault makes the service lie. Its paths are those of requests, such as
// "POST /api/sandbox" and "POST /toolbox/*/process/execute"; those of previews begin with
// /preview/ID/PORT.
type Fault = fault.Fault

// Bytes is for Fault.CutAt.
func Bytes(n int) *int { return &n }

// DefaultAPIKey has the form of the real ones.
const DefaultAPIKey = "dtn_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// DefaultSnapshot is there from the start, with 1 CPU, 1 GiB of memory and 3 of disk.
const DefaultSnapshot = "daytonaio/sandbox:0.8.0"

// Options of a server. The zero value is the service, with the daemon of v0.190.0.
type Options struct {
	// APIKey that is asked for; DefaultAPIKey if empty.
	APIKey string
	// Frozen is the API of v0.190.0, without ttl and autopause.
	Frozen bool
	// NewDaemon has what came to the toolbox after v0.190.0: its metrics, the upload of
	// one file, and terminals that are created and connected to at once.
	NewDaemon bool
	// Class of the sandboxes; "container" if empty. Only those of another can pause.
	Class string
	// Warm answers to a creation with a sandbox that has started.
	Warm bool
	// MaxCPU is the quota of the organization, of which each sandbox that has started
	// takes its CPUs, one as a rule; 0 for none.
	MaxCPU int
	// PageSize is the most that a page of a list has, whatever is asked for.
	PageSize int
	// ShowDestroyed answers requests for a sandbox that is gone with the sandbox, in the
	// state destroyed, and not 404.
	ShowDestroyed bool
	// User has everything run as an ordinary user, who may not make directories at the
	// top. Sudo lets that user do so by sudo, without a password.
	User, Sudo bool
}

// Server is a running fake.
type Server struct {
	// URL is where it listens, APIURL that of the API there.
	URL, APIURL string

	options  Options
	dir      string
	faults   fault.Set
	serving  sync.WaitGroup
	server   *http.Server
	previews previews

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	snapshots map[string]*snapshot
	built     map[string]bool // by Dockerfile
	made      int
	unlisted  int
	linger    map[string]int
	failures  []*creationFailure
	ahead     time.Duration
	closed    bool
}

type creationFailure struct {
	times         int
	state, reason string
}

// Start starts a fake. It needs bubblewrap.
func Start(options Options) (*Server, error) {
	options.APIKey = cmp.Or(options.APIKey, DefaultAPIKey)
	options.Class = cmp.Or(options.Class, containerClass)
	options.PageSize = cmp.Or(options.PageSize, maxPage)
	if _, err := exec.LookPath("bwrap"); err != nil {
		return nil, fmt.Errorf("bubblewrap is not installed (Debian: apt install bubblewrap): %w", err)
	}
	dir, err := os.MkdirTemp("", "daytonafake") // sockets have short paths
	if err != nil {
		return nil, err
	}
	s := &Server{
		options: options, dir: dir, sandboxes: map[string]*sandbox{}, snapshots: map[string]*snapshot{}, built: map[string]bool{}, linger: map[string]int{},
	}
	s.previews.all = map[string]*preview{}
	s.Snapshot(DefaultSnapshot, "active")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.URL = "http://" + listener.Addr().String()
	s.APIURL = s.URL + "/api"
	mux := http.NewServeMux()
	mux.Handle("/api/", s.api())
	mux.Handle("/toolbox/{id}/", http.HandlerFunc(s.toolbox))
	mux.HandleFunc("GET "+loginPath, login)
	s.server = s.serve(listener, "", mux)
	return s, nil
}

// serve serves, by the faults, until Close.
func (s *Server) serve(l net.Listener, prefix string, h http.Handler) *http.Server {
	server := &http.Server{Handler: s.faults.Around(prefix, h), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.serving.Go(func() { _ = server.Serve(l) })
	return server
}

// Close ends every sandbox and the server.
func (s *Server) Close() error {
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	s.previews.close("")
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.sandboxes))
	s.mu.Unlock()
	for _, sb := range all {
		sb.operation.Lock() // what has begun is finished
		s.halt(sb)
		err = errors.Join(err, sb.erase())
		sb.operation.Unlock()
	}
	s.serving.Wait()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Inject makes the server lie, from now on.
func (s *Server) Inject(f Fault) { s.faults.Add(f) }

// Throttle answers the next requests as the limiter of rates does.
func (s *Server) Throttle(on string, times, retryAfter int) {
	body := fmt.Sprintf(`{"path":"","timestamp":"2026-01-01T00:00:00.000Z","statusCode":429,"error":"Too Many Requests","message":"Rate limit exceeded","retryAfter":%d}`, retryAfter)
	s.Inject(Fault{On: on, Times: times, Status: http.StatusTooManyRequests, Body: body, Header: map[string]string{
		"Content-Type": "application/json", "Retry-After": fmt.Sprint(retryAfter),
		"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": fmt.Sprint(retryAfter),
	}})
}

// Honest takes back what was injected.
func (s *Server) Honest() { s.faults.Clear() }

// Hanging is how many requests wait because of a Fault.Hang.
func (s *Server) Hanging() int { return s.faults.Hanging() }

// Calls counts requests by "METHOD /path", where * stands for a part of the path, with
// those that a fault met.
func (s *Server) Calls(on string) int { return s.faults.Seen(on) }

// Break takes the whole service away: no request is answered until it is repaired.
func (s *Server) Break() (repair func()) {
	s.faults.Break(true)
	return func() { s.faults.Break(false) }
}

// HideFromLists leaves each sandbox that is made from now on out of the first lists after
// its creation.
func (s *Server) HideFromLists(lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlisted = lists
}

// Linger makes a state on the way to another one, such as creating or destroying, last
// so many looks from now on; Forever for ever.
func (s *Server) Linger(state string, looks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.linger[state] = looks
}

// Forever is for Linger.
const Forever = -1

// FailCreations makes the next creations end in a state, such as error or build_failed,
// with a reason.
func (s *Server) FailCreations(times int, state, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, &creationFailure{times, state, reason})
}

// Fail puts a sandbox into the state error, from which it can be recovered or not.
func (s *Server) Fail(id, reason string, recoverable bool) error {
	sb, err := s.known(id)
	if err != nil {
		return err
	}
	sb.operation.Lock()
	defer sb.operation.Unlock()
	s.halt(sb)
	s.mu.Lock()
	defer s.mu.Unlock()
	sb.state, sb.way, sb.reason, sb.recoverable = stateError, nil, reason, recoverable
	return nil
}

// End stops a sandbox, as its owner could, or what stands for its clock.
func (s *Server) End(id string) error {
	sb, err := s.known(id)
	if err != nil {
		return err
	}
	sb.operation.Lock()
	defer sb.operation.Unlock()
	s.stopNow(sb)
	return nil
}

// Vanish takes a sandbox away without a trace.
func (s *Server) Vanish(id string) error {
	sb, err := s.known(id)
	if err != nil {
		return err
	}
	sb.operation.Lock()
	defer sb.operation.Unlock()
	s.destroyNow(sb)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, sb.id)
	return nil
}

// KillForMemory makes the kernel of a sandbox say that it has killed one more process for
// want of memory. It kills none: that is for the code.
func (s *Server) KillForMemory(id string) error {
	sb, err := s.known(id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb.kills++
	return sb.tellKills()
}

// Forward moves the clocks of all sandboxes on.
func (s *Server) Forward(d time.Duration) {
	s.mu.Lock()
	s.ahead += d
	s.mu.Unlock()
	s.sweep()
}

// Sandboxes lists the IDs of those that there are, in whatever state.
func (s *Server) Sandboxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, sb := range s.sandboxes {
		if sb.state != stateDestroyed {
			ids = append(ids, id)
		}
	}
	return ids
}

// State is that of a sandbox behind all that is shown; empty if there is none.
func (s *Server) State(id string) string {
	sb, err := s.known(id)
	if err != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return sb.state
}

// Labels are those of a sandbox.
func (s *Server) Labels(id string) map[string]string {
	sb, err := s.known(id)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(sb.labels)
}

// Created is how many sandboxes were made so far.
func (s *Server) Created() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// Snapshot adds one in a state, such as active, building or inactive.
func (s *Server) Snapshot(name, state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[name] = &snapshot{id: newID(), name: name, state: state, size: usual, created: s.now()}
}

// now needs s.mu.
func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

func (s *Server) known(id string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sb := s.sandboxes[id]; sb != nil {
		return sb, nil
	}
	return nil, errors.New("no such sandbox")
}

func (s *Server) rootOf(id string) string { return filepath.Join(s.dir, id) }

// newID has the form of a UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func newToken() string { return strings.ToLower(rand.Text()) }
