package chaos_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
)

// through puts an event through a front door, where instances have the last part of their
// ID as their name.
func through(door string, e event) event {
	e.Door, e.Told, e.Instance = door, lastPart(e.Told), lastPart(e.Instance)
	return e
}

func TestTheCheckerSeesWhatIsWrongThroughADoor(t *testing.T) {
	const box, flow = "opensandbox", "ragflow"
	a, b, theirs := instanceOf("red", "a"), instanceOf("red", "b"), instanceOf("blue", "c")
	told := func(i cloud.Instance) event {
		return through(box, event{Operation: opCreate, Tenant: "red", Told: idOf(i), Status: http.StatusAccepted, Key: "k"})
	}
	of := func(operation operation, change func(e *event)) event {
		e := event{Operation: operation, Tenant: "red", Instance: idOf(a), Status: http.StatusOK}
		change(&e)
		return through(box, e)
	}
	same := func(*event) {}
	ran := through(flow, event{Operation: opRun, Tenant: "red", Token: "x", Printed: "x", Status: http.StatusOK})
	begun := func(seconds int, argv ...string) cloud.Effect {
		return cloud.Effect{At: at(seconds), Kind: cloud.Started, Instance: a, Argv: argv, Program: cloud.Program{Token: "x"}}
	}
	wrote := cloud.Effect{At: at(2), Kind: cloud.Wrote, Instance: a, Path: "/p"}
	line := func(operation string) auditLine {
		return auditLine{
			Event: "begin", Operation: operation, Instance: idOf(a), ProviderInstance: a.ID, Timestamp: at(1), Execution: "e", Path: "/p", Door: box,
			CodeHash: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("run\x00{}"))),
		}
	}
	elsewhere := line("create_instance")
	elsewhere.Door = ""
	two := []cloud.Effect{created(1, a), created(1, b), created(1, theirs)}
	for name, test := range map[string]struct {
		events  []event
		effects []cloud.Effect
		alive   []cloud.Instance
		lines   []auditLine
		// find is the check; of the events as the broker names them.
		find func(f *findings, events []event, effects []cloud.Effect, alive []cloud.Instance, lines []auditLine)
		want string // none if empty
	}{
		"a sandbox is there": {events: []event{told(a)}, effects: two, alive: []cloud.Instance{a}, find: findLost},
		"a sandbox is lost":  {events: []event{told(a)}, effects: two, find: findLost, want: "lost: red:s:a"},
		"a sandbox was destroyed through the door": {
			events: []event{told(a), of(opDestroy, same)}, effects: two, find: findLost,
		},
		"a sandbox was destroyed through the broker's own API": {
			events: []event{told(a), {Operation: opDestroy, Instance: idOf(a)}}, effects: two, find: findLost,
		},
		"a sandbox that was destroyed is there": {
			events: []event{told(a), of(opDestroy, same)}, effects: two, alive: []cloud.Instance{a}, find: findLost, want: "undead: the end of red:s:a",
		},
		"a sandbox was never made": {events: []event{told(a)}, find: findNothing, want: "lost: opensandbox told of a"},
		"an owner is told that a sandbox is not there": {
			events:  []event{told(a), of(opCommand, func(e *event) { e.Status = http.StatusNotFound })},
			effects: two, alive: []cloud.Instance{a}, find: findLost, want: "denied: red:s:a",
		},
		"the token of a sandbox opens it no more": {
			events:  []event{told(a), of(opExecute, func(e *event) { e.Status = http.StatusUnauthorized })},
			effects: two, alive: []cloud.Instance{a}, find: findLost, want: "denied: red:s:a",
		},
		"a key is answered with two sandboxes": {
			events: []event{told(a), told(b)}, effects: two, find: findKeys, want: "doubled: the key k",
		},
		"a key is taken for that of another request": {
			events:  []event{of(opCreate, func(e *event) { e.Status, e.Key, e.Detail = 400, "k", "Idempotency-Key: was used for another request" })},
			effects: two, find: findKeys, want: "mixed up: the key k",
		},
		"a sandbox of another tenant is told of": {events: []event{told(theirs)}, effects: two, find: findSeen, want: "seen: red was told of blue:s:c"},
		"a sandbox of another tenant is listed": {
			events: []event{of(opList, func(e *event) { e.List = []string{"a", "c"} })}, effects: two, find: findSeen, want: "seen: red was shown blue:s:c",
		},
		"a sandbox of another tenant is used": {
			events: []event{of(opSteal, func(e *event) { e.Outcome = "error" })}, effects: two, find: findSeen, want: "seen: red got at red:s:a",
		},
		"a run has run": {events: []event{ran}, effects: []cloud.Effect{executed(1, a)}, find: findRun},
		"a run that was answered with success has not run": {events: []event{ran}, find: findRun, want: "lost: x"},
		"a run that failed has not run": {
			events: []event{through(flow, event{Operation: opRun, Token: "x", Status: http.StatusOK, Outcome: "program_runner_error -3"})}, find: findRun,
		},
		"a run is answered with the output of another one": {
			events:  []event{through(flow, event{Operation: opRun, Tenant: "red", Token: "x", Printed: "y", Status: http.StatusOK})},
			effects: []cloud.Effect{executed(1, a)}, find: findRun, want: "mixed up: x",
		},
		"a run that was sent again runs twice": {
			events: []event{ran}, effects: []cloud.Effect{executed(1, a), executed(2, a)}, find: findDoubled, want: "doubled: x",
		},
		"a program of a creation that was sent again runs twice": {
			events: []event{of(opCreate, func(e *event) { e.Token = "x" })}, effects: []cloud.Effect{begun(1), begun(2)}, find: findDoubled, want: "doubled: x",
		},
		"a command of another tenant's": {
			events: []event{through(box, event{Operation: opStart, Tenant: "blue", Token: "x"})}, effects: []cloud.Effect{begun(1)}, find: findDoubled, want: "mixed up: code of blue",
		},
		"a command that was acknowledged has not run": {
			events: []event{of(opStart, func(e *event) { e.Token = "x" })}, effects: two, find: findRun, want: "lost: x",
		},
		"a log is that of another command": {
			events:  []event{of(opFollow, func(e *event) { e.Token, e.Printed = "x", "y" })},
			effects: []cloud.Effect{begun(1)}, find: findRun, want: "mixed up: x",
		},
		"a refusal has a code": {
			events:  []event{of(opCommand, func(e *event) { e.Status, e.Code = 503, "SB009" })},
			effects: two, find: findRefusals,
		},
		"a refusal has no code": {
			events:  []event{of(opCommand, func(e *event) { e.Status = 503 })},
			effects: two, find: findRefusals, want: "no code: command of red:s:a",
		},
		"a directory that was there from the beginning is lost": {
			events: []event{
				through(box, event{Operation: opCreate, Tenant: "red", Told: idOf(a), Status: http.StatusCreated, Path: "/home"}),
				of(opRead, func(e *event) { e.Path, e.Status = "/home", 404 }),
			},
			effects: two, find: findContents, want: "lost: /home of red:s:a",
		},
		"a file is there": {
			events:  []event{of(opWrite, func(e *event) { e.Path = "/p" }), of(opRead, func(e *event) { e.Path, e.Token, e.Printed = "/p", "x", "x" })},
			effects: two, find: findContents,
		},
		"a file that was written is lost": {
			events:  []event{of(opWrite, func(e *event) { e.Path = "/p" }), of(opRead, func(e *event) { e.Path, e.Status = "/p", 404 })},
			effects: two, find: findContents, want: "lost: /p of red:s:a",
		},
		"a file that was not acknowledged is not there": {
			events:  []event{of(opWrite, func(e *event) { e.Path, e.Status = "/p", 503 }), of(opRead, func(e *event) { e.Path, e.Status = "/p", 404 })},
			effects: two, find: findContents,
		},
		"a file holds a part of what was written": {
			events: []event{of(opRead, func(e *event) { e.Path, e.Token, e.Printed = "/p", "whole", "who" })}, effects: two, find: findContents, want: "mixed up: /p",
		},
		"a sandbox ends earlier than was said": {
			events:  []event{of(opRenew, func(e *event) { e.Expires = at(9) }), of(opLook, func(e *event) { e.Expires = at(8) })},
			effects: two, find: findPromises, want: "lost: red:s:a was to end",
		},
		"a renewal that was cut off need not hold": {
			events:  []event{of(opRenew, func(e *event) { e.Expires, e.Error, e.Status = at(9), "EOF", 0 }), of(opLook, func(e *event) { e.Expires = at(8) })},
			effects: two, find: findPromises,
		},
		"a sandbox has another token after a restart": {
			events:  []event{of(opEndpoint, func(e *event) { e.Way = "h t" }), of(opEndpoint, func(e *event) { e.Way = "h u" })},
			effects: two, find: findPromises, want: "mixed up: red:s:a had the way",
		},
		"a sandbox that was paused runs": {
			events: []event{of(opPause, same), of(opLook, same)}, effects: two, find: findPromises, want: "mixed up: whether red:s:a is paused",
		},
		"a pause that was cut off may be one or not": {
			events: []event{of(opPause, func(e *event) { e.Error, e.Status = "EOF", 0 }), of(opLook, same)}, effects: two, find: findPromises,
		},
		"a sandbox that naps is paused when its time is over": {
			events: []event{
				of(opCreate, func(e *event) { e.Told, e.Naps, e.Expires = "a", true, at(5) }),
				of(opLook, func(e *event) { e.Paused, e.Ended = true, at(6) }),
			},
			effects: two, find: findPromises,
		},
		"a sandbox that naps is paused before its time is over": {
			events: []event{
				of(opCreate, func(e *event) { e.Told, e.Naps, e.Expires = "a", true, at(5) }),
				of(opLook, func(e *event) { e.Paused, e.Ended = true, at(4) }),
			},
			effects: two, find: findPromises, want: "mixed up: whether red:s:a is paused",
		},
		"a sandbox that naps is resumed, and paused at once": {
			events: []event{
				of(opCreate, func(e *event) { e.Told, e.Naps, e.Expires = "a", true, at(5) }),
				of(opLook, func(e *event) { e.Paused, e.Ended = true, at(6) }),
				of(opResume, func(e *event) { e.Expires, e.Ended = at(8), at(7) }),
				of(opLook, func(e *event) { e.Paused, e.Ended = true, at(7) }),
			},
			effects: two, find: findPromises, want: "mixed up: whether red:s:a is paused",
		},
		"a sandbox that naps and was paused by its client runs": {
			events: []event{
				of(opCreate, func(e *event) { e.Told, e.Naps, e.Expires = "a", true, at(5) }),
				of(opPause, same),
				of(opLook, func(e *event) { e.Ended = at(6) }),
			},
			effects: two, find: findPromises, want: "mixed up: whether red:s:a is paused",
		},
		"a sandbox does not nap": {
			events: []event{
				of(opCreate, func(e *event) { e.Told, e.Expires = "a", at(5) }),
				of(opLook, func(e *event) { e.Paused, e.Ended = true, at(6) }),
			},
			effects: two, find: findPromises, want: "mixed up: whether red:s:a is paused",
		},
		"a sandbox has another token after it was resumed": {
			events:  []event{of(opEndpoint, func(e *event) { e.Way = "h t" }), of(opResume, func(e *event) { e.Way = "h u" })},
			effects: two, find: findPromises, want: "mixed up: red:s:a had the way",
		},
		"effects in a sandbox with their lines": {
			effects: []cloud.Effect{begun(2, "run", "{}"), wrote, {At: at(2), Kind: cloud.Paused, Instance: a}},
			lines:   []auditLine{line("run_command"), line("write_file"), line("pause_instance")}, find: findUnaudited,
		},
		"a command without a line": {
			effects: []cloud.Effect{begun(2, "run", "{}")}, lines: []auditLine{line("write_file")}, find: findUnaudited, want: "unaudited: start sha256:",
		},
		"a command with the line of another one": {
			effects: []cloud.Effect{begun(2, "run", "{ }")}, lines: []auditLine{line("run_command")}, find: findUnaudited, want: "unaudited: start sha256:",
		},
		"a file without a line": {
			effects: []cloud.Effect{wrote}, lines: []auditLine{line("run_command")}, find: findUnaudited, want: "unaudited: write /p",
		},
		"a directory without a line": {
			effects: []cloud.Effect{{At: at(2), Kind: cloud.Made, Instance: a, Path: "/d"}}, lines: []auditLine{line("make_directory")}, find: findUnaudited, want: "unaudited: make /d",
		},
		"a pause without a line": {
			effects: []cloud.Effect{{At: at(2), Kind: cloud.Paused, Instance: a}}, lines: []auditLine{line("resume_instance")}, find: findUnaudited, want: "unaudited: pause_instance",
		},
		"a context without a line": {
			effects: []cloud.Effect{{At: at(2), Kind: cloud.Prepared, Instance: a}}, find: findUnaudited, want: "unaudited: create_context",
		},
		"the line names the door": {
			events: []event{told(a)}, effects: []cloud.Effect{created(2, a)}, lines: []auditLine{line("create_instance")}, find: findOrigins,
		},
		"the line names no door": {
			events: []event{told(a)}, effects: []cloud.Effect{created(2, a)}, lines: []auditLine{elsewhere}, find: findOrigins, want: "mixed up: create red:s:a",
		},
		"the line of a run names another door": {
			events: []event{ran}, effects: []cloud.Effect{executed(2, a)}, lines: []auditLine{line("execute_code")}, find: findOrigins, want: "mixed up: execute e",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			test.find(&f, f.named(test.events, namesOf(test.effects)), test.effects, test.alive, test.lines)
			if test.want == "" {
				assert.Check(t, is.Len(f, 0))
				return
			}
			assert.Assert(t, is.Len(f, 1), "%q", f)
			assert.Check(t, is.Contains(f[0], test.want))
		})
	}
}

func findNothing(*findings, []event, []cloud.Effect, []cloud.Instance, []auditLine) {}

func findLost(f *findings, events []event, _ []cloud.Effect, alive []cloud.Instance, _ []auditLine) {
	f.acknowledged(events, alive)
}

func findRefusals(f *findings, events []event, _ []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.refusals(events)
}

func findKeys(f *findings, events []event, _ []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.keys(events)
}

func findSeen(f *findings, events []event, _ []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.tenants(events)
}

func findRun(f *findings, events []event, effects []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.outcomes(events, effects)
}

func findDoubled(f *findings, events []event, effects []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.effects(events, effects)
}

func findContents(f *findings, events []event, _ []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.contents(events)
}

func findPromises(f *findings, events []event, _ []cloud.Effect, _ []cloud.Instance, _ []auditLine) {
	f.promises(events)
}

func findUnaudited(f *findings, _ []event, effects []cloud.Effect, _ []cloud.Instance, lines []auditLine) {
	f.audit(effects, lines)
}

func findOrigins(f *findings, events []event, effects []cloud.Effect, _ []cloud.Instance, lines []auditLine) {
	f.origins(events, effects, lines)
}
