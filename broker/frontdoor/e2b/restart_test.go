package e2b_test

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/e2b"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// left has one sandbox. It may be one of an earlier process.
type left struct {
	e2b.Instances
	unknown error
	// elsewhere says that this broker does not have it, and cannot find out who does.
	elsewhere bool
}

var box1 = instance.Info{ID: instance.ID{Tenant: "acme", Session: "s", Instance: "box"}, FrontDoor: e2b.Name}

// Named implements e2b.Instances.
func (l *left) Named(_ context.Context, name string) (instance.Info, error) {
	if name != "box" {
		return instance.Info{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	if l.elsewhere {
		return instance.Info{}, l.unknown
	}
	return box1, l.unknown
}

// Lease implements e2b.Instances.
func (*left) Lease(context.Context, tenant.Tenant, string, sdk.Capability) (*instance.Lease, error) {
	return nil, sdk.Errorf(sdk.CodeUnavailable, "nobody lends anything")
}

// ListAll implements e2b.Instances.
func (l *left) ListAll(string, instance.ListRequest) instance.Page {
	return instance.Page{Instances: []instance.Info{box1}}
}

// people are the tenants by token and by name.
type people struct{ *tenant.Directory }

func (p people) Tenant(name string) (tenant.Tenant, bool) { return tenant.Tenant{Name: name}, true }

// door is a server with the door alone, as each process of a broker has one.
func door(t testing.TB, instances e2b.Instances) *fixture {
	t.Helper()
	tenants := people{tenant.NewDirectory([]tenant.Credentials{
		{Tenant: tenant.Tenant{Name: "acme"}, TokenSHA256: [][32]byte{keyOf(apiKey)}},
		{Tenant: tenant.Tenant{Name: "umbrella"}, TokenSHA256: [][32]byte{sha256.Sum256([]byte("umbrella-token"))}},
	})}
	server := rest.NewServer(rest.Options{
		Tenants: tenants, Logger: hclog.NewNullLogger(), Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	e2b.Add(server, instances, nil, tenants, []byte("a key that is kept")).Apply(&frontdoor.Settings{Path: "/e2b"})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		assert.Check(t, server.Shutdown(context.Background()))
		assert.Check(t, <-ended)
	})
	f := &fixture{t: t, client: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}, address: listener.Addr().String()}
	t.Cleanup(f.client.CloseIdleConnections)
	return f
}

// After a restart a sandbox is not there yet, and is not gone: a client that is told 404 or
// 502 forgets it. Its tokens are as they were, and strangers hear what they always do.
func TestASandboxOfWhichNobodyKnowsYetIsNotGone(t *testing.T) {
	var own struct{ EnvdAccessToken string }
	door(t, &left{}).do(http.MethodGet, "/sandboxes/box", "", apiKey).wants(http.StatusOK).decode(&own)
	instances := &left{}
	f := door(t, instances)
	var again struct{ EnvdAccessToken string }
	f.do(http.MethodGet, "/sandboxes/box", "", apiKey).wants(http.StatusOK).decode(&again)
	assert.Equal(t, again.EnvdAccessToken, own.EnvdAccessToken)

	instances.unknown = sdk.Errorf(sdk.CodeUnavailable, "nobody knows yet")
	const stranger, named, wrong = "X-API-KEY: umbrella-token", "E2b-Sandbox-Id: box", "X-Access-Token: x"
	token := "X-Access-Token: " + own.EnvdAccessToken
	signed := "/files?path=a&signature=" + url.QueryEscape(signature(own.EnvdAccessToken, "a", "read", ""))
	for _, test := range []struct {
		method, path string
		headers      []string
		status       int
		code         sdk.Code
	}{
		{http.MethodGet, "/sandboxes/box", []string{apiKey}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodDelete, "/sandboxes/box", []string{apiKey}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodPost, "/sandboxes/box/connect", []string{apiKey}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodPost, "/sandboxes/box/pause", []string{apiKey}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodGet, "/health", []string{named}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodGet, "/files?path=a", []string{named, token}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodGet, signed, []string{named}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodPost, "/process.Process/List", []string{named, token}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodGet, "/contexts", []string{named, token}, http.StatusServiceUnavailable, sdk.CodeUnavailable},
		{http.MethodGet, "/sandboxes/box", []string{stranger}, http.StatusNotFound, sdk.CodeNotFound},
		{http.MethodGet, "/sandboxes/other", []string{apiKey}, http.StatusNotFound, sdk.CodeNotFound},
		{http.MethodGet, "/files?path=a", []string{named, wrong}, http.StatusUnauthorized, sdk.CodeNotAuthenticated},
		{http.MethodPost, "/process.Process/List", []string{"E2b-Sandbox-Id: other", token}, http.StatusBadGateway, sdk.CodeNotFound},
		{http.MethodGet, "/health", []string{"E2b-Sandbox-Id: other"}, http.StatusBadGateway, sdk.CodeNotFound},
	} {
		f.do(test.method, test.path, "", test.headers...).refuses(test.status, test.code)
	}
}

// The same holds for one of another broker, while the database does not say of which. Its tokens
// are known to that one alone.
func TestASandboxOfAnotherBrokerIsNotGoneWhileTheDatabaseIsAway(t *testing.T) {
	f := door(t, &left{unknown: sdk.Errorf(sdk.CodeUnavailable, "the database is away"), elsewhere: true})
	const named, token = "E2b-Sandbox-Id: box", "X-Access-Token: x"
	for path, headers := range map[string][]string{
		"/sandboxes/box": {apiKey}, "/health": {named}, "/files?path=a": {named, token}, "/files?path=a&signature=x": {named}, "/contexts": {named, token},
	} {
		f.do(http.MethodGet, path, "", headers...).refuses(http.StatusServiceUnavailable, sdk.CodeUnavailable)
	}
	f.do(http.MethodGet, "/sandboxes/other", "", apiKey).refuses(http.StatusNotFound, sdk.CodeNotFound)
}

// Whatever comes in the place of a message, what is answered is a stream that has an end, or
// a refusal.
func FuzzFrames(f *testing.F) {
	const right = `{"process":{"cmd":"/bin/true"}}`
	for _, body := range []string{envelope(0, right), envelope(1, right), envelope(2, "{}"), envelope(0, right) + envelope(0, right), envelope(0, right)[:9], "", "\x00\xff\xff\xff\xff{"} {
		f.Add("Start", body)
		f.Add("StreamInput", body)
	}
	d := door(f, &left{})
	var own struct{ EnvdAccessToken string }
	d.do(http.MethodGet, "/sandboxes/box", "", apiKey).wants(http.StatusOK).decode(&own)
	d.sandbox = created{SandboxID: "box", EnvdAccessToken: own.EnvdAccessToken}
	f.Fuzz(func(t *testing.T, method, body string) {
		if method != "Start" && method != "StreamInput" && method != "Connect" {
			return
		}
		one := *d
		one.t = t
		all := messages(t, one.ask(http.MethodPost, "/process.Process/"+method, body, "Content-Type: application/connect+json").wants(http.StatusOK).text)
		assert.Equal(t, len(all), 1)
		assert.Assert(t, strings.HasPrefix(all[0], `end {"error":{"code":"`), all[0])
	})
}
