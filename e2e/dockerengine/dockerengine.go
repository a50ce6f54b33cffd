// Package dockerengine finds the Docker Engine for tests that need a real one.
// Nothing is started here: `.ci/with-docker COMMAND` runs a command beside an
// engine of its own that has all that these tests need.
package dockerengine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// Image is what the tests' sandboxes are made of, from `make rootfs`.
const Image = "sandbox-broker/rootfs:latest"

// Engine is a reachable engine that has gVisor and the image.
type Engine struct {
	// Host is its address, unix:///...
	Host   string
	client *http.Client
}

// Find returns the engine at $DOCKER_HOST, else at the usual socket. The test is
// skipped if there is none that will do, and fails in CI.
func Find(t testing.TB) *Engine {
	t.Helper()
	e := &Engine{Host: os.Getenv("DOCKER_HOST")}
	if e.Host == "" {
		e.Host = "unix:///var/run/docker.sock"
	}
	socket, ok := strings.CutPrefix(e.Host, "unix://")
	if !ok {
		missing(t, fmt.Errorf("%s is not on this machine", e.Host))
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true, // leave no goroutine behind
	}
	e.client = &http.Client{Transport: transport, Timeout: time.Minute}
	var info struct{ Runtimes map[string]any }
	if err := e.Do(http.MethodGet, "/info", nil, &info); err != nil {
		missing(t, err)
	}
	if info.Runtimes["runsc"] == nil {
		missing(t, fmt.Errorf("the engine at %s has no runtime runsc", e.Host))
	}
	if err := e.Do(http.MethodGet, "/images/"+Image+"/json", nil, nil); err != nil {
		missing(t, fmt.Errorf("the image of `make rootfs`: %w", err))
	}
	return e
}

func missing(t testing.TB, err error) {
	t.Helper()
	text := fmt.Sprintf("this test needs a Docker Engine with gVisor, such as `.ci/with-docker make test` starts: %v", err)
	if os.Getenv("CI") != "" {
		t.Fatal(text)
	}
	t.Skip(text)
}

// Do asks the engine's API. The body is sent as JSON, the answer decoded, unless
// they are nil.
func (e *Engine) Do(method, path string, body, into any) error {
	payload := strings.NewReader("")
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = strings.NewReader(string(encoded))
	}
	req, err := http.NewRequest(method, "http://engine"+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the engine: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("read the engine's answer: %w", err)
	case resp.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	case into == nil:
		return nil
	default:
		return json.Unmarshal(text, into)
	}
}

// Container is one that the engine knows.
type Container struct {
	ID     string `json:"Id"`
	Names  []string
	State  string
	Labels map[string]string
}

// Containers lists those of a broker, in every state.
func (e *Engine) Containers(t testing.TB, brokerID string) []Container {
	t.Helper()
	filters, err := json.Marshal(map[string][]string{"label": {"io.sandbox-broker.broker=" + brokerID}})
	assert.NilError(t, err)
	var list []Container
	assert.NilError(t, e.Do(http.MethodGet, "/containers/json?all=true&filters="+url.QueryEscape(string(filters)), nil, &list))
	return list
}
