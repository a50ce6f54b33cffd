package chaos_test

import (
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// TestTheCheckerSeesWhatIsWrongWithWhatIsKept gives it histories of keepers with one fault
// each.
func TestTheCheckerSeesWhatIsWrongWithWhatIsKept(t *testing.T) {
	done := func(operation operation, second int, e event) event {
		e.Operation, e.Tenant, e.Status, e.Began, e.Ended = operation, "amber", http.StatusOK, at(second), at(second+1)
		return e
	}
	failed := func(e event, status int) event {
		e.Status = status
		return e
	}
	cut := func(e event) event {
		e.Status, e.Error = 0, "EOF"
		return e
	}
	of := func(tenant string, e event) event {
		e.Tenant = tenant
		return e
	}
	made := done(opSnapshot, 1, event{Kept: "snap-a", Expires: at(100)})
	lists := func(second int, ids ...string) event { return done(opSnapshots, second, event{List: ids}) }
	drop := func(second int) event { return done(opDrop, second, event{Kept: "snap-a"}) }
	tells := func(printed string) event {
		return done(opTell, 5, event{Kept: "snap-a", Instance: "i", List: []string{"x", "y"}, Printed: printed})
	}
	fork := done(opFork, 1, event{Kept: "f", List: []string{"amber:s:a", "amber:t:b"}})
	left := func(ids ...string) event { return done(opLeft, 3, event{Kept: "f", List: ids}) }
	read := func(token, printed string) event {
		return done(opGet, 1, event{Kept: "v", Token: token, Printed: printed})
	}
	template := cloud.Template{Name: "t-amber-0", Image: "sha256:1"}
	instance := func(tenant, image string) cloud.Effect {
		return cloud.Effect{Kind: cloud.Created, Instance: cloud.Instance{Labels: map[string]string{sdk.LabelTenant: tenant}, Template: template.Name, Image: image}}
	}
	built := cloud.Effect{Kind: cloud.Built, Template: template, At: at(2)}
	kept := cloud.Effect{Kind: cloud.Kept, Snapshot: cloud.Snapshot{ID: "cloudsnap", Labels: map[string]string{sdk.LabelSnapshot: "snap-a"}}, At: at(2)}
	allotted := cloud.Effect{Kind: cloud.Allotted, Volume: cloud.Volume{ID: "cloudvol", Labels: map[string]string{sdk.LabelVolume: "v"}}, At: at(2)}
	for name, test := range map[string]struct {
		events  []event
		effects []cloud.Effect
		forked  map[string][]string
		want    string // none if empty
	}{
		"a snapshot is listed":                           {events: []event{made, lists(5, "snap-a")}},
		"a snapshot is not listed":                       {events: []event{made, lists(5)}, want: "lost: "},
		"one whose end was asked for is not listed":      {events: []event{made, failed(drop(4), 503), lists(6)}},
		"one whose end was asked for later is":           {events: []event{made, lists(5), drop(9)}, want: "lost: "},
		"one whose end was acknowledged is listed":       {events: []event{made, drop(4), lists(6, "snap-a")}, want: "undead: "},
		"one that has expired is listed":                 {events: []event{made, lists(200, "snap-a")}, want: "undead: "},
		"one that has expired is not listed":             {events: []event{made, lists(200)}},
		"another tenant is shown a snapshot":             {events: []event{made, of("jade", lists(5, "snap-a"))}, want: "seen: "},
		"nothing goes on from it":                        {events: []event{made, failed(done(opCreate, 5, event{Kept: "snap-a"}), 404)}, want: "lost: "},
		"nothing goes on from it after its time":         {events: []event{made, failed(done(opCreate, 200, event{Kept: "snap-a"}), 404)}},
		"a copy holds what its original held":            {events: []event{tells("x"), tells("x")}},
		"a copy holds something else":                    {events: []event{tells("z")}, want: "mixed up: "},
		"a copy holds nothing":                           {events: []event{failed(tells(""), 404)}, want: "lost: "},
		"copies are of two moments":                      {events: []event{tells("x"), tells("y")}, want: "torn: "},
		"a fork has all its copies":                      {events: []event{fork}, forked: map[string][]string{"f": fork.List}},
		"a fork has not all":                             {events: []event{done(opFork, 1, event{Kept: "f", List: fork.List[:1]})}, want: "torn: "},
		"a fork was refused and has none":                {events: []event{failed(done(opFork, 1, event{Kept: "f"}), 503), left()}},
		"a fork was refused and has a copy":              {events: []event{failed(done(opFork, 1, event{Kept: "f"}), 503), left("a")}, want: "left over: "},
		"a fork was refused and has all":                 {events: []event{failed(done(opFork, 1, event{Kept: "f"}), 503), left("a", "b")}, want: "left over: "},
		"a fork was cut off and has all":                 {events: []event{cut(done(opFork, 1, event{Kept: "f"})), left("a", "b")}},
		"a fork was cut off and has a part":              {events: []event{cut(done(opFork, 1, event{Kept: "f"})), left("a")}, want: "left over: "},
		"there is a copy that nobody was told of":        {events: []event{fork}, forked: map[string][]string{"f": {"amber:u:c"}}, want: "left over: "},
		"a volume holds what was written":                {events: []event{read("x", "x")}},
		"a volume holds something else":                  {events: []event{read("x", "y")}, want: "mixed up: "},
		"a new volume holds something":                   {events: []event{read("", "y")}, want: "mixed up: "},
		"a new volume holds nothing":                     {events: []event{failed(read("", ""), 404)}},
		"a volume holds nothing any more":                {events: []event{failed(read("x", ""), 404)}, want: "lost: "},
		"a volume is no more when it is written to":      {events: []event{failed(done(opPut, 1, event{Kept: "v"}), 404)}, want: "lost: "},
		"a volume that an instance has is not removed":   {events: []event{failed(done(opFree, 1, event{Kept: "v", Instance: "i"}), 409)}},
		"a volume that an instance has is removed":       {events: []event{done(opFree, 1, event{Kept: "v", Instance: "i"})}, want: "lost: "},
		"an instance is made of what was built":          {effects: []cloud.Effect{built, instance("amber", template.Image)}},
		"an instance is made of what was not":            {effects: []cloud.Effect{built, instance("amber", "sha256:2")}, want: "mixed up: "},
		"an instance of a template of somebody else":     {effects: []cloud.Effect{built, instance("jade", template.Image)}, want: "seen: "},
		"a tenant is told of one of that":                {events: []event{of("jade", done(opCreate, 1, event{Kept: template.Name}))}, want: "seen: "},
		"a key is answered with two snapshots":           {events: []event{done(opSnapshot, 1, event{Key: "k", Kept: "a"}), done(opSnapshot, 1, event{Key: "k", Kept: "b"})}, want: "doubled: "},
		"a key is answered with other copies of a fork":  {events: []event{done(opFork, 1, event{Key: "k", Kept: "f", List: fork.List}), done(opFork, 1, event{Key: "k", Kept: "f", List: []string{"c", "d"}})}, want: "doubled: "},
		"a key is answered with the same copies of them": {events: []event{done(opFork, 1, event{Key: "k", Kept: "f", List: fork.List}), done(opFork, 1, event{Key: "k", Kept: "f", List: fork.List})}},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.kept(test.events, test.effects, test.forked)
			f.keys(test.events)
			if test.want == "" {
				assert.Check(t, is.Len(f, 0))
				return
			}
			assert.Assert(t, len(f) > 0)
			assert.Check(t, is.Contains(f[0], test.want))
		})
	}
	for name, test := range map[string]struct {
		effect cloud.Effect
		line   auditLine
	}{
		"a snapshot":                {kept, auditLine{Operation: "create_snapshot", Snapshot: "snap-a"}},
		"the end of a snapshot":     {cloud.Effect{Kind: cloud.Dropped, Snapshot: kept.Snapshot, At: at(2)}, auditLine{Operation: "delete_snapshot", ProviderSnapshot: "cloudsnap"}},
		"a volume":                  {allotted, auditLine{Operation: "create_volume", To: "v"}},
		"the end of a volume":       {cloud.Effect{Kind: cloud.Freed, Volume: allotted.Volume, At: at(2)}, auditLine{Operation: "delete_volume", ProviderInstance: "cloudvol"}},
		"a template":                {built, auditLine{Operation: "build_template", Template: template.Name}},
		"the removal of a template": {cloud.Effect{Kind: cloud.Discarded, Template: template, At: at(2)}, auditLine{Operation: "remove_template", Path: template.Image}},
	} {
		t.Run("the line of "+name, func(t *testing.T) {
			test.line.Event, test.line.Timestamp = "begin", at(1)
			var f findings
			f.audit([]cloud.Effect{test.effect}, []auditLine{test.line})
			assert.Check(t, is.Len(f, 0))
			f.audit([]cloud.Effect{test.effect}, nil)
			assert.Assert(t, is.Len(f, 1))
			assert.Check(t, is.Contains(f[0], "unaudited: "))
		})
	}
}
