package e2bfake

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/agent"
)

// newestEnvd is the last version whose behaviour the agent has. It was seen of 0.2.10,
// 0.4.2, 0.5.2 and 0.5.7 what each of them lacks.
const newestEnvd = "0.6.13"

// requestTimeout is the server's own limit of a call.
const requestTimeout = 70 * time.Second

// control is the control API.
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	old, recent := s.options.Routes != NewRoutes, s.options.Routes != OldRoutes
	if old {
		mux.HandleFunc("POST /sandboxes", func(w http.ResponseWriter, r *http.Request) { s.create(w, r, false) })
		mux.HandleFunc("POST /sandboxes/{id}/connect", s.connect)
	}
	if recent {
		mux.HandleFunc("POST /v2/sandboxes", func(w http.ResponseWriter, r *http.Request) { s.create(w, r, true) })
		mux.HandleFunc("POST /v2/sandboxes/{id}/connect", s.connect)
	}
	mux.HandleFunc("GET /v2/sandboxes", s.list)
	mux.HandleFunc("GET /sandboxes/{id}", s.get)
	mux.HandleFunc("DELETE /sandboxes/{id}", s.kill)
	mux.HandleFunc("POST /sandboxes/{id}/timeout", s.setTimeout)
	mux.HandleFunc("POST /sandboxes/{id}/pause", s.pause)
	mux.HandleFunc("POST /sandboxes/{id}/snapshots", s.keepSandbox)
	mux.HandleFunc("GET /snapshots", s.listSnapshots)
	mux.HandleFunc("DELETE /templates/{id}", s.deleteTemplate)
	mux.HandleFunc("GET /templates/aliases/{alias}", s.alias)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != s.options.APIKey {
			problem(w, http.StatusUnauthorized, "", "invalid API key, please visit the dashboard")
			return
		}
		_, pattern := mux.Handler(r)
		if pattern == "" || path.Clean(r.URL.Path) != r.URL.Path {
			problem(w, http.StatusNotFound, "", unrouted(mux, r))
			return
		}
		if r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
			problem(w, http.StatusBadRequest, "", "validation error: request body has an error: header Content-Type has unexpected value")
			return
		}
		if err := s.check(pattern, r); err != nil {
			problem(w, http.StatusBadRequest, "", "validation error: "+err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

// unrouted says why there is no such route. The status is 404 even where the path is
// known and the method is not.
func unrouted(mux *http.ServeMux, r *http.Request) string {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			return "validation error: method not allowed"
		}
	}
	return "validation error: no matching operation was found"
}

// problem answers an error of the control API.
func problem(w http.ResponseWriter, status int, code, message string) {
	body := map[string]any{"message": message}
	if code != "" {
		body["error_code"] = code
	}
	refuse(w, status, body)
}

type createRequest struct {
	TemplateID string            `json:"templateID"`
	Timeout    *int              `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	Secure     bool              `json:"secure"`
	Network    struct {
		AllowPublicTraffic *bool    `json:"allowPublicTraffic"`
		AllowOut           []string `json:"allowOut"`
		DenyOut            []string `json:"denyOut"`
	} `json:"network"`
}

// The defaults of the two generations differ.
const (
	oldTimeout = 15
	newTimeout = 300
)

func (s *Server) create(w http.ResponseWriter, r *http.Request, recent bool) {
	var req createRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		problem(w, http.StatusBadRequest, "", "validation error: "+err.Error())
		return
	}
	seconds := oldTimeout
	if recent {
		seconds = newTimeout
	}
	if req.Timeout != nil {
		seconds = *req.Timeout
	}
	private := req.Network.AllowPublicTraffic != nil && !*req.Network.AllowPublicTraffic
	sb, from := s.newSandbox(req.TemplateID)
	switch {
	case seconds > s.options.MaxTimeout:
		problem(w, http.StatusBadRequest, "", fmt.Sprintf("Timeout cannot be greater than %d seconds", s.options.MaxTimeout))
		return
	case private && !req.Secure && !recent:
		problem(w, http.StatusBadRequest, "", "private traffic needs a secure sandbox")
		return
	case sb == nil:
		problem(w, http.StatusNotFound, "", fmt.Sprintf("template '%s' not found", req.TemplateID))
		return
	}
	if err := checkNetwork(req.Network.AllowOut, req.Network.DenyOut); err != nil {
		problem(w, http.StatusBadRequest, "", err.Error())
		return
	}
	sb.metadata, sb.startedAt = req.Metadata, time.Now()
	if req.Secure || recent {
		sb.token = newToken()
	}
	if private {
		sb.trafficToken = newToken()
	}
	if !s.admit(w, sb) {
		return
	}
	defer s.creating.Done()
	// What has begun is finished, whether or not the client waits.
	if err := s.launch(sb, agent.Config{Version: sb.envdVersion, Env: req.EnvVars, Token: sb.token, Interpreter: sb.interpreter}, from); err != nil {
		s.mu.Lock()
		delete(s.sandboxes, sb.id)
		s.mu.Unlock()
		problem(w, http.StatusInternalServerError, "sandbox_create_failed", "Failed to place sandbox: "+err.Error())
		return
	}
	sb.mu.Lock()
	sb.starting = false
	sb.mu.Unlock()
	sb.lives(time.Duration(seconds)*time.Second, func() { s.remove(sb.id) })
	answer(w, http.StatusCreated, sb.asCreated())
}

// newSandbox is one that is to be made of a template, and what it goes on from if that is a
// snapshot; nil if there is no such template.
func (s *Server) newSandbox(templateID string) (*sandbox, *build) {
	ref, ok := parseReference(templateID)
	if !ok {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.snapshotOf(ref); one != nil {
		b := one.buildOf(cmp.Or(ref.tag, defaultTag))
		if b == nil {
			return nil, nil
		}
		return &sandbox{id: newID(), template: one.id, alias: one.alias, interpreter: b.interpreter, envdVersion: b.envdVersion}, b
	}
	if ref.alias != InterpreterTemplate && ref.alias != BaseTemplate {
		return nil, nil
	}
	return &sandbox{id: newID(), template: ref.alias, alias: ref.alias, interpreter: ref.alias == InterpreterTemplate, envdVersion: s.options.EnvdVersion}, nil
}

// admit counts a sandbox that is about to start.
func (s *Server) admit(w http.ResponseWriter, sb *sandbox) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, other := range s.sandboxes {
		if !other.isPaused() {
			running++
		}
	}
	if most := s.options.MaxSandboxes; most > 0 && running >= most {
		// Unlike the limit of requests it says nothing of when to come back.
		problem(w, http.StatusTooManyRequests, "", fmt.Sprintf("you have reached the maximum number of concurrent E2B sandboxes (%d)", most))
		return false
	}
	sb.starting, sb.unlisted = true, s.unlisted
	s.sandboxes[sb.id] = sb
	s.creating.Add(1)
	s.created++
	return true
}

type sandboxResponse struct {
	SandboxID          string  `json:"sandboxID"`
	TemplateID         string  `json:"templateID"`
	Alias              string  `json:"alias,omitempty"`
	ClientID           string  `json:"clientID"`
	EnvdVersion        string  `json:"envdVersion"`
	EnvdAccessToken    string  `json:"envdAccessToken,omitempty"`
	TrafficAccessToken *string `json:"trafficAccessToken"`
	Domain             *string `json:"domain"`
}

const clientID = "6532622b"

func (sb *sandbox) asCreated() sandboxResponse {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	resp := sandboxResponse{SandboxID: sb.id, TemplateID: sb.template, Alias: sb.alias, ClientID: clientID, EnvdVersion: sb.envdVersion, EnvdAccessToken: sb.token}
	if sb.trafficToken != "" {
		resp.TrafficAccessToken = &sb.trafficToken
	}
	return resp
}

// find is the sandbox that a path names, or it answers why there is none.
func (s *Server) find(w http.ResponseWriter, r *http.Request) *sandbox {
	id, client, _ := strings.Cut(r.PathValue("id"), "-")
	if !sandboxID.MatchString(id) || strings.Contains(client, "-") {
		problem(w, http.StatusBadRequest, "", "invalid sandbox ID")
		return nil
	}
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	if sb == nil || sb.isStarting() {
		problem(w, http.StatusNotFound, "", fmt.Sprintf("sandbox \"%s\" doesn't exist or you don't have access to it", id))
		return nil
	}
	return sb
}

func (sb *sandbox) isStarting() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.starting
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	if sb := s.find(w, r); sb != nil {
		detail := sb.asListed()
		sb.mu.Lock()
		detail["envdAccessToken"] = sb.token
		sb.mu.Unlock()
		answer(w, http.StatusOK, detail)
	}
}

func (s *Server) kill(w http.ResponseWriter, r *http.Request) {
	sb := s.find(w, r)
	if sb == nil {
		return
	}
	if !s.remove(sb.id) { // somebody else was faster
		problem(w, http.StatusNotFound, "", "sandbox not found")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) setTimeout(w http.ResponseWriter, r *http.Request) {
	sb := s.find(w, r)
	if sb == nil {
		return
	}
	var req struct {
		Timeout *int `json:"timeout"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		problem(w, http.StatusBadRequest, "", "validation error: "+err.Error())
		return
	}
	if sb.isPaused() {
		problem(w, http.StatusConflict, "", "sandbox is paused")
		return
	}
	sb.lives(time.Duration(*req.Timeout)*time.Second, func() { s.remove(sb.id) })
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	sb := s.find(w, r)
	if sb == nil {
		return
	}
	if sb.isPaused() {
		problem(w, http.StatusConflict, "", fmt.Sprintf("Error pausing sandbox - sandbox '%s' is already paused", sb.id))
		return
	}
	if err := sb.ask(r.Context(), "/freeze", nil); err != nil {
		problem(w, http.StatusInternalServerError, "", err.Error())
		return
	}
	sb.mu.Lock()
	sb.paused, sb.endAt = true, time.Now()
	sb.expiry.Stop()
	sb.mu.Unlock()
	sb.jail.Reset() // as at every other end of a sandbox
	w.WriteHeader(http.StatusNoContent)
}

// connect resumes what is paused; of what runs it only extends the life.
func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	sb := s.find(w, r)
	if sb == nil {
		return
	}
	var req struct {
		Timeout *int `json:"timeout"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		problem(w, http.StatusBadRequest, "", "validation error: "+err.Error())
		return
	}
	life := newTimeout * time.Second
	if req.Timeout != nil {
		life = time.Duration(*req.Timeout) * time.Second
	}
	if !sb.isPaused() {
		sb.mu.Lock()
		longer := time.Until(sb.endAt) < life
		sb.mu.Unlock()
		if longer {
			sb.lives(life, func() { s.remove(sb.id) })
		}
		answer(w, http.StatusOK, sb.asCreated())
		return
	}
	if err := sb.ask(r.Context(), "/unfreeze", nil); err != nil {
		problem(w, http.StatusInternalServerError, "", err.Error())
		return
	}
	sb.mu.Lock()
	sb.paused = false
	sb.mu.Unlock()
	sb.lives(life, func() { s.remove(sb.id) })
	answer(w, http.StatusCreated, sb.asCreated())
}

func (s *Server) alias(w http.ResponseWriter, r *http.Request) {
	alias := r.PathValue("alias")
	if alias != InterpreterTemplate && alias != BaseTemplate {
		problem(w, http.StatusNotFound, "", "template not found")
		return
	}
	answer(w, http.StatusOK, map[string]any{"templateID": alias, "public": true})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
