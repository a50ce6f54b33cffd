// Package fault makes a fake of a service lie: it loses answers of calls that had an
// effect, refuses, cuts streams, hangs, is not there. What the fakes serve goes through
// Set.Around.
package fault

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"sync"
)

// Fault is a lie. Of its kinds (Status, Reset, Hang, CutAt) one is set.
type Fault struct {
	// On selects requests by "METHOD /path", as path.Match does: * stands for a part
	// of the path.
	On string
	// Times it happens; 0 for every time. The first Skip requests are spared.
	Times, Skip int
	// After lets the request have its effect first.
	After bool
	// Status, Header and Body are an answer.
	Status int
	Header map[string]string
	Body   string
	// Reset closes the connection without an answer.
	Reset bool
	// Hang does not answer as long as the client waits.
	Hang bool
	// CutAt closes the connection after so many bytes of the answer's body.
	CutAt *int
}

// Set are the faults in force, and what they saw. The zero value has none.
type Set struct {
	mu      sync.Mutex
	all     []*Fault
	broken  bool
	hanging int
	seen    map[string]int
}

// Add puts one more in force, behind those that are there.
func (s *Set) Add(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, &f)
}

// Clear takes all back.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = nil
}

// Break makes every request fail, or none any more.
func (s *Set) Break(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// Hanging is how many requests wait because of a Fault.Hang.
func (s *Set) Hanging() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hanging
}

// Seen counts the requests so far that On would select, with those that a fault met.
func (s *Set) Seen(on string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for request, times := range s.seen {
		if ok, err := path.Match(on, request); err == nil && ok {
			n += times
		}
	}
	return n
}

// take counts a request, and takes the fault for it, if there is one.
func (s *Set) take(request string) (fault *Fault, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	s.seen[request]++
	if s.broken {
		return nil, true
	}
	for i, f := range s.all {
		if ok, err := path.Match(f.On, request); err != nil || !ok {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times == 1 {
			s.all = append(s.all[:i:i], s.all[i+1:]...)
		} else if f.Times > 1 {
			f.Times--
		}
		taken := *f
		return &taken, false
	}
	return nil, false
}

func (s *Set) hangs(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging += more
}

// Around serves by next, except where a fault is in force. Requests are told apart by
// their method and prefix+path.
func (s *Set) Around(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, broken := s.take(r.Method + " " + prefix + r.URL.Path)
		switch {
		case broken:
			reset(w)
		case f == nil:
			next.ServeHTTP(w, r)
		case f.CutAt != nil:
			next.ServeHTTP(&cutter{ResponseWriter: w, left: *f.CutAt}, r)
		default:
			if f.After {
				next.ServeHTTP(&unheard{header: http.Header{}}, r)
			}
			s.lie(w, r, f)
		}
	})
}

func (s *Set) lie(w http.ResponseWriter, r *http.Request, f *Fault) {
	switch {
	case f.Hang:
		_, _ = io.Copy(io.Discard, r.Body) // only then it shows that the client goes
		s.hangs(1)
		<-r.Context().Done()
		s.hangs(-1)
	case f.Reset:
		reset(w)
	default:
		for name, value := range f.Header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(f.Status)
		_, _ = fmt.Fprint(w, f.Body)
	}
}

// reset ends a connection as a crash would.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	conn.Close()
}

// unheard is where an answer goes that nobody is to get.
type unheard struct{ header http.Header }

func (u *unheard) Header() http.Header         { return u.header }
func (u *unheard) Write(p []byte) (int, error) { return len(p), nil }
func (u *unheard) WriteHeader(int)             {}
func (u *unheard) Flush()                      {}

// cutter ends the connection within the body.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }
