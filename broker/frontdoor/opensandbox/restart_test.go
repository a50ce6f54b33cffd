package opensandbox_test

import (
	"context"
	"crypto/sha256"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor/opensandbox"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// left has one sandbox. It may be one of an earlier process.
type left struct {
	opensandbox.Instances
	unknown error
}

// Named implements opensandbox.Instances.
func (l *left) Named(_ context.Context, name string) (instance.Info, error) {
	if name != "box" {
		return instance.Info{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
	}
	return instance.Info{ID: instance.ID{Tenant: "acme", Session: "s", Instance: "box"}, FrontDoor: opensandbox.Name}, l.unknown
}

// people are the tenants by token and by name.
type people struct{ *tenant.Directory }

func (p people) Tenant(name string) (tenant.Tenant, bool) { return tenant.Tenant{Name: name}, true }

// After a restart a sandbox is not there yet, and is not gone: a client that is told 404
// forgets it. Strangers hear what they always do.
func TestASandboxOfWhichNobodyKnowsYetIsNotGone(t *testing.T) {
	credentials := func(name string) tenant.Credentials {
		return tenant.Credentials{Tenant: tenant.Tenant{Name: name}, TokenSHA256: [][32]byte{sha256.Sum256([]byte(name + "-token"))}}
	}
	tenants := people{tenant.NewDirectory([]tenant.Credentials{credentials("acme"), credentials("umbrella")})}
	server := rest.NewServer(rest.Options{
		Tenants: tenants, Logger: hclog.NewNullLogger(), Bounds: rest.Bounds{MaxBody: 64 << 10, RequestTimeout: time.Minute},
	})
	instances := &left{}
	opensandbox.Add(server, instances, nil, tenants, nil, []byte("a key")).Apply(&frontdoor.Settings{Path: "/opensandbox"})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		assert.Check(t, server.Shutdown(context.Background()))
		assert.Check(t, <-ended)
	})
	f := &fixture{t: t, client: &http.Client{Timeout: time.Minute}, address: listener.Addr().String()}
	t.Cleanup(f.client.CloseIdleConnections)

	var endpoint struct{ Headers map[string]string }
	f.do(http.MethodGet, "/v1/sandboxes/box/endpoints/44772", "", apiKey).wants(http.StatusOK).decode(&endpoint)
	own := "X-EXECD-ACCESS-TOKEN: " + endpoint.Headers["X-EXECD-ACCESS-TOKEN"]
	instances.unknown = sdk.Errorf(sdk.CodeUnavailable, "nobody knows yet")
	const stranger = "OPEN-SANDBOX-API-KEY: umbrella-token"
	for _, test := range []struct {
		method, path, header string
		status               int
		code                 string
	}{
		{http.MethodGet, "/v1/sandboxes/box", apiKey, http.StatusServiceUnavailable, "SB009"},
		{http.MethodDelete, "/v1/sandboxes/box", apiKey, http.StatusServiceUnavailable, "SB009"},
		{http.MethodGet, "/v1/sandboxes/box/endpoints/44772", apiKey, http.StatusServiceUnavailable, "SB009"},
		{http.MethodGet, "/sandboxes/box/proxy/44772/ping", own, http.StatusServiceUnavailable, "SB009"},
		{http.MethodGet, "/sandboxes/box/proxy/8080/", own, http.StatusServiceUnavailable, "SB009"},
		{http.MethodGet, "/v1/sandboxes/box", stranger, http.StatusNotFound, "SB013"},
		{http.MethodGet, "/sandboxes/box/proxy/44772/ping", stranger, http.StatusNotFound, "SB013"},
		{http.MethodGet, "/sandboxes/box/proxy/44772/ping", "X-EXECD-ACCESS-TOKEN: x", http.StatusNotFound, "SB013"},
		{http.MethodGet, "/v1/sandboxes/other", apiKey, http.StatusNotFound, "SB013"},
		{http.MethodGet, "/sandboxes/other/proxy/44772/ping", own, http.StatusNotFound, "SB013"},
	} {
		f.do(test.method, test.path, "", test.header).refuses(test.status, test.code)
	}
}
