package chaos_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// in puts an effect at a cloud.
func in(name string, e cloud.Effect) cloud.Effect {
	e.Cloud = name
	return e
}

// by says which processes an effect was asked for by.
func by(broker, plugin string, e cloud.Effect) cloud.Effect {
	e.Broker, e.Process = broker, plugin
	return e
}

func TestTheCheckerSeesWhatIsWrongBetweenTwoProviders(t *testing.T) {
	a, b := instanceOf("red", "a"), instanceOf("red", "b")
	b.ID = a.ID // each cloud numbers its own
	labels := []string{"east", "west"}
	told := func(provider, reason string, tried ...string) []event {
		return []event{{Operation: opCreate, Tenant: "red", Told: idOf(a), Status: http.StatusCreated, Provider: provider, Reason: reason, Tried: tried}}
	}
	named := told("west", "requested")
	named[0].Named = "east"
	several := func(i cloud.Instance) cloud.Instance {
		i.Labels = map[string]string{sdk.LabelTenant: "red", sdk.LabelSession: "n-1", sdk.LabelInstance: i.Labels[sdk.LabelInstance]}
		return i
	}
	full := func(plugins ...string) (all []cloud.Effect) {
		for i := range maxConcurrent + 1 {
			all = append(all, by("1", plugins[i%len(plugins)], executed(i, a)))
		}
		return all
	}
	killed := cloud.Effect{Kind: cloud.Killed, Process: "2"}
	for name, test := range map[string]struct {
		find func(*findings)
		want string // none if empty
	}{
		"a session has one at each": {
			func(f *findings) {
				f.effects(nil, []cloud.Effect{in("east", created(1, a)), in("west", created(2, b))})
			}, "doubled: ",
		},
		"a session whose clients name providers has one at each": {
			func(f *findings) {
				f.effects(nil, []cloud.Effect{in("east", created(1, several(a))), in("west", created(2, several(b)))})
			}, "",
		},
		"a session whose clients name providers has two at one": {
			func(f *findings) {
				f.effects(nil, []cloud.Effect{in("east", created(1, several(a))), in("east", created(2, several(b)))})
			}, "doubled: ",
		},
		"the end of the one at the other cloud is none of this": {
			func(f *findings) {
				f.effects(nil, []cloud.Effect{in("east", created(1, a)), in("west", cloud.Effect{Kind: cloud.Gone, Instance: b}), in("west", created(3, b))})
			}, "doubled: ",
		},
		"it is where it is said to be": {
			func(f *findings) {
				f.providers(told("east", "active"), []cloud.Effect{in("east", created(1, a))}, labels)
			}, "",
		},
		"it is elsewhere": {
			func(f *findings) {
				f.providers(told("east", "active"), []cloud.Effect{in("west", created(1, a))}, labels)
			}, "misplaced: ",
		},
		"it is not where it was asked for": {
			func(f *findings) { f.providers(named, []cloud.Effect{in("west", created(1, a))}, labels) }, "misplaced: ",
		},
		"a fail-over says after what": {
			func(f *findings) {
				f.providers(told("west", "fallback", "SB008"), []cloud.Effect{in("west", created(1, a))}, labels)
			}, "",
		},
		"a fail-over does not say after what": {
			func(f *findings) {
				f.providers(told("west", "fallback"), []cloud.Effect{in("west", created(1, a))}, labels)
			}, "unexplained: ",
		},
		"a provider serves whom it may not": {
			func(f *findings) {
				f.providers(nil, []cloud.Effect{in("east", created(1, instanceOf(bound, "a")))}, labels)
			}, "not allowed: ",
		},
		"a line of the other provider": {
			func(f *findings) {
				line := auditLine{Event: "begin", Operation: "create_instance", Instance: idOf(a), Provider: "west", Timestamp: at(1)}
				f.audit([]cloud.Effect{in("east", created(2, a))}, []auditLine{line})
			}, "unaudited: ",
		},
		"one execution too many over both": {func(f *findings) { f.concurrent(full("2", "3")) }, "above a limit: "},
		"a plugin that was killed executes nothing": {
			func(f *findings) {
				all := full("2", "3")
				f.concurrent(append(append(all[:maxConcurrent:maxConcurrent], killed), all[maxConcurrent:]...))
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			test.find(&f)
			if test.want == "" {
				assert.Check(t, is.Len(f, 0))
				return
			}
			assert.Assert(t, is.Len(f, 1))
			assert.Check(t, is.Contains(f[0], test.want))
		})
	}
}
