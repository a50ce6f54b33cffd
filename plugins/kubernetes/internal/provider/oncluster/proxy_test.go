package oncluster_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sandbox-broker/sandbox-broker/e2e/cluster"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/fault"
)

// apiProxy stands between a plugin and the API server, and lies where faults are in force.
// Watches have paths that begin with /watch, so that they can be told from lists.
type apiProxy struct {
	fault.Set
	// kubeconfig is for the plugin.
	kubeconfig string
	server     *httptest.Server

	mu      sync.Mutex
	watched watching
	count   counts
}

// counts are calls and the bytes of their answers, by what they do: GET, LIST, LOG, WATCH and
// other methods.
type counts struct {
	calls map[string]int
	bytes map[string]int64
}

func (p *apiProxy) counts() counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return counts{maps.Clone(p.count.calls), maps.Clone(p.count.bytes)}
}

// counting counts a call, whose answer goes to the writer that it returns.
func (p *apiProxy) counting(w http.ResponseWriter, r *http.Request) http.ResponseWriter {
	of := r.Method
	switch {
	case r.URL.Query().Get("watch") != "":
		of = "WATCH"
	case strings.HasSuffix(r.URL.Path, "/log"):
		of = "LOG"
	case of == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods"):
		of = "LIST"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.calls[of]++
	return &countingWriter{w, func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count.bytes[of] += int64(n)
	}}
}

type countingWriter struct {
	http.ResponseWriter
	count func(int)
}

func (c *countingWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.count(n)
	return n, err
}

// watching serves one watch by way of the real one. nil is the truth.
type watching func(w http.ResponseWriter, r *http.Request, real http.Handler)

// The paths of calls, for fault.Fault.On.
const (
	createPod = "POST /api/v1/namespaces/*/pods"
	patchPod  = "PATCH /api/v1/namespaces/*/pods/*"
	deletePod = "DELETE /api/v1/namespaces/*/pods/*"
	getPod    = "GET /api/v1/namespaces/*/pods/*"
	listPods  = "GET /api/v1/namespaces/*/pods"
	watchPods = "GET /watch/api/v1/namespaces/*/pods"
)

// before makes a proxy that speaks HTTP/2 as the API server does, or else HTTP/1.1, where
// each call has a connection that can be reset.
func before(t testing.TB, c *cluster.Cluster, http2 bool) *apiProxy {
	t.Helper()
	transport, err := rest.TransportFor(c.Config)
	assert.NilError(t, err)
	target, err := url.Parse(c.Config.Host)
	assert.NilError(t, err)
	real := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		// The API server is away.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p := &apiProxy{count: counts{map[string]int{}, map[string]int64{}}}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = p.counting(w, r)
		if r.URL.Query().Get("watch") == "" {
			p.Around("", real).ServeHTTP(w, r)
			return
		}
		p.Around("/watch", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			watched := p.watched
			p.mu.Unlock()
			if watched == nil {
				real.ServeHTTP(w, r)
				return
			}
			r.Header.Set("Accept", "application/json") // one event a line
			watched(w, r, real)
		})).ServeHTTP(w, r)
	}))
	p.server.EnableHTTP2 = http2
	p.server.StartTLS()
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	const name = "proxy"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: p.server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	assert.NilError(t, clientcmd.WriteToFile(*config, p.kubeconfig))
	return p
}

// watches has watches served so from now on. Those that there are end.
func (p *apiProxy) watches(so watching) {
	p.mu.Lock()
	p.watched = so
	p.mu.Unlock()
	p.server.CloseClientConnections()
}

// stalled says nothing, without an end.
func stalled(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// silent begins as the real one does, and tells of no change after that.
func silent(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// breaking ends as a lost connection does, after a moment.
func breaking(w http.ResponseWriter, r *http.Request, real http.Handler) {
	ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
	defer cancel()
	real.ServeHTTP(w, r.WithContext(ctx))
	panic(http.ErrAbortHandler)
}

// expired breaks too, and where it was nobody knows any more.
func expired(w http.ResponseWriter, r *http.Request, real http.Handler) {
	if version := r.URL.Query().Get("resourceVersion"); version == "" || version == "0" {
		breaking(w, r, real)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version: 1 (2)","reason":"Expired","code":410}}` + "\n"))
}

// bookmarks tells of bookmarks alone once it has told what there is.
func bookmarks(w http.ResponseWriter, r *http.Request, real http.Handler) {
	told := false
	real.ServeHTTP(&lines{ResponseWriter: w, keep: func(line []byte) bool {
		if bytes.Contains(line, []byte(`"type":"BOOKMARK"`)) {
			told = true
			return true
		}
		return !told && r.URL.Query().Get("sendInitialEvents") == "true"
	}}, r)
}

// garbled is no JSON.
func garbled(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("<html>a proxy is not well</html>\n"))
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// lines passes on the lines that are to be kept.
type lines struct {
	http.ResponseWriter
	keep func(line []byte) bool
	rest []byte
}

func (l *lines) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		if l.keep(line) {
			if _, err := l.ResponseWriter.Write(append(line, '\n')); err != nil {
				return 0, err
			}
		}
		l.rest = bytes.Clone(rest)
	}
}
