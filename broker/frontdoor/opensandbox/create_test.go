package opensandbox_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/opensandbox"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// cutOff are answers of a process that ends before it has kept one.
type cutOff struct{ *idempotency.Answers }

func (c cutOff) End(_ context.Context, id idempotency.ID, _ *idempotency.Answer) error {
	c.Abandon(id)
	return nil
}

// process is one of those that serve the door, one after the other, with the sandboxes of
// a service that outlives them.
func process(t *testing.T, b *box, service *instance.Service, answers opensandbox.Answers) (*fixture, *api.Server) {
	t.Helper()
	f := &fixture{t: t, box: b, client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}}
	server, err := api.NewServer(api.Options{
		Instances: service, Answers: answers, Logger: hclog.NewNullLogger(), FrontDoors: door,
		Tenants: tenant.NewDirectory([]tenant.Credentials{{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("acme-token"))}}}),
		Bounds:  api.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	assert.NilError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	f.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		assert.Check(t, server.Shutdown(context.Background()))
		assert.Check(t, <-ended)
	})
	return f, server
}

func TestACreationIsCarriedOutOnceOverRestarts(t *testing.T) {
	const body = `{"image": {"uri": "python:3.12"}, "entrypoint": ["sleep", "1000"]}`
	for name, test := range map[string]struct {
		// first is what the answers of the first process are.
		first    func(*idempotency.Answers) opensandbox.Answers
		replayed string
	}{
		"the answer was kept":               {func(a *idempotency.Answers) opensandbox.Answers { return a }, "true"},
		"the process ended before that":     {func(a *idempotency.Answers) opensandbox.Answers { return cutOff{a} }, ""},
		"nothing is known of a process yet": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var starts atomic.Int64
			b := newBox(t)
			b.starting = func() error {
				starts.Add(1)
				return nil
			}
			service := instance.NewService(instance.Options{Catalog: instancetest.Catalog{b}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
			kept, err := store.Open(filepath.Join(scratch.Dir(t), "state.db"), store.Options{})
			assert.NilError(t, err)
			t.Cleanup(func() {
				assert.Check(t, b.commands.EndCommands(context.Background(), "i1"))
				service.Shutdown(context.Background())
				assert.Check(t, kept.Close())
			})
			create := func(answers opensandbox.Answers) (id, location, replayed string) {
				var made struct{ ID string }
				f, _ := process(t, b, service, answers)
				got := f.do(http.MethodPost, "/v1/sandboxes", body, apiKey, "Idempotency-Key: k").wants(http.StatusAccepted)
				got.decode(&made)
				return made.ID, got.Header.Get("Location"), got.Header.Get("Idempotency-Replayed")
			}
			open := func() *idempotency.Answers {
				answers, err := idempotency.Open(kept)
				assert.NilError(t, err)
				return answers
			}
			var first string
			if test.first != nil {
				first, _, _ = create(test.first(open()))
			} else { // it was made, and its entrypoint was not started
				info, _, err := service.Create(t.Context(), tenant.Tenant{Name: "acme"}, instance.CreateRequest{Key: "k", Template: "python", Fixed: true, FrontDoor: "opensandbox"})
				assert.NilError(t, err)
				first = info.ID.Instance
			}
			id, location, replayed := create(open())
			assert.Equal(t, id, first)
			assert.Equal(t, location, "/opensandbox/v1/sandboxes/"+first)
			assert.Equal(t, replayed, test.replayed)
			assert.Equal(t, starts.Load(), int64(1), "the entrypoint runs once")
		})
	}
}

// A start of which nobody knows whether it has happened is not made good by another sandbox
// with the same program.
func TestAnEntrypointThatMayHaveStartedIsNotStartedAgain(t *testing.T) {
	gone, refused := sdk.Errorf(sdk.CodeUnavailable, "the plugin ended"), sdk.FieldErrorf(sdk.CodeInvalidRequest, "argv", "there is no such program")
	before := func(b *box, fail func() error) { b.starting = fail }
	after := func(b *box, fail func() error) { b.started = fail }
	for name, test := range map[string]struct {
		hook   func(b *box, fail func() error)
		err    error
		key    string
		status int
		// kept says that the sandbox stays for who asks again.
		kept bool
	}{
		"it has not":                  {before, gone, "Idempotency-Key: k", http.StatusServiceUnavailable, true},
		"it has":                      {after, gone, "Idempotency-Key: k", http.StatusServiceUnavailable, true},
		"it was refused":              {before, refused, "Idempotency-Key: k", http.StatusBadRequest, false},
		"nobody can ask for it again": {before, gone, "X-None: k", http.StatusServiceUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			f.do(http.MethodDelete, "/v1/sandboxes/"+f.sandbox, "", apiKey).wants(http.StatusNoContent)
			var tries atomic.Int64
			test.hook(f.box, func() error {
				if tries.Add(1) == 1 {
					return test.err
				}
				return nil
			})
			create := func() answer {
				return f.do(http.MethodPost, "/v1/sandboxes", `{"image": {"uri": "python:3.12"}, "entrypoint": ["sleep", "1000"]}`, apiKey, test.key)
			}
			type list struct{ Items []struct{ ID string } }
			var left, all list
			create().wants(test.status)
			f.do(http.MethodGet, "/v1/sandboxes", "", apiKey).wants(http.StatusOK).decode(&left)
			create().wants(http.StatusAccepted)
			f.do(http.MethodGet, "/v1/sandboxes", "", apiKey).wants(http.StatusOK).decode(&all)
			assert.Check(t, cmp.Len(all.Items, 1))
			if test.kept {
				assert.DeepEqual(t, left, all)
			} else {
				assert.Check(t, cmp.Len(left.Items, 0))
			}
			commands, err := f.box.commands.ListCommands(t.Context(), "i1")
			assert.NilError(t, err)
			assert.Check(t, cmp.Len(commands, 1))
		})
	}
}

func TestARefusalNamesTheFieldThatWasSent(t *testing.T) {
	f := start(t)
	for body, says := range map[string]string{
		`{"image": {"uri": "python:3.12"}, "timeout": 100000000}`:   "timeout: must be more than 0 and at most ",
		`{"image": {"uri": "python:3.12"}, "metadata": {"-": "x"}}`: "metadata: a name must have",
		`{"image": {"uri": "python:3.12"}, "env": {"1": "x"}}`:      "env: a name must be",
	} {
		got := f.do(http.MethodPost, "/v1/sandboxes", body, apiKey)
		got.refuses(http.StatusBadRequest, "SB010")
		assert.Check(t, cmp.Contains(got.text, says))
	}
	got := f.do(http.MethodPatch, "/v1/sandboxes/"+f.sandbox+"/metadata", `{"-": "x"}`, apiKey)
	got.refuses(http.StatusBadRequest, "SB010")
	assert.Check(t, cmp.Contains(got.text, "metadata: a name must have"))
}

func TestNoPatchOfMetadataIsLostToAnother(t *testing.T) {
	f := start(t)
	want := map[string]string{}
	var group sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		want[name] = "x"
		group.Go(func() {
			f.do(http.MethodPatch, "/v1/sandboxes/"+f.sandbox+"/metadata", fmt.Sprintf(`{%q: "x", "absent": null}`, name), apiKey).wants(http.StatusOK)
		})
	}
	group.Wait()
	var shown struct{ Metadata map[string]string }
	f.do(http.MethodGet, "/v1/sandboxes/"+f.sandbox, "", apiKey).wants(http.StatusOK).decode(&shown)
	assert.DeepEqual(t, shown.Metadata, want)
}

func TestAddressesAtAListenerOfTheDoorsOwn(t *testing.T) {
	b := newBox(t)
	service := instance.NewService(instance.Options{Catalog: instancetest.Catalog{b}, Limits: instancetest.Limits(), Logger: hclog.NewNullLogger()})
	t.Cleanup(func() { service.Shutdown(context.Background()) })
	f, server := process(t, b, service, nil)
	settings := door["opensandbox"]
	settings.Listen, settings.Path = "127.0.0.1:0", ""
	server.SetFrontDoors(map[string]frontdoor.Settings{"opensandbox": settings})
	listener, err := net.Listen("tcp", settings.Listen)
	assert.NilError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.FrontDoors()["opensandbox"].Serve(listener) }()
	t.Cleanup(func() {
		assert.Check(t, server.FrontDoors()["opensandbox"].Shutdown(context.Background()))
		assert.Check(t, <-ended)
	})
	at := "http://" + listener.Addr().String()
	ask := func(method, path, body string, headers ...string) answer {
		req := f.request(t.Context(), method, "", strings.NewReader(body), headers...)
		req.URL, err = url.Parse(at + path)
		assert.NilError(t, err)
		req.Host = ""
		return f.send(req)
	}
	var made struct{ ID string }
	got := ask(http.MethodPost, "/v1/sandboxes", `{"image": {"uri": "python:3.12"}}`, apiKey).wants(http.StatusAccepted)
	got.decode(&made)
	assert.Equal(t, got.Header.Get("Location"), "/v1/sandboxes/"+made.ID)
	var endpoint struct {
		Endpoint string
		Headers  map[string]string
	}
	ask(http.MethodGet, "/v1/sandboxes/"+made.ID+"/endpoints/44772", "", apiKey).wants(http.StatusOK).decode(&endpoint)
	assert.Equal(t, endpoint.Endpoint, listener.Addr().String()+"/sandboxes/"+made.ID+"/proxy/44772")
	ask(http.MethodGet, strings.TrimPrefix(endpoint.Endpoint, listener.Addr().String())+"/ping", "", "X-EXECD-ACCESS-TOKEN: "+endpoint.Headers["X-EXECD-ACCESS-TOKEN"]).wants(http.StatusOK)
	f.do(http.MethodGet, "/v1/sandboxes", "", apiKey).wants(http.StatusNotFound)
	ask(http.MethodDelete, "/v1/sandboxes/"+made.ID, "", apiKey).wants(http.StatusNoContent)
}
