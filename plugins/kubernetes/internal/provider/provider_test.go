package provider

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/golden"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestlink"
	"github.com/sandbox-broker/sandbox-broker/plugins/kubernetes/internal/pods"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// These tests are inside the package: they look at pods that no API server has seen.

func resolved(t *testing.T, given map[string]any) sdk.Settings {
	t.Helper()
	all := map[string]any{"namespace": "sandboxes", "image": "rootfs:1"}
	for name, value := range given {
		all[name] = value
	}
	settings, problems := schema().Resolve(all)
	assert.Assert(t, is.Len(problems, 0))
	return settings
}

// pod are settings with the pod's network and one block of egress.
func pod(egress map[string]any) map[string]any {
	return map[string]any{"network": "pod", "egress": []any{egress}}
}

func TestSettingsThatCannotBeAreRefusedByName(t *testing.T) {
	p := New(hclog.NewNullLogger()).(*Provider)
	for name, test := range map[string]struct {
		given map[string]any
		field string
	}{
		"no class and a kernel of one's own":  {map[string]any{"runtime_class": ""}, "runtime_class"},
		"a context of no file":                {map[string]any{"context": "c"}, "context"},
		"a short secret":                      {map[string]any{"secret": "short"}, "secret"},
		"a pool above the bound":              {map[string]any{"pool_size": 10, "max_sandboxes": 5}, "pool_size"},
		"pods that are replaced all the time": {map[string]any{"max_age": "5s"}, "max_age"},
		"pods that end under the plugin":      {map[string]any{"abandoned_after": "1m"}, "abandoned_after"},
		"a request above the limit":           {map[string]any{"cpus": 0.5, "cpu_request": 1}, "cpu_request"},
		"memory above the limit":              {map[string]any{"memory_mb": 64, "memory_request_mb": 1000}, "memory_request_mb"},
		"no name of a secret":                 {map[string]any{"image_pull_secrets": []any{"Not a name"}}, "image_pull_secrets"},
		"packages from nowhere":               {map[string]any{"packages": "on"}, "packages"},
		"egress of no network":                {map[string]any{"egress": []any{map[string]any{"cidr": "203.0.113.0/24"}}}, "egress"},
		"names without a network":             {map[string]any{"dns": "cluster"}, "dns"},
		"no network":                          {pod(map[string]any{"cidr": "203.0.113.1/24"}), "egress[0].cidr"},
		"where clouds tell secrets":           {pod(map[string]any{"cidr": "169.254.169.254/32"}), "egress[0].cidr"},
		"an address of IPv4 in one of IPv6":   {pod(map[string]any{"cidr": "::ffff:169.254.169.254/128"}), "egress[0].cidr"},
		"the same in IPv6":                    {pod(map[string]any{"cidr": "fd00:ec2::254/128"}), "egress[0].cidr"},
		"an exception that is elsewhere":      {pod(map[string]any{"cidr": "203.0.113.0/24", "except": []any{"198.51.100.0/24"}}), "egress[0].except"},
		"an exception that is all":            {pod(map[string]any{"cidr": "203.0.113.0/24", "except": []any{"203.0.113.0/24"}}), "egress[0].except"},
		"no port":                             {pod(map[string]any{"cidr": "203.0.113.0/24", "ports": []any{"https"}}), "egress[0].ports"},
		"a port that is too large":            {pod(map[string]any{"cidr": "203.0.113.0/24", "ports": []any{"65536"}}), "egress[0].ports"},
		"ports that end before they begin":    {pod(map[string]any{"cidr": "203.0.113.0/24", "ports": []any{"80-79/udp"}}), "egress[0].ports"},
		"a policy about nothing":              {map[string]any{"policy_blocked_imports": []any{"os"}}, "policy_blocked_imports"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := p.Validate(t.Context(), resolved(t, test.given))
			assert.Assert(t, is.Len(problems, 1))
			assert.Equal(t, problems[0].Field, test.field)
		})
	}
	assert.Assert(t, is.Len(p.Validate(t.Context(), resolved(t, nil)), 0))
}

// The whole pod is a golden file, so that no change of what confines code goes unseen.
func TestAPod(t *testing.T) {
	for name, given := range map[string]map[string]any{
		"gvisor": nil,
		"shared": {
			"runtime_class": "", "kernel": "shared", "guest_image": "guest:1", "network": "pod", "service_account": "none", "image_pull_secrets": []any{"pull"},
			"node_selector": map[string]any{"pool": "sandboxes"}, "toleration": []any{map[string]any{"key": "sandboxes"}}, "cpus": 0.5, "cpu_request": 0.1, "memory_request_mb": 128,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			assert.NilError(t, resolved(t, given).Decode(&s))
			text, err := json.MarshalIndent(s.pod("public-key"), "", "  ")
			assert.NilError(t, err)
			golden.Assert(t, string(text)+"\n", "pod_"+name+".json")
		})
	}
}

func TestANetworkPolicy(t *testing.T) {
	for name, given := range map[string]map[string]any{
		"nothing": {"network": "pod", "reach": "api"},
		"some": {"network": "pod", "dns": "cluster", "egress": []any{
			map[string]any{"cidr": "203.0.113.0/24", "ports": []any{"443", "53/udp", "8000-8999"}},
			map[string]any{"cidr": "0.0.0.0/0", "except": []any{"10.0.0.0/8"}},
			map[string]any{"cidr": "::/0", "ports": []any{"443/tcp"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var s settings
			assert.NilError(t, resolved(t, given).Decode(&s))
			spec, err := s.policy("owner")
			assert.NilError(t, err)
			text, err := json.MarshalIndent(spec, "", "  ")
			assert.NilError(t, err)
			golden.Assert(t, string(text)+"\n", "policy_"+name+".json")
		})
	}
}

// The watch tells of a pod that was taken a moment later than the answer to that.
func TestACreationThatComesAgainAtOnceMakesNoSecondInstance(t *testing.T) {
	p := New(hclog.NewNullLogger()).(*Provider)
	made := &instance{Instance: sdk.Instance{ID: "made"}, creation: "key", sandbox: &sandbox{exited: make(chan struct{})}}
	p.byID["made"] = made
	found, ok := p.createdHere("key")
	assert.Assert(t, ok)
	assert.Equal(t, found.ID, "made")
	_, ok = p.createdHere("another")
	assert.Assert(t, !ok)
	made.end(&pods.Ending{})
	_, ok = p.createdHere("key")
	assert.Assert(t, !ok, "it has ended")
}

func TestKeysOfPodsOutliveTheProcess(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	first, err := openKeyring("ns", "", dir, nil)
	assert.NilError(t, err)
	authority, err := first.own()
	assert.NilError(t, err)
	neighbour, err := openKeyring("ns", "", other, nil)
	assert.NilError(t, err)
	_, ours := neighbour.of(guestlink.Public(authority))
	assert.Assert(t, !ours)
	elsewhere, err := openKeyring("another", "", dir, nil)
	assert.NilError(t, err)
	_, ours = elsewhere.of(guestlink.Public(authority))
	assert.Assert(t, !ours, "it is of no use in another namespace")

	for name, abandoned := range map[string][]string{"in the same place": {dir}, "in another": {other, dir}} {
		t.Run(name, func(t *testing.T) {
			later, err := openKeyring("ns", "", abandoned[0], abandoned[1:])
			assert.NilError(t, err)
			found, ours := later.of(guestlink.Public(authority))
			assert.Assert(t, ours && found.Equal(authority))
		})
	}
	info, err := os.Stat(filepath.Join(dir, secretFile))
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))

	const operators = "thirty-two characters or some more"
	given, err := openKeyring("ns", operators, dir, nil)
	assert.NilError(t, err)
	_, ours = given.of(guestlink.Public(authority))
	assert.Assert(t, ours, "pods from before it was given")
	text, err := os.ReadFile(filepath.Join(dir, secretFile))
	assert.NilError(t, err)
	assert.Assert(t, len(text) == 65, "the operator's is written down nowhere: %d bytes", len(text))
}
