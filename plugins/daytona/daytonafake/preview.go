package daytonafake

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// preview is a server on a port of the loopback, which shows one port of a sandbox. The
// original tells them apart by the names of hosts, which not every client here can resolve.
type preview struct {
	sandbox, url, token string
	server              *http.Server
	expires             time.Time // of a signed one
}

type previews struct {
	mu  sync.Mutex
	all map[string]*preview // by the sandbox and the port, or by their token if signed
}

// close closes those of a sandbox, or all if it has no name.
func (p *previews) close(sandbox string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, one := range p.all {
		if sandbox == "" || one.sandbox == sandbox {
			_ = one.server.Close()
			delete(p.all, key)
		}
	}
}

const (
	tokenHeader    = "X-Daytona-Preview-Token"
	tokenParameter = "DAYTONA_SANDBOX_AUTH_KEY"
	warningHeader  = "X-Daytona-Skip-Preview-Warning"
	loginPath      = "/login"
)

// preview starts the server for a port, unless there is one.
func (s *Server) preview(r *http.Request, signed time.Duration) (*preview, int, error) {
	port, err := strconv.Atoi(r.PathValue("port"))
	if err != nil || port < 1 || port > 65535 {
		return nil, 0, bad("Invalid port")
	}
	s.mu.Lock()
	sb, err := s.find(r)
	now := s.now()
	s.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	s.previews.mu.Lock()
	defer s.previews.mu.Unlock()
	one := &preview{sandbox: sb.id, token: sb.token}
	key := fmt.Sprintf("%s:%d", sb.id, port)
	if signed > 0 {
		one.token, one.expires = newToken(), now.Add(signed)
		key = one.token
	}
	if old := s.previews.all[key]; old != nil {
		return old, port, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	one.url = "http://" + listener.Addr().String()
	one.server = s.serve(listener, fmt.Sprintf("/preview/%s/%d", sb.id, port), s.previewed(sb, port, one))
	s.previews.all[key] = one
	return one, port, nil
}

func (s calls) previewURL(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	one, _, err := s.preview(r, 0)
	if err != nil {
		return nil, err
	}
	return map[string]any{"sandboxId": one.sandbox, "url": one.url, "token": one.token}, nil
}

func (s calls) signedPreviewURL(r *http.Request) (any, error) {
	query, err := plain(r, "expiresInSeconds")
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.Atoi(cmp.Or(query.Get("expiresInSeconds"), "60"))
	if err != nil || seconds < 1 || seconds > 24*60*60 {
		return nil, bad("expiresInSeconds must be between 1 second and 24 hours")
	}
	one, port, err := s.preview(r, time.Duration(seconds)*time.Second)
	if err != nil {
		return nil, err
	}
	return map[string]any{"sandboxId": one.sandbox, "port": port, "token": one.token, "url": one.url}, nil
}

func (s calls) expirePreview(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	s.previews.mu.Lock()
	defer s.previews.mu.Unlock()
	one := s.previews.all[r.PathValue("token")]
	if one == nil || one.expires.IsZero() {
		return nil, &problem{http.StatusNotFound, "Signed preview URL not found"}
	}
	one.expires = time.Unix(1, 0)
	return nil, nil
}

// previewed serves what a port of the sandbox does, to who may see it.
func (s *Server) previewed(sb *sandbox, port int, p *preview) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.sweep()
		s.previews.mu.Lock()
		expires := p.expires
		s.previews.mu.Unlock()
		query := r.URL.Query()
		token := cmp.Or(r.Header.Get(tokenHeader), query.Get(tokenParameter))
		s.mu.Lock()
		runs := sb.state == stateStarted && len(sb.way) == 0 && sb.jail != nil
		j, public, late := sb.jail, sb.public, !expires.IsZero() && s.now().After(expires)
		if runs && r.Header.Get("X-Daytona-Skip-Last-Activity-Update") != "true" {
			sb.active = s.now()
		}
		s.mu.Unlock()
		switch {
		case late, token != "" && token != p.token && expires.IsZero():
			http.Error(w, "unauthorized: invalid preview token", http.StatusUnauthorized)
			return
		case !public && token == "" && expires.IsZero():
			http.Redirect(w, r, s.URL+loginPath, http.StatusTemporaryRedirect)
			return
		case !runs:
			http.Error(w, "sandbox is not started", http.StatusBadGateway)
			return
		case r.Header.Get(warningHeader) != "true":
			html(w, "You are about to visit a preview of a sandbox.")
			return
		}
		query.Del(tokenParameter)
		if strings.Contains(r.URL.RawQuery, tokenParameter) {
			r.URL.RawQuery = query.Encode()
		}
		for _, name := range []string{tokenHeader, warningHeader} {
			r.Header.Del(name)
		}
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return tell(ctx, j, strconv.Itoa(port))
		}}
		reach(transport, "", func(w http.ResponseWriter) {
			html(w, "", http.StatusBadGateway)
		}).ServeHTTP(w, r)
	})
}

// html answers a page, which is for people.
func html(w http.ResponseWriter, text string, status ...int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	for _, code := range status {
		w.WriteHeader(code)
	}
	fmt.Fprintf(w, "<!DOCTYPE html><title>Preview</title><p>%s</p>\n", text)
}

// login is where whoever has no token ends up.
func login(w http.ResponseWriter, _ *http.Request) { html(w, "Log in") }
