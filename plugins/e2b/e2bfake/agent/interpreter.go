package agent

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// interpreter is the server with the kernels.
type interpreter struct {
	env      map[string]string
	mu       sync.Mutex
	contexts map[string]*kernel
	defaults map[string]string // context by language
}

// silence is after how long a stream shows that it lives.
const silence = 5 * time.Second

func newInterpreter(env map[string]string) *interpreter {
	return &interpreter{env: env, contexts: map[string]*kernel{}, defaults: map[string]string{}}
}

func (i *interpreter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `"OK"`) })
	mux.HandleFunc("POST /execute", i.execute)
	mux.HandleFunc("POST /contexts", i.create)
	mux.HandleFunc("GET /contexts", i.list)
	mux.HandleFunc("POST /contexts/{id}/restart", i.restart)
	mux.HandleFunc("DELETE /contexts/{id}", i.remove)
	return mux
}

type contextInfo struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// canonical is the name of the kernel that serves a language.
func canonical(language string) string {
	language = strings.ToLower(strings.TrimSpace(language))
	switch language {
	case "":
		return "python"
	case "js", "ts", "typescript":
		return "javascript"
	}
	return language
}

func (i *interpreter) begin(language, cwd string) (contextInfo, error) {
	if cwd == "" {
		cwd = defaultDir
	}
	k := &kernel{language: canonical(language), cwd: cwd}
	if err := k.begin(cwd); err != nil {
		return contextInfo{}, err
	}
	id := strings.ToLower(rand.Text())
	i.mu.Lock()
	defer i.mu.Unlock()
	i.contexts[id] = k
	return contextInfo{id, k.language, cwd}, nil
}

func (i *interpreter) create(w http.ResponseWriter, r *http.Request) {
	var req struct{ Language, Cwd string }
	if err := read(r, newContext, &req); err != nil {
		unprocessable(w, err)
		return
	}
	made, err := i.begin(req.Language, req.Cwd)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, made)
}

func (i *interpreter) list(w http.ResponseWriter, _ *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := []contextInfo{}
	for id, k := range i.contexts {
		all = append(all, contextInfo{id, k.language, k.cwd})
	}
	writeJSON(w, http.StatusOK, all)
}

func (i *interpreter) find(w http.ResponseWriter, id string) *kernel {
	i.mu.Lock()
	defer i.mu.Unlock()
	k, ok := i.contexts[id]
	if !ok {
		http.Error(w, fmt.Sprintf("Context %s not found", id), http.StatusNotFound)
		return nil
	}
	return k
}

func (i *interpreter) restart(w http.ResponseWriter, r *http.Request) {
	k := i.find(w, r.PathValue("id"))
	if k == nil {
		return
	}
	k.end()
	k.forgets()
	if err := k.begin(defaultDir); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, http.StatusOK, nil)
}

func (i *interpreter) remove(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	k := i.find(w, id)
	if k == nil {
		return
	}
	i.mu.Lock()
	delete(i.contexts, id)
	i.mu.Unlock()
	k.end()
	writeJSON(w, http.StatusOK, nil)
}

// read reads a body of a shape. Members that are not known are refused, though the
// original is not known to mind.
func read(r *http.Request, s shape.Shape, into any) error {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
		return errors.New("the content type must be application/json")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := shape.Check(s, body).Strict().Err(); err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

func unprocessable(w http.ResponseWriter, err error) {
	writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"detail": []any{map[string]any{"msg": err.Error()}}})
}

// execute streams lines without a content type. There is no time limit, and a client
// that goes away interrupts nothing.
func (i *interpreter) execute(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Code      string `json:"code"`
		ContextID string `json:"context_id"`
		Language  string `json:"language"`
	}
	err := read(r, newExecution, &req)
	switch {
	case err != nil:
		unprocessable(w, err)
		return
	case req.ContextID != "" && req.Language != "":
		http.Error(w, "Only one of context_id or language can be provided", http.StatusBadRequest)
		return
	}
	k, err := i.kernelFor(w, req.ContextID, req.Language)
	if err != nil || k == nil {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		return
	}
	w.Header()["Content-Type"] = nil
	w.WriteHeader(http.StatusOK)
	var writing sync.Mutex
	send := func(line []byte) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = w.Write(append(line, '\n'))
		_ = http.NewResponseController(w).Flush()
	}
	_ = http.NewResponseController(w).Flush() // the headers come at once, also for who has to wait
	done := make(chan struct{})
	ticking := make(chan struct{})
	go func() {
		defer close(ticking)
		ticker := time.NewTicker(silence)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				send([]byte(`{"type": "keepalive"}`))
			case <-done:
				return
			}
		}
	}()
	defer func() { close(done); <-ticking }()
	i.executeIn(r.Context(), k, req.Code, send)
}

func (i *interpreter) executeIn(ctx context.Context, k *kernel, code string, send func([]byte)) {
	k.turn.Lock()
	defer k.turn.Unlock()
	stopped, err := k.execute(k.pastes(i.env, code), func(event json.RawMessage) {
		var fields map[string]any
		if json.Unmarshal(event, &fields) == nil && (fields["type"] == "stdout" || fields["type"] == "stderr") {
			fields["timestamp"] = time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00")
			event, _ = json.Marshal(fields)
		}
		send([]byte(strings.TrimSpace(string(event))))
	})
	if err != nil {
		i.died(ctx, k, stopped)
		send([]byte(`{"type": "error", "name": "ContextRestarting", "value": "Context was restarted", "traceback": ""}`))
	}
	send([]byte(`{"type": "end_of_execution"}`))
}

// died deals with the end of a kernel. That of Python starts again: it is in no
// particular directory, and has lost the environment. What runs JavaScript is a child of
// its kernel, which does not notice; nobody is told until somebody restarts it.
func (i *interpreter) died(ctx context.Context, k *kernel, stopped <-chan struct{}) {
	select {
	case <-stopped:
		return
	default:
	}
	if k.language == "javascript" {
		select {
		case <-stopped:
		case <-ctx.Done():
		}
		return
	}
	k.end()
	_ = k.begin(defaultDir)
}

func (i *interpreter) kernelFor(w http.ResponseWriter, id, language string) (*kernel, error) {
	if id != "" {
		return i.find(w, id), nil
	}
	i.mu.Lock()
	id = i.defaults[canonical(language)]
	i.mu.Unlock()
	if id == "" {
		made, err := i.begin(language, "")
		if err != nil {
			return nil, err
		}
		id = made.ID
		i.mu.Lock()
		i.defaults[made.Language] = id
		i.mu.Unlock()
	}
	return i.find(w, id), nil
}
