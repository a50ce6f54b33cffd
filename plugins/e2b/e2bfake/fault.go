package e2bfake

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
)

// Fault is a lie. Of its kinds (Status, Reset, Hang, CutAt) one is set.
type Fault struct {
	// On selects requests by "METHOD /path", as path.Match does: * stands for a part
	// of the path.
	On string
	// Times it happens; 0 for every time.
	Times int
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

// Bytes is for Fault.CutAt.
func Bytes(n int) *int { return &n }

// faults are those in force.
type faults struct {
	mu     sync.Mutex
	all    []*Fault
	broken bool

	hanging atomic.Int64
}

func (f *faults) add(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, &fault)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = nil
}

// next takes the fault for a request, if there is one.
func (f *faults) next(request string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.all {
		if ok, err := path.Match(fault.On, request); err != nil || !ok {
			continue
		}
		if fault.Times == 1 {
			f.all = append(f.all[:i:i], f.all[i+1:]...)
		} else if fault.Times > 1 {
			fault.Times--
		}
		taken := *fault
		return &taken
	}
	return nil
}

// setBroken makes every request fail.
func (f *faults) setBroken(broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

func (f *faults) isBroken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

func (f *faults) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.isBroken() {
			reset(w)
			return
		}
		fault := f.next(r.Method + " " + r.URL.Path)
		if fault == nil {
			next.ServeHTTP(w, r)
			return
		}
		if fault.CutAt != nil {
			next.ServeHTTP(&cutter{ResponseWriter: w, left: *fault.CutAt}, r)
			return
		}
		if fault.After {
			next.ServeHTTP(&unheard{header: http.Header{}}, r)
		}
		switch {
		case fault.Hang:
			_, _ = io.Copy(io.Discard, r.Body) // only then it shows that the client goes
			f.hanging.Add(1)
			<-r.Context().Done()
			f.hanging.Add(-1)
		case fault.Reset:
			reset(w)
		default:
			for name, value := range fault.Header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(fault.Status)
			_, _ = fmt.Fprint(w, fault.Body)
		}
	})
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
