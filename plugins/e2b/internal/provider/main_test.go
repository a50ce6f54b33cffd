package provider_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestMain(m *testing.M) {
	e2bfake.Main()
	http.DefaultTransport.(*http.Transport).DialContext = e2bfake.DialContext // which the provider's are copies of
	// They wait more than they compute. -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// cloud starts a fake. Where there is no bubblewrap the test is skipped; in CI that is
// a failure.
func cloud(t *testing.T, options e2bfake.Options) *e2bfake.Server {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := e2bfake.Start(options)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, server.Close())
		assert.Check(t, len(server.Unread()) == 0, "what was sent and nobody reads: %q", server.Unread())
	})
	return server
}

// configured returns a provider of a fake that stops with the test.
func configured(t *testing.T, server *e2bfake.Server, more map[string]any) *provider.Provider {
	t.Helper()
	p := provider.NewImpatient(hclog.NewNullLogger()).(*provider.Provider)
	t.Cleanup(func() { assert.Check(t, p.Close(context.Background())) })
	assert.NilError(t, configure(t, p, server, "b", more))
	return p
}

func configure(t *testing.T, p *provider.Provider, server *e2bfake.Server, brokerID string, more map[string]any) error {
	t.Helper()
	values := map[string]any{"api_key": e2bfake.DefaultAPIKey, "domain": server.Domain}
	maps.Copy(values, more)
	settings, mistakes := p.Describe().Schema.Resolve(values)
	assert.Equal(t, len(mistakes), 0, "%v", mistakes)
	return p.Configure(t.Context(), sdk.ConfigureRequest{Label: "e2b", BrokerID: brokerID, StateDir: t.TempDir(), Settings: settings})
}

func create(t *testing.T, p *provider.Provider) string {
	t.Helper()
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: rand.Text(), TTL: time.Hour})
	assert.NilError(t, err)
	return made.ID
}

// heard is an sdk.Output that remembers.
type heard struct {
	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	artifacts      []sdk.Artifact
}

func (h *heard) Stdout(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stdout.Write(p)
	return nil
}

func (h *heard) Stderr(p []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stderr.Write(p)
	return nil
}

func (h *heard) Artifact(a sdk.Artifact) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.artifacts = append(h.artifacts, a)
	return nil
}

func (h *heard) out() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stdout.String()
}

func request(id string, language sdk.Language, code string) sdk.ExecuteRequest {
	return sdk.ExecuteRequest{InstanceID: id, ExecutionID: rand.Text(), Language: language, Code: code, Timeout: time.Minute, OutputLimit: 1 << 20}
}

// bash runs a script that succeeds, and returns what it printed.
func bash(t *testing.T, p *provider.Provider, id, script string) string {
	t.Helper()
	var out heard
	result, err := p.Execute(t.Context(), request(id, sdk.Bash, script), &out)
	assert.NilError(t, err)
	assert.Equal(t, result.Status, sdk.StatusSucceeded, "%s %s", result.Detail, out.stderr.String())
	return out.out()
}
