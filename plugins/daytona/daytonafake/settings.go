package daytonafake

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// set changes a sandbox that has not ended.
func (s *Server) set(r *http.Request, do func(*sandbox)) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.find(r)
	if err != nil {
		return nil, err
	}
	do(sb)
	return s.object(sb, sb.shown()), nil
}

func (s calls) setLabels(r *http.Request) (any, error) {
	var body struct {
		Labels map[string]string `json:"labels"`
	}
	if err := read(r, shape.Object{Needed: map[string]shape.Shape{"labels": texts}}, &body); err != nil {
		return nil, err
	}
	if _, err := s.set(r, func(sb *sandbox) { sb.labels = body.Labels }); err != nil {
		return nil, err
	}
	return body, nil
}

func (s calls) setNetwork(r *http.Request) (any, error) {
	var given network
	if err := read(r, shape.Object{Optional: limits}, &given); err != nil {
		return nil, err
	}
	if text := given.problem(); text != "" {
		return nil, bad(text)
	}
	return s.set(r, func(sb *sandbox) { sb.network = given })
}

func (s calls) setPublic(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	public, err := strconv.ParseBool(r.PathValue("public"))
	if err != nil {
		return nil, bad("isPublic must be a boolean")
	}
	return s.set(r, func(sb *sandbox) { sb.public = public })
}

// interval serves one of the intervals, in minutes.
func (s calls) interval(of func(*sandbox) *int) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if _, err := plain(r); err != nil {
			return nil, err
		}
		least, probe := 0, &sandbox{}
		if of(probe) == &probe.autoDelete {
			least = -1
		}
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil || n < least {
			return nil, bad("the interval must be a whole number of minutes")
		}
		if of(probe) == &probe.autoPause && n > 0 && s.options.Class == containerClass {
			return nil, bad("Sandboxes of this class cannot be paused")
		}
		return s.set(r, func(sb *sandbox) {
			*of(sb) = n
			if n > 0 { // these exclude each other
				switch of(sb) {
				case &sb.autoPause:
					sb.autoStop = 0
				case &sb.autoStop:
					sb.autoPause = 0
				}
			}
		})
	}
}

// keepAlive takes an object too, of which the SDK sends an empty one.
func (s calls) keepAlive(r *http.Request) (any, error) {
	body := bufio.NewReader(r.Body)
	r.Body = io.NopCloser(body)
	if _, err := body.Peek(1); err == nil {
		if err := read(r, shape.Object{Optional: map[string]shape.Shape{"activityType": shape.Text{}}}, &struct{}{}); err != nil {
			return nil, err
		}
	}
	if _, err := plain(r); err != nil {
		return nil, err
	}
	_, err := s.set(r, func(sb *sandbox) { sb.active = s.now() })
	return nil, err
}

func (s calls) toolboxURL(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	if _, err := s.set(r, func(*sandbox) {}); err != nil {
		return nil, err
	}
	return map[string]string{"url": s.URL + "/toolbox"}, nil
}

// sweep does what clocks ask for.
func (s *Server) sweep() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sandboxes))
	s.mu.Unlock()
	for _, sb := range all {
		if due := s.due(sb); due != nil && sb.operation.TryLock() { // who changes it now is not waited for
			if due = s.due(sb); due != nil {
				due()
			}
			sb.operation.Unlock()
		}
	}
}

// due is what a sandbox must do now, or nil.
func (s *Server) due(sb *sandbox) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	after := func(since time.Time, minutes int) bool {
		return s.now().Sub(since) > time.Duration(minutes)*time.Minute
	}
	switch {
	case sb.state == stateDestroyed:
		return nil
	case sb.ttl > 0 && after(sb.created, sb.ttl):
		return func() { s.destroyNow(sb) }
	case sb.state == stateStarted && sb.autoStop > 0 && after(sb.active, sb.autoStop):
		return func() { s.stopNow(sb) }
	case sb.state == stateStarted && sb.autoPause > 0 && after(sb.active, sb.autoPause):
		return func() { _ = s.pauseNow(context.Background(), sb) } // it runs on, then
	case sb.state != stateStopped && sb.state != stateArchived:
		return nil
	case sb.autoDelete >= 0 && after(sb.changed, sb.autoDelete):
		return func() { s.destroyNow(sb) }
	case sb.state == stateStopped && sb.autoArchive > 0 && after(sb.changed, sb.autoArchive):
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.arrive(sb, stateArchived, "archiving")
		}
	}
	return nil
}

// toolbox passes requests on to the toolbox of a sandbox that has started.
func (s *Server) toolbox(w http.ResponseWriter, r *http.Request) {
	if !s.authorized(r) {
		refuseToolbox(w, r, http.StatusUnauthorized, "UNAUTHORIZED", "authentication failed: Bearer token is missing or not valid")
		return
	}
	s.sweep()
	s.mu.Lock()
	sb, err := s.find(r)
	ready := err == nil && sb.id == r.PathValue("id") && sb.state == stateStarted && len(sb.way) == 0 && sb.api != nil
	var transport http.RoundTripper
	if ready {
		transport = sb.api
		if r.Header.Get("X-Daytona-Skip-Last-Activity-Update") != "true" {
			sb.active = s.now()
		}
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		refuseToolbox(w, r, http.StatusNotFound, "NOT_FOUND", "sandbox not found")
	case !ready:
		refuseToolbox(w, r, http.StatusBadRequest, "BAD_REQUEST", "sandbox is not started")
	default:
		reach(transport, "/toolbox/"+sb.id, func(w http.ResponseWriter) {
			http.Error(w, "Bad Gateway", http.StatusBadGateway)
		}).ServeHTTP(w, r)
	}
}

func refuseToolbox(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	answer(w, status, map[string]any{
		"statusCode": status, "message": message, "code": code, "source": "DAYTONA_PROXY", "path": r.URL.Path, "method": r.Method, "timestamp": time.Now().UTC(),
	})
}
