package audited_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/origin"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// last is the last line about an effect.
func (s *scene) last(t *testing.T) map[string]any {
	t.Helper()
	lines := s.lines(t)
	return lines[len(lines)-1]
}

// open is how many effects have no end yet.
func (s *scene) open(t *testing.T) int {
	t.Helper()
	ends := map[any]bool{}
	begun := 0
	for _, l := range s.lines(t) {
		if l["event"] == "begin" {
			begun++
		} else {
			ends[l["effect_id"]] = true
		}
	}
	return begun - len(ends)
}

func (s *scene) listed(t *testing.T, list ...sdk.Instance) {
	t.Helper()
	s.client.list = list
	_, err := s.provider.List(t.Context())
	assert.NilError(t, err)
}

func (s *scene) execute(t *testing.T, from origin.Origin) map[string]any {
	t.Helper()
	_, err := s.provider.Execute(origin.With(t.Context(), from), sdk.ExecuteRequest{InstanceID: "i-1", Code: "1"}, nil)
	assert.NilError(t, err)
	return s.last(t)
}

// A cloud shows what it has made only after some seconds, and may leave it out of one
// list for no reason. The broker waits, and so do its lines.
func TestAListThatIsLateChangesNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, audit.Options{})
		made, err := s.provider.Create(t.Context(), sdk.CreateRequest{Labels: labels})
		assert.NilError(t, err)
		_, err = s.provider.(sdk.Commands).StartCommand(t.Context(), sdk.CommandRequest{InstanceID: "i-1", Argv: []string{"sleep"}})
		assert.NilError(t, err)

		for _, step := range []struct {
			after time.Duration
			lists []sdk.Instance
			known bool
		}{
			{0, nil, true},
			{59 * time.Second, nil, true},
			{30 * time.Second, []sdk.Instance{made}, true}, // there it is
			{time.Hour, nil, true},                         // once
			{59 * time.Second, nil, true},
			{time.Second, nil, false}, // and for good
		} {
			time.Sleep(step.after) // of the bubble
			s.listed(t, step.lists...)
			open := 0
			if step.known {
				open = 1
			}
			assert.Equal(t, s.open(t), open, "the command")
			line := s.execute(t, origin.Origin{Cause: origin.Request, Tenant: "acme"})
			assert.Equal(t, line["tenant_id"], "acme")
			assert.Equal(t, line["instance_id"] == "acme:s:xyz", step.known, "%v", line)
		}
	})
}

// What a plugin says of an instance later is its word against the broker's.
func TestLabelsOfAListAreNotBelievedAgainstWhatIsKnown(t *testing.T) {
	theirs := map[string]string{sdk.LabelTenant: "victim", sdk.LabelSession: "v", sdk.LabelInstance: "vvv"}
	tenants := origin.Origin{Cause: origin.Request, Tenant: "acme"}
	brokers := origin.Origin{Cause: origin.Expired}
	create := func(t *testing.T, s *scene) {
		t.Helper()
		_, err := s.provider.Create(t.Context(), sdk.CreateRequest{Labels: labels})
		assert.NilError(t, err)
	}
	list := func(labels map[string]string) func(*testing.T, *scene) {
		return func(t *testing.T, s *scene) {
			t.Helper()
			s.listed(t, sdk.Instance{ID: "i-1", Labels: labels})
		}
	}
	again := func(t *testing.T, s *scene) {
		t.Helper()
		_, err := s.provider.Create(t.Context(), sdk.CreateRequest{Labels: theirs})
		assert.NilError(t, err)
	}
	for name, test := range map[string]struct {
		steps          []func(*testing.T, *scene)
		from           origin.Origin
		tenant, within any // of the line; nil for none
	}{
		"listed with another's labels after it was made": {
			[]func(*testing.T, *scene){create, list(theirs)}, brokers, "acme", "acme:s:xyz",
		},
		"listed without labels after it was made": {
			[]func(*testing.T, *scene){create, list(nil)}, brokers, "acme", "acme:s:xyz",
		},
		"listed with another's labels before the answer": {
			[]func(*testing.T, *scene){list(theirs), create}, brokers, "acme", "acme:s:xyz",
		},
		"given out a second time": {
			[]func(*testing.T, *scene){create, again}, brokers, "acme", "acme:s:xyz",
		},
		"first listed, then with another's labels": {
			[]func(*testing.T, *scene){list(labels), list(theirs)}, brokers, "acme", "acme:s:xyz",
		},
		"first listed without labels": {
			[]func(*testing.T, *scene){list(nil), list(labels)}, brokers, "acme", "acme:s:xyz",
		},
		"only listed, with another's labels, and used by its tenant": {
			[]func(*testing.T, *scene){list(theirs)}, tenants, "acme", nil,
		},
		"only listed, without labels, and used by its tenant": {
			[]func(*testing.T, *scene){list(nil)}, tenants, "acme", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, audit.Options{})
			for _, step := range test.steps {
				step(t, s)
			}
			line := s.execute(t, test.from)
			assert.Equal(t, line["tenant_id"], test.tenant)
			assert.Equal(t, line["instance_id"], test.within)
		})
	}
}
