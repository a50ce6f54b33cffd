package audited_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestEachConnectionHasALineAndNoSecretHasOne(t *testing.T) {
	s := newScene(t, audit.Options{})
	policy := sdk.NetworkPolicy{
		Rules:   []sdk.NetworkRule{{Host: "api.example.com"}},
		Secrets: []sdk.NetworkSecret{{Name: "key", Header: "Authorization", Value: "hunter2hunter2", Hosts: []string{"api.example.com"}}},
	}
	_, err := s.provider.Create(t.Context(), sdk.CreateRequest{
		Labels: map[string]string{sdk.LabelTenant: "acme", sdk.LabelSession: "s", sdk.LabelInstance: "x"}, Network: &policy,
	})
	assert.NilError(t, err)
	assert.NilError(t, s.provider.(sdk.NetworkGovernor).SetNetwork(t.Context(), "i-1", policy))
	s.client.news = sdk.NetworkReport{Lost: 7, Connections: []sdk.NetworkConnection{
		{InstanceID: "i-1", Host: "api.example.com", Port: 443, Protocol: "https", Method: "GET", Verdict: sdk.NetworkAllowed, Sent: 1, Received: 2, Began: time.Now(), Duration: time.Second},
		{InstanceID: "i-1", Host: "evil.example", Port: 25, Protocol: "tcp", Verdict: sdk.NetworkRefused, Reason: "not there", Began: time.Now()},
	}}
	heard := 0
	assert.NilError(t, s.provider.(sdk.NetworkGovernor).FollowNetwork(t.Context(), func(r sdk.NetworkReport) error {
		heard += len(r.Connections)
		return nil
	}))
	assert.Equal(t, heard, 2)
	lines := s.lines(t)
	assert.Assert(t, is.Len(lines, 7))
	for _, l := range lines {
		for _, value := range l {
			assert.Check(t, value != "hunter2hunter2")
		}
	}
	assert.DeepEqual(t, lines[1]["hosts"], []any{"api.example.com"})
	assert.Equal(t, lines[2]["operation"], "set_network")
	for n, want := range []map[string]any{
		{"operation": "reach_host", "host": "api.example.com", "port": 443.0, "protocol": "https", "method": "GET", "verdict": "allowed", "status": "succeeded", "sent_bytes": 1.0, "received_bytes": 2.0, "duration_ms": 1000.0, "tenant_id": "acme", "instance_id": "acme:s:x", "cause": "sandbox"},
		{"operation": "reach_host", "host": "evil.example", "verdict": "refused", "status": "error", "reason": "not there", "tenant_id": "acme"},
		{"operation": "reach_host_lost", "lost": 7.0, "status": "unknown"},
	} {
		for name, value := range want {
			assert.Check(t, is.Equal(lines[4+n][name], value), name)
		}
	}
}
