package daytonafake

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// calls are those of the API, each by a method.
type calls struct{ *Server }

// api is the API.
func (s *Server) api() http.Handler {
	c := calls{s}
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (any, error)) {
		method, route, _ := strings.Cut(pattern, " ")
		status := http.StatusOK
		if strings.HasSuffix(route, "/last-activity") {
			status = http.StatusCreated
		}
		mux.HandleFunc(method+" /api"+route, func(w http.ResponseWriter, r *http.Request) {
			body, err := h(r)
			if err != nil {
				refuse(w, r, err)
				return
			}
			if body == nil {
				w.WriteHeader(status)
				return
			}
			answer(w, status, body)
		})
	}
	handle("GET /config", c.config)
	handle("GET /api-keys/current", c.currentKey)
	handle("GET /shared-regions", c.sharedRegions)
	handle("GET /snapshots", c.listSnapshots)
	handle("GET /snapshots/{id}", c.getSnapshot)
	handle("POST /sandbox", c.create)
	handle("GET /sandbox", c.list)
	handle("GET /sandbox/paginated", c.pages)
	handle("GET /sandbox/{id}", c.get)
	handle("DELETE /sandbox/{id}", s.changes(destroyed))
	handle("POST /sandbox/{id}/start", s.changes(started))
	handle("POST /sandbox/{id}/stop", s.changes(stopped))
	handle("POST /sandbox/{id}/pause", s.changes(paused))
	handle("POST /sandbox/{id}/archive", s.changes(archived))
	handle("POST /sandbox/{id}/recover", s.changes(recovered))
	handle("POST /sandbox/{id}/resize", s.changes(resized))
	handle("PUT /sandbox/{id}/labels", c.setLabels)
	handle("POST /sandbox/{id}/network-settings", c.setNetwork)
	handle("POST /sandbox/{id}/public/{public}", c.setPublic)
	handle("POST /sandbox/{id}/last-activity", c.keepAlive)
	handle("POST /sandbox/{id}/autostop/{n}", c.interval(func(sb *sandbox) *int { return &sb.autoStop }))
	handle("POST /sandbox/{id}/autoarchive/{n}", c.interval(func(sb *sandbox) *int { return &sb.autoArchive }))
	handle("POST /sandbox/{id}/autodelete/{n}", c.interval(func(sb *sandbox) *int { return &sb.autoDelete }))
	if !s.options.Frozen {
		handle("POST /sandbox/{id}/autopause/{n}", c.interval(func(sb *sandbox) *int { return &sb.autoPause }))
		handle("POST /sandbox/{id}/ttl/{n}", c.interval(func(sb *sandbox) *int { return &sb.ttl }))
	}
	handle("GET /sandbox/{id}/toolbox-proxy-url", c.toolboxURL)
	handle("GET /sandbox/{id}/ports/{port}/preview-url", c.previewURL)
	handle("GET /sandbox/{id}/ports/{port}/signed-preview-url", c.signedPreviewURL)
	handle("POST /sandbox/{id}/ports/{port}/signed-preview-url/{token}/expire", c.expirePreview)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		switch {
		case pattern == "" || path.Clean(r.URL.Path) != r.URL.Path:
			refuse(w, r, &problem{http.StatusNotFound, "Cannot " + r.Method + " " + r.URL.Path})
		case pattern != "GET /api/config" && !s.authorized(r):
			refuse(w, r, &problem{http.StatusUnauthorized, "Invalid credentials"})
		default:
			s.sweep()
			mux.ServeHTTP(w, r)
		}
	})
}

func (s *Server) authorized(r *http.Request) bool {
	return r.Header.Get("Authorization") == "Bearer "+s.options.APIKey
}

// problem is an error with a status.
type problem struct {
	status  int
	message string
}

func (p *problem) Error() string { return p.message }

func bad(message string) error      { return &problem{http.StatusBadRequest, message} }
func conflict(message string) error { return &problem{http.StatusConflict, message} }

// refuse answers an error.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := &problem{http.StatusInternalServerError, err.Error()}
	_ = errors.As(err, &p)
	answer(w, p.status, map[string]any{
		"path": r.URL.RequestURI(), "timestamp": instant(time.Now()), "statusCode": p.status,
		"error": http.StatusText(p.status), "message": p.message,
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// read reads a body of a shape. Members that are not known are refused, which the original
// is not known to do.
func read(r *http.Request, s shape.Shape, into any) error {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return bad("the body is not JSON")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return bad(err.Error())
	}
	if err := shape.Check(s, body).Strict().Err(); err != nil {
		return bad(err.Error())
	}
	return json.Unmarshal(body, into)
}

// plain refuses a request with a body, or with parameters but these.
func plain(r *http.Request, allowed ...string) (url.Values, error) {
	if n, err := io.Copy(io.Discard, r.Body); err != nil || n > 0 {
		return nil, bad("there must be no body")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, bad(err.Error())
	}
	known := " " + strings.Join(allowed, " ") + " "
	for name := range query {
		if !strings.Contains(known, " "+name+" ") {
			return nil, bad("property " + name + " should not exist")
		}
	}
	return query, nil
}

// find is the sandbox that a path names by its ID or its name. It needs s.mu.
func (s *Server) find(r *http.Request) (*sandbox, error) {
	id := r.PathValue("id")
	for _, sb := range s.sandboxes {
		gone := sb.state == stateDestroyed && len(sb.way) == 0
		if sb.id == id || sb.name == id && !gone {
			if gone && (!s.options.ShowDestroyed || r.Method != http.MethodGet) {
				break
			}
			return sb, nil
		}
	}
	return nil, &problem{http.StatusNotFound, "Sandbox with ID or name " + id + " not found"}
}

func (s calls) config(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	return map[string]any{
		"version": "v" + version, "oidc": map[string]string{"issuer": s.URL, "clientId": "daytona", "audience": "daytona"},
		"linkedAccountsEnabled": false, "announcements": map[string]any{}, "proxyTemplateUrl": "http://{{PORT}}-{{sandboxId}}.127.0.0.1",
		"proxyToolboxUrl": s.URL + "/toolbox", "defaultSnapshot": DefaultSnapshot, "dashboardUrl": s.URL + "/dashboard",
		"maxAutoArchiveInterval": 43200, "maintananceMode": false, "environment": "test",
	}, nil
}

func (s calls) currentKey(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	return map[string]any{
		"name": "test", "value": s.options.APIKey[:8] + "********", "createdAt": instant(time.Now()), "lastUsedAt": nil, "expiresAt": nil, "userId": newID(),
		"permissions": []string{"write:sandboxes", "delete:sandboxes"},
	}, nil
}

func (s calls) sharedRegions(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	var all []any
	for _, id := range regions {
		all = append(all, map[string]any{
			"id": id, "name": id, "organizationId": nil, "regionType": "shared", "createdAt": instant(time.Now()), "updatedAt": instant(time.Now()), "proxyUrl": s.URL,
		})
	}
	return all, nil
}
