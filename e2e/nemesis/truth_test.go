package nemesis_test

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// effect is one of the cloud, at a second, in an instance that a broker has made for a session of
// a tenant.
func effect(at int, kind cloud.Kind, name, owner, tenant, session string) cloud.Effect {
	labels := map[string]string{sdk.LabelTenant: tenant, sdk.LabelSession: session, sdk.LabelInstance: name, sdk.LabelBroker: owner}
	return cloud.Effect{At: start.Add(time.Duration(at) * time.Second), Kind: kind, Instance: cloud.Instance{ID: name, Labels: labels}}
}

// What the cloud has noted is found that must not be, and nothing else.
func TestWhatTheCloudHasNoted(t *testing.T) {
	t.Parallel()
	truth := model.Truth{Windows: []model.Window{{Broker: "a", From: start.Add(10 * time.Second), To: start.Add(20 * time.Second)}}}
	made := func(at int, name, owner string) cloud.Effect {
		return effect(at, cloud.Created, name, owner, ofSessions, "s")
	}
	ran := func(at int, name, owner string) cloud.Effect {
		return effect(at, cloud.Executed, name, owner, ofSessions, "s")
	}
	gone := func(at int, name, owner string) cloud.Effect {
		return effect(at, cloud.Gone, name, owner, ofSessions, "s")
	}
	one := func(at int, name, owner string) cloud.Effect {
		return effect(at, cloud.Created, name, owner, frugal(1), "s-"+name)
	}
	ending := &round{sessions: []*subject{{history: model.History{{Kind: model.Destroy, ID: ofSessions + ":s:x", Call: start.Add(time.Second)}}}}}
	told := &round{sessions: []*subject{{history: model.History{{Kind: model.Create, ID: ofSessions + ":s:x", Outcome: model.Done, Return: start.Add(2 * time.Second)}}}}}
	for name, test := range map[string]struct {
		round   *round
		effects []cloud.Effect
		found   string
	}{
		"a session begins anew":            {&round{}, []cloud.Effect{made(1, "x", "a"), ran(2, "x", "a"), gone(3, "x", "a"), made(4, "y", "b"), ran(5, "y", "b")}, ""},
		"a session has two":                {&round{}, []cloud.Effect{made(1, "x", "b"), made(2, "y", "c")}, "doubled"},
		"one of them is being ended":       {ending, []cloud.Effect{made(0, "x", "b"), made(2, "y", "c")}, ""},
		"the owner of one is dead":         {&round{}, []cloud.Effect{made(1, "x", "a"), made(12, "y", "b"), ran(13, "y", "b")}, ""},
		"it is not dead yet":               {&round{}, []cloud.Effect{made(1, "x", "a"), made(9, "y", "b")}, "doubled"},
		"the dead one goes on":             {&round{}, []cloud.Effect{made(1, "x", "a"), made(12, "y", "b"), ran(13, "y", "b"), ran(14, "x", "a")}, "two owners"},
		"one is made twice":                {told, []cloud.Effect{made(1, "x", "b"), gone(3, "x", "b"), made(4, "x", "b")}, "doubled"},
		"one that was undone is made":      {&round{}, []cloud.Effect{made(1, "x", "b"), gone(2, "x", "b"), made(3, "x", "b")}, ""},
		"a tenant has as many as it may":   {&round{}, []cloud.Effect{one(1, "1", "a"), one(1, "2", "b"), one(1, "3", "c"), one(1, "4", "b")}, ""},
		"a tenant has too many":            {&round{}, []cloud.Effect{one(1, "1", "a"), one(1, "2", "b"), one(1, "3", "c"), one(1, "4", "b"), one(2, "5", "c")}, "over-granted"},
		"those of a dead one do not count": {&round{}, []cloud.Effect{one(1, "1", "a"), one(1, "2", "b"), one(1, "3", "c"), one(1, "4", "b"), one(12, "5", "c")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var found findings
			found.instances(test.round, test.effects, truth)
			if test.found == "" {
				assert.Check(t, is.Len(found, 0))
				return
			}
			assert.Assert(t, is.Len(found, 1))
			assert.Check(t, strings.HasPrefix(found[0], test.found), "%s", found[0])
		})
	}
}
