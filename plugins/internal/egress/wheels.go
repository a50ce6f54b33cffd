package egress

import (
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"sync"
	"time"
)

// WheelHost is the name by which installers find a directory of wheels. The
// domain is one that never exists.
const WheelHost = "wheels.sandbox-broker.invalid"

var wheel = regexp.MustCompile(`^[A-Za-z0-9_.+!-]+\.whl$`)

// Wheels serves the wheels of a directory, and nothing else of it. It is a Dialer
// for its own host, and must be closed.
type Wheels struct {
	dir    string
	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	served sync.WaitGroup
}

// ServeWheels serves a directory.
func ServeWheels(dir string) (*Wheels, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if err := root.Close(); err != nil {
		return nil, err
	}
	w := &Wheels{dir: dir, conns: make(chan net.Conn), closed: make(chan struct{})}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	w.served.Go(func() { _ = w.server.Serve(wheelListener{w}) })
	return w, nil
}

// DialContext implements Dialer.
func (w *Wheels) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case w.conns <- ours:
		return theirs, nil
	case <-w.closed:
	case <-ctx.Done():
	}
	return nil, errors.New("the wheels are not served any more")
}

// ServeHTTP implements http.Handler.
func (w *Wheels) ServeHTTP(answer http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(answer, "wheels can be got", http.StatusMethodNotAllowed)
		return
	}
	// It may be another directory of that name than before: those who fill it put a
	// new one in its place.
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		http.Error(answer, "the directory cannot be read", http.StatusInternalServerError)
		return
	}
	defer root.Close()
	if r.URL.Path == "/" {
		list(answer, root)
		return
	}
	name := r.URL.Path[1:]
	info, err := root.Stat(name)
	if !wheel.MatchString(name) || err != nil || !info.Mode().IsRegular() {
		http.NotFound(answer, r)
		return
	}
	http.ServeFileFS(answer, r, root.FS(), name)
}

func list(answer http.ResponseWriter, root *os.Root) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		http.Error(answer, "the directory cannot be read", http.StatusInternalServerError)
		return
	}
	answer.Header().Set("Content-Type", "text/html; charset=utf-8")
	for _, entry := range entries {
		if name := entry.Name(); wheel.MatchString(name) {
			_, _ = fmt.Fprintf(answer, "<a href=\"%s\">%s</a>\n", url.PathEscape(name), html.EscapeString(name))
		}
	}
}

// Close ends the service, and every connection to it.
func (w *Wheels) Close() error {
	err := w.server.Close()
	w.served.Wait()
	return err
}

// wheelListener is where the server finds the connections that are dialled.
type wheelListener struct{ wheels *Wheels }

// Accept implements net.Listener.
func (l wheelListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.wheels.conns:
		return conn, nil
	case <-l.wheels.closed:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (wheelListener) Addr() net.Addr { return &net.UnixAddr{Name: WheelHost} }

// Close implements net.Listener.
func (l wheelListener) Close() error {
	l.wheels.once.Do(func() { close(l.wheels.closed) })
	return nil
}
