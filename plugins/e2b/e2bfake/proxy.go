package e2bfake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/agent"
)

// The ports at which the parts of a sandbox listen.
const (
	envdPort        = 49983
	interpreterPort = 49999
)

var sandboxID = regexp.MustCompile(`^[a-z0-9]+$`)

// proxy stands in front of the sandboxes. It tells them apart by the two headers,
// else by the first label of the host.
func (s *Server) proxy() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, portText := r.Header.Get("E2b-Sandbox-Id"), r.Header.Get("E2b-Sandbox-Port")
		if id == "" || !readsHeaders(r.Host) {
			label, _, _ := strings.Cut(r.Host, ".")
			portText, id, _ = strings.Cut(label, "-")
		}
		port, err := strconv.Atoi(portText)
		if err != nil || !sandboxID.MatchString(id) {
			http.Error(w, "Invalid sandbox ID or port", http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		sb := s.sandboxes[id]
		s.mu.Unlock()
		if sb == nil || sb.isPaused() {
			refuse(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": "The sandbox was not found"})
			return
		}
		if port == envdPort && agent.IsInternal(r.URL.Path) {
			refuse(w, http.StatusNotFound, map[string]any{"path": r.URL.Path, "message": "not found"})
			return
		}
		if port != envdPort && sb.trafficToken != "" && r.Header.Get("E2B-Traffic-Access-Token") != sb.trafficToken {
			refuse(w, http.StatusForbidden, map[string]any{"sandboxId": id, "message": "Sandbox is secured with traffic access token"})
			return
		}
		if !wholeRequest(w, r) {
			return
		}
		switch {
		case port == envdPort:
			sb.reach(agent.EnvdSocket, port).ServeHTTP(w, r)
		case port == interpreterPort && sb.interpreter:
			sb.reach(agent.InterpreterSocket, port).ServeHTTP(w, r)
		default:
			refuse(w, http.StatusBadGateway, map[string]any{"sandboxId": id, "message": fmt.Sprintf("The sandbox is running but port %d is not open", port), "port": port})
		}
	})
}

// readsHeaders reports whether a host is one for all sandboxes, so that the headers tell
// them apart. Elsewhere the name of the host does, whatever the headers say.
func readsHeaders(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || strings.HasPrefix(host, "sandbox.") || net.ParseIP(host) != nil
}

// wholeRequest reads all of a request but an upload before it is passed on. Else the
// answer may begin before, and then Go's server stops to read the request.
func wholeRequest(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/files" {
		return true
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return true
}

func (sb *sandbox) isPaused() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	return sb.paused
}

// refuse answers an error in JSON; the body has the status too.
func refuse(w http.ResponseWriter, status int, body map[string]any) {
	body["code"] = status
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
