package provider

import (
	_ "embed"
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var handOvers = flag.Int("hand-overs", 20, "how often a sandbox is handed over in the test of what is left behind")

//go:embed testdata/residue.py
var residue string

// oneShot runs code in an instance that it may share with others of its tenant, and ends
// it.
func oneShot(t *testing.T, p testProvider, tenant, code string) outcome {
	t.Helper()
	i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Labels: map[string]string{sdk.LabelTenant: tenant}, Reuse: true})
	assert.NilError(t, err)
	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: i.ID, Language: sdk.Python, Code: code})
	assert.NilError(t, err)
	assert.NilError(t, p.Destroy(t.Context(), i.ID))
	return o
}

func residueProgram(action string) string { return "action = '" + action + "'\n" + residue }

// Whatever an execution leaves behind, the next one in the same sandbox finds nothing of
// it, and could have found it.
func TestNothingIsLeftBehindInASandboxThatIsHandedOver(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, map[string]any{"one_shot": "tenant", "one_shot_uses": 1 << 20, "one_shot_age": "24h"})
	kinds := strings.Fields(oneShot(t, p, "a", residueProgram("kinds")).stdout)
	assert.Assert(t, len(kinds) >= 60, "%d kinds", len(kinds))

	both := oneShot(t, p, "control", residueProgram("both"))
	assert.DeepEqual(t, strings.Fields(both.stdout), kinds)

	times := *handOvers
	if testing.Short() {
		times = min(times, 8)
	}
	for n := range times {
		left := oneShot(t, p, "a", residueProgram("leave"))
		assert.Equal(t, left.stdout, "", "hand-over %d", n)
		found := oneShot(t, p, "a", residueProgram("find"))
		assert.Equal(t, found.stdout, "looked "+strconv.Itoa(len(kinds))+"\n", "hand-over %d: %s", n, found.stderr)
	}
	// What was left may take so long to be gone that a sandbox is given up.
	reused := p.pool.Stats().Reused
	assert.Assert(t, reused > int64(times), "%d of %d", reused, 2*times)
}

// A sandbox goes to nobody but its tenant, and only after one execution that has ended by
// itself.
func TestASandboxIsHandedOverToItsTenantAlone(t *testing.T) {
	tier.Full(t)
	cases := map[string]struct {
		tenant string // of the second execution
		use    func(t *testing.T, p testProvider, id string)
		reuse  bool
		want   bool
	}{
		"the next of the tenant": {"a", hello, true, true},
		"another tenant":         {"b", hello, true, false},
		"one that wants a fresh": {"a", hello, false, false},
		"no execution":           {"a", func(*testing.T, testProvider, string) {}, true, false},
		"two executions": {"a", func(t *testing.T, p testProvider, id string) {
			hello(t, p, id)
			hello(t, p, id)
		}, true, false},
		"a network": {"a", func(t *testing.T, p testProvider, id string) {
			assert.NilError(t, p.SetNetwork(t.Context(), id, sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "a.example.com"}}}))
			hello(t, p, id)
		}, true, false},
		"an execution that was killed": {"a", func(t *testing.T, p testProvider, id string) {
			_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "import os; os.kill(os.getpid(), 9)"})
			assert.NilError(t, err)
		}, true, false},
		"an execution that failed": {"a", func(t *testing.T, p testProvider, id string) {
			_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "1/0"})
			assert.NilError(t, err)
		}, true, true},
	}
	p := newProvider(t, map[string]any{"one_shot": "tenant"})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := p.pool.Stats().Reused
			create := func(tenant string, reuse bool) string {
				i, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython, Labels: map[string]string{sdk.LabelTenant: name + tenant}, Reuse: reuse})
				assert.NilError(t, err)
				return i.ID
			}
			first := create("a", true)
			c.use(t, p, first)
			assert.NilError(t, p.Destroy(t.Context(), first))
			second := create(c.tenant, c.reuse)
			hello(t, p, second)
			assert.NilError(t, p.Destroy(t.Context(), second))
			assert.Equal(t, p.pool.Stats().Reused-before == 1, c.want)
			assert.Assert(t, first != second)
		})
	}
}

func hello(t *testing.T, p testProvider, id string) {
	t.Helper()
	o, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)"})
	assert.NilError(t, err)
	assert.Equal(t, o.stdout, "1\n")
}

// What is kept for a tenant makes room for what others wait for.
func TestAKeptSandboxMakesRoom(t *testing.T) {
	p := newProvider(t, map[string]any{"one_shot": "tenant", "max_sandboxes": 1})
	oneShot(t, p, "a", "print(1)")
	o := oneShot(t, p, "b", "print(2)")
	assert.Equal(t, o.stdout, "2\n")
	assert.Equal(t, p.pool.Stats().Reused, int64(0))
}

func TestASandboxIsHandedOverSoOftenAndNoMore(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, map[string]any{"one_shot": "tenant", "one_shot_uses": 3})
	for range 7 {
		oneShot(t, p, "a", "print(1)")
	}
	assert.Equal(t, p.pool.Stats().Reused, int64(4)) // the second and third of each
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if p.pool.Stats().Made == 3 {
			return poll.Success()
		}
		return poll.Continue("made %d", p.pool.Stats().Made)
	}, poll.WithTimeout(time.Minute))
}

func TestPackagesAndReuseExcludeEachOther(t *testing.T) {
	p := New(hclog.NewNullLogger())
	settings, problems := p.Describe().Schema.Resolve(map[string]any{"one_shot": "tenant", "packages": "on", "package_index": "https://packages.example.com/simple/"})
	assert.Assert(t, is.Len(problems, 0))
	found := p.(*Provider).Validate(t.Context(), settings)
	assert.Assert(t, is.Len(found, 1))
	assert.Equal(t, found[0].Field, "one_shot")
}
