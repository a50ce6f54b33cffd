// Package e2bfake is a cloud that speaks the protocol of E2B, on this machine: the
// control API, the proxy in front of sandboxes, and in each sandbox envd and the code
// interpreter (package agent). Code that is sent to it really runs, with the
// interpreters below /usr, in namespaces that bubblewrap makes: a sandbox has its own
// files, processes and loopback, and nothing of it is left when it ends.
//
// It is written from what was seen of the original, and keeps to it where that is
// inconvenient: it speaks TLS and HTTP/2, tells sandboxes apart by the names of hosts,
// knows exact paths and methods, resets connections at a pause, has kernels that get
// their environment unescaped and die in silence, and old versions of envd. On request it
// lies (Fault): it loses answers of calls that had an effect, cuts streams, refuses, is
// late.
//
// A snapshot has the files of a sandbox as they were. Of memory it has an imitation: the cells
// of a kernel are run again, but for those that failed, and what runs is started again.
//
// Requests must be what is published: members that are needed, types, ranges, forms, values
// of enumerations. Where the original is not known to mind, the fake does: at parameters and
// at members of messages to envd and the code interpreter that are not known. Those of the
// control API it ignores as the original does, and takes them down (Unread).
//
// A test binary that uses it calls Main first in its TestMain, for the sandboxes are
// started from the same executable.
package e2bfake

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/agent"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/fault"
)

// Main is agent.Main, and makes this process trust the certificates of the fakes.
func Main() {
	agent.Main()
	if err := trust(); err != nil {
		fmt.Fprintln(os.Stderr, "e2bfake:", err)
		os.Exit(1)
	}
}

// Routes says which of the two generations of routes a server has.
type Routes int

// The values of Routes.
const (
	// AllRoutes are both.
	AllRoutes Routes = iota
	// OldRoutes are those without /v2.
	OldRoutes
	// NewRoutes are those with /v2.
	NewRoutes
)

// Options of a server. The zero value is a good one.
type Options struct {
	// APIKey that is asked for; DefaultAPIKey if empty.
	APIKey string
	Routes Routes
	// MaxSandboxes that may run at once; 0 for no limit.
	MaxSandboxes int
	// EnvdVersion that sandboxes have, the newest if empty; they lack what came later.
	EnvdVersion string
	// RestartAtSnapshot resets connections into a sandbox of which a snapshot was made, as the
	// original does where it starts the machine afresh for it.
	RestartAtSnapshot bool
	// MaxTimeout that a sandbox may be made with, in seconds; 0 for a day.
	MaxTimeout int
}

// idleTimeout is how long connections without a request stay, as at the edge of the
// original.
const idleTimeout = 610 * time.Second

// DefaultAPIKey has the form of the real ones.
const DefaultAPIKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// The templates that there are. The first has the code interpreter.
const (
	InterpreterTemplate = "code-interpreter-v1"
	BaseTemplate        = "base"
)

// Server is a running fake.
type Server struct {
	// Domain below which its names are, for who dials by DialContext: the API is at
	// api.Domain, and a port of a sandbox at PORT-ID.Domain.
	Domain string
	// APIURL and SandboxURL are where it listens.
	APIURL, SandboxURL string

	options Options
	dir     string
	servers []*http.Server
	serving sync.WaitGroup
	faults  fault.Set
	// creating are the creations in progress.
	creating sync.WaitGroup

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	// unlisted is how many lists a new sandbox is missing from.
	unlisted int
	// snapshots are in the order in which they were made; so many are left out of lists.
	snapshots         []*snapshot
	unlistedSnapshots int
	// created counts all sandboxes that were ever made.
	created int
	// unread are members of bodies that nobody reads.
	unread []string
}

// Start starts a fake. It needs bubblewrap.
func Start(options Options) (*Server, error) {
	if options.APIKey == "" {
		options.APIKey = DefaultAPIKey
	}
	if options.EnvdVersion == "" {
		options.EnvdVersion = newestEnvd
	}
	if options.MaxTimeout == 0 {
		options.MaxTimeout = 24 * 60 * 60
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		return nil, fmt.Errorf("bubblewrap is not installed (Debian: apt install bubblewrap): %w", err)
	}
	dir, err := os.MkdirTemp("", "e2bfake") // sockets have short paths
	if err != nil {
		return nil, err
	}
	s := &Server{options: options, dir: dir, sandboxes: map[string]*sandbox{}}
	s.Domain = strings.ToLower(rand.Text()) + topDomain
	signer, err := theAuthority()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	certificate, err := signer.issue(s.Domain)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for url, handler := range map[*string]http.Handler{&s.APIURL: s.control(), &s.SandboxURL: s.proxy()} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		*url = "https://" + listener.Addr().String()
		server := &http.Server{
			Handler: s.faults.Around("", handler), ReadHeaderTimeout: time.Minute, IdleTimeout: idleTimeout, ErrorLog: log.New(io.Discard, "", 0),
			// Like the edge of the original it prefers HTTP/2 wherever a client can.
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}},
		}
		s.servers = append(s.servers, server)
		s.serving.Go(func() { _ = server.ServeTLS(listener, "", "") })
	}
	names.Store(s.Domain, addresses{strings.TrimPrefix(s.APIURL, "https://"), strings.TrimPrefix(s.SandboxURL, "https://")})
	return s, nil
}

// Close ends every sandbox and the server.
func (s *Server) Close() error {
	var err error
	for _, server := range s.servers {
		err = errors.Join(err, server.Close())
	}
	s.serving.Wait()
	s.creating.Wait()
	s.mu.Lock()
	left := s.sandboxes
	s.sandboxes = map[string]*sandbox{}
	s.mu.Unlock()
	for _, sb := range left {
		sb.end()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Sandboxes lists the IDs of those that there are, paused ones too.
func (s *Server) Sandboxes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id := range s.sandboxes {
		ids = append(ids, id)
	}
	return ids
}

// Created is how many sandboxes were made so far.
func (s *Server) Created() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.created
}

// Inject makes the server lie, from now on.
func (s *Server) Inject(f Fault) { s.faults.Add(f) }

// Hanging is how many requests wait because of a Fault.Hang.
func (s *Server) Hanging() int { return s.faults.Hanging() }

// Honest takes back what was injected.
func (s *Server) Honest() { s.faults.Clear() }

// Break takes the whole service away: no request is answered until it is repaired.
func (s *Server) Break() (repair func()) {
	s.faults.Break(true)
	return func() { s.faults.Break(false) }
}

// HideFromLists leaves each sandbox that is made from now on out of the first lists
// after its creation.
func (s *Server) HideFromLists(lists int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlisted = lists
}

// Expire ends a sandbox as if its time were over.
func (s *Server) Expire(id string) { s.remove(id) }

// ReplaceToken makes the access token of a sandbox invalid; the control API has the
// new one.
func (s *Server) ReplaceToken(ctx context.Context, id string) error {
	s.mu.Lock()
	sb, ok := s.sandboxes[id]
	s.mu.Unlock()
	if !ok {
		return errors.New("no such sandbox")
	}
	return sb.replaceToken(ctx)
}

// KillForMemory makes the kernel of a sandbox say that it has killed one more process
// for want of memory. It kills none: that is for the code.
func (s *Server) KillForMemory(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, ok := s.sandboxes[id]
	if !ok {
		return errors.New("no such sandbox")
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.setKills(sb.kills + 1)
}

// Left is how long a sandbox has to live.
func (s *Server) Left(id string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, ok := s.sandboxes[id]
	if !ok {
		return 0
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return time.Until(sb.endAt)
}

// Shorten lets a sandbox live so long from now on.
func (s *Server) Shorten(id string, left time.Duration) {
	s.mu.Lock()
	sb, ok := s.sandboxes[id]
	s.mu.Unlock()
	if ok {
		sb.lives(left, func() { s.remove(id) })
	}
}

// remove takes a sandbox out and ends it.
func (s *Server) remove(id string) bool {
	s.mu.Lock()
	sb, ok := s.sandboxes[id]
	delete(s.sandboxes, id)
	s.mu.Unlock()
	if ok {
		sb.end()
	}
	return ok
}

func (s *Server) socketDir(id string) string { return filepath.Join(s.dir, id) }
