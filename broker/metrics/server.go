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
	http *http.Server
}

// NewServer returns a server that Serve starts and Shutdown ends.
func (m *Metrics) NewServer() *Server {
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, m.Handler())
	return &Server{
		http: &http.Server{
			Handler: mux, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
			IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		},
	}
}

// Serve answers on the listener until Shutdown, which closes it, or until somebody
// else does. There may be several at a time.
func (s *Server) Serve(listener net.Listener) error {
	if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// Shutdown stops serving, lets answers in progress finish while ctx lasts, and
// returns when nothing is left.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if err != nil {
		return fmt.Errorf("stop the metrics: %w", err)
	}
	return nil
}
