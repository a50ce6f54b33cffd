package chaos_test

import (
	"net/http"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
)

// TestTheCheckerSeesWhatIsWrongInRealSandboxes is TestTheCheckerSeesWhatIsWrong for what is
// found by reading what has run.
func TestTheCheckerSeesWhatIsWrongInRealSandboxes(t *testing.T) {
	a := instanceOf("red", "a")
	ran := func(token string) cloud.Effect {
		return cloud.Effect{At: at(2), Kind: cloud.Started, Instance: a, Program: cloud.Program{Token: token}}
	}
	executed := event{Operation: opExecute, Tenant: "red", Instance: idOf(a), Token: "x", Printed: "x", Status: http.StatusOK, Began: time.Now()}
	with := func(change func(*event)) []event {
		e := executed
		change(&e)
		return []event{e}
	}
	known := map[string]bool{idOf(a): true}
	for name, test := range map[string]struct {
		events  []event
		effects []cloud.Effect
		known   map[string]bool
		used    float64
		want    string // none if empty
	}{
		"an execution ran":                 {[]event{executed}, []cloud.Effect{ran("x")}, known, 1, ""},
		"an execution did not run":         {[]event{executed}, []cloud.Effect{ran("y")}, known, 1, "lost: x "},
		"nobody knows whether it ran":      {[]event{executed}, nil, nil, 1, ""},
		"it printed what is another's":     {with(func(e *event) { e.Printed = "y" }), []cloud.Effect{ran("x")}, known, 1, "mixed up: x "},
		"it was told to have failed":       {with(func(e *event) { e.Status = http.StatusServiceUnavailable }), nil, known, 0, ""},
		"a start did not begin":            {with(func(e *event) { e.Operation, e.Printed = opStart, "" }), nil, known, 0, "lost: x "},
		"a creation did not run its code":  {with(func(e *event) { e.Operation, e.Instance, e.Told = opCreate, "", idOf(a) }), nil, known, 0, "lost: x "},
		"a command has not printed yet":    {with(func(e *event) { e.Operation, e.Printed = opFollow, "" }), []cloud.Effect{ran("x")}, known, 0, ""},
		"a command has printed another's":  {with(func(e *event) { e.Operation, e.Printed = opFollow, "y" }), []cloud.Effect{ran("x")}, known, 0, "mixed up: x "},
		"a file has a token":               {with(func(e *event) { e.Operation = opWrite }), nil, known, 0, ""},
		"an execution was not charged":     {[]event{executed}, []cloud.Effect{ran("x")}, known, 0, "not counted: "},
		"more were charged than there are": {[]event{executed}, []cloud.Effect{ran("x")}, known, 7, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.runs(test.events, test.effects, test.known)
			f.charged("red", test.events, test.used)
			if test.want == "" {
				assert.Check(t, is.Len(f, 0))
				return
			}
			assert.Assert(t, is.Len(f, 1), "%q", f)
			assert.Check(t, is.Contains(f[0], test.want))
		})
	}
	var f findings
	f.charged(frugal, []event{{Began: time.Now()}}, frugalExecutions+1)
	assert.Assert(t, is.Len(f, 1))
	assert.Check(t, is.Contains(f[0], "above a limit: "))
}
