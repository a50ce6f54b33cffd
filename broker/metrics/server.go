package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Path is where the metrics are.
const Path = "/metrics"

// Bounds on a scraper.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 5 * time.Minute // longer than the usual time between two looks
	maxHeaders   = 16 << 10
)

// Server serves the metrics on a listener of their own.
type Server struct {
	http   *http.Server
	served chan error
}

// Serve begins to serve on the listener, which it takes over. The caller owes a
// Shutdown.
func (m *Metrics) Serve(listener net.Listener) *Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, m.Handler())
	s := &Server{
		http: &http.Server{
			Handler: mux, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
			IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		},
		served: make(chan error, 1),
	}
	go func() { s.served <- s.http.Serve(listener) }()
	return s
}

// Shutdown stops serving, lets answers in progress finish while ctx lasts, and
// returns when nothing is left.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
