package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// backend is what there is behind the plugin of a real provider: a service, or a faithful fake
// of one. It outlives the plugin.
type backend interface {
	// label is that of the provider's block, and of its plugin; settings are in the block.
	label() string
	settings() string
	// alive are the instances that it has, whoever knows of them.
	alive(t testing.TB) []there
	// left is what there is of the broker's besides, such as what is kept ready.
	left(t testing.TB) []string
}

// there is an instance at a back end.
type there struct {
	cloud.Instance
	paused bool
}

// What really runs in instances notes that it has begun in a file. So it is seen, as long as
// the instance is there, what has run in it and how often.
const ranFile = "/tmp/ran"

// language in which code is run by the broker's own API.
func (w *world) language() string {
	if len(w.backends) > 0 {
		return "python"
	}
	return "wait"
}

// inModel is a program for a cloud, which has one language.
func inModel(token string, d time.Duration) string {
	text, _ := json.Marshal(cloud.Program{Token: token, MS: int(d.Milliseconds())}) // strings and numbers
	return string(text)
}

// inPython is a program that prints its token and takes so long.
func (w *world) inPython(token string, d time.Duration) string {
	if len(w.backends) == 0 {
		return inModel(token, d)
	}
	return fmt.Sprintf("import time\nwith open(%q, 'a') as ran: ran.write(%q)\nprint(%q, flush=True)\ntime.sleep(%g)\n", ranFile, token+"\n", token, d.Seconds())
}

// inShell is the same for a shell.
func (w *world) inShell(token string, d time.Duration) string {
	if len(w.backends) == 0 {
		return inModel(token, d)
	}
	return fmt.Sprintf("echo %[1]s >> %[2]s; echo %[1]s; sleep %[3]g", token, ranFile, d.Seconds())
}

// inFunction is a program as RAGFlow has it.
func (w *world) inFunction(token string) string {
	if len(w.backends) == 0 {
		return inModel(token, 0)
	}
	return fmt.Sprintf("def main():\n    print(%q)\n    return {}\n", token)
}

// ran is what has run in what is there, as effects. Of what is paused it is not known; known
// are the instances of which it is.
func (w *world) ran() (effects []cloud.Effect, known map[string]bool) {
	w.t.Helper()
	known = map[string]bool{}
	for _, b := range w.backends {
		for _, i := range b.alive(w.t) {
			if i.paused {
				continue
			}
			id, tenant := idOf(i.Instance), i.Labels[sdk.LabelTenant]
			path := "/api/v1/instances/" + id + "/files/content?path=" + url.QueryEscape(ranFile)
			a := w.ask(http.MethodGet, path, tenant, nil, "")
			var refused struct{ Field string }
			switch {
			case a.Status == http.StatusOK:
			case a.Status == http.StatusNotFound && a.into(&refused) && refused.Field == "path": // nothing has run
				a.Body = nil
			default:
				w.t.Errorf("%s cannot be read at its end: %v %d %s", id, a.Err, a.Status, a.Body)
				continue
			}
			known[id] = true
			for token := range strings.FieldsSeq(string(a.Body)) {
				effects = append(effects, cloud.Effect{
					At: time.Now(), Kind: cloud.Started, Instance: i.Instance, Program: cloud.Program{Token: token}, Cloud: b.label(),
				})
			}
		}
	}
	return effects, known
}

// checkReal compares what was told, what there is, what has run in it and the audit log.
func (w *world) checkReal() figures {
	w.t.Helper()
	alive, lines := w.alive(), w.auditLines()
	ids := map[string]string{}
	for _, l := range lines {
		if l.Event == "begin" && (l.Operation == "create_instance" || slices.Contains(l.Covers, "create_instance")) {
			ids[lastPart(l.Instance)] = l.Instance
		}
	}
	var found findings
	events := found.named(w.history.all(), ids)
	found.acknowledged(events, alive)
	found.refusals(events)
	found.keys(events)
	found.tenants(events)
	found.counts(events, false)
	found.contents(events)
	found.promises(events)
	ran, known := w.ran()
	found.effects(events, ran)
	found.runs(events, ran, known)
	w.verifyAudit()
	for _, tenant := range tenants {
		found.charged(tenant, events, w.used(tenant)["executions_per_day"])
	}
	w.report(found)
	for _, e := range ran {
		w.seen[e.Program.Token] = true
	}
	sum := sumOf(events, lines)
	sum.Created, sum.Executed = len(ids), len(w.seen)
	return sum
}

// runs are as they were told: what is said to have run has run where it is said, as long as
// that is there, and what it printed is its own.
func (f *findings) runs(events []event, effects []cloud.Effect, known map[string]bool) {
	type place struct{ instance, token string }
	ran := map[place]bool{}
	for _, e := range effects {
		ran[place{idOf(e.Instance), e.Program.Token}] = true
	}
	for _, e := range events {
		if e.Token == "" || !e.acknowledged() {
			continue
		}
		at := cmp.Or(e.Instance, e.Told)
		switch e.Operation {
		case opExecute, opRun, opCommand:
			if e.Printed != e.Token {
				f.add("mixed up: %s has printed %q, says the answer at %s", e.Token, e.Printed, e.Ended.Format(time.RFC3339Nano))
			}
		case opFollow:
			if e.Printed != "" && e.Printed != e.Token { // it may not have come to that
				f.add("mixed up: %s has printed %q, says the answer at %s", e.Token, e.Printed, e.Ended.Format(time.RFC3339Nano))
			}
		case opStart, opCreate:
		default:
			continue
		}
		if known[at] && !ran[place{at, e.Token}] && e.Door != "ragflow" {
			f.add("lost: %s was acknowledged at %s, and has not run in %s", e.Token, e.Ended.Format(time.RFC3339Nano), at)
		}
	}
}

// charged are all executions that were acknowledged, and none above the limit of the day.
func (f *findings) charged(tenant string, events []event, used float64) {
	acknowledged := 0
	for _, e := range events {
		if e.Tenant == tenant && e.acknowledged() && (e.Operation == opExecute || e.Operation == opRun) {
			acknowledged++
		}
	}
	if today := events[0].Began.UTC().Day() == time.Now().UTC().Day(); today && used < float64(acknowledged) {
		f.add("not counted: %s was told of %d executions, of which %v count", tenant, acknowledged, used)
	}
	if tenant == frugal && used > frugalExecutions {
		f.add("above a limit: %s has executed %v times in a day", tenant, used)
	}
}

// finishReal stops the broker in order: what was kept ready goes with it.
func (w *world) finishReal() {
	w.t.Helper()
	w.askToStop()
	w.awaitStop()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		for _, b := range w.backends {
			if left := b.left(w.t); len(left)+len(b.alive(w.t)) > 0 {
				return poll.Continue("there are %v and %q at %s", b.alive(w.t), left, b.label())
			}
		}
		return poll.Success()
	}, poll.WithTimeout(w.pace.settle), poll.WithDelay(w.pace.look))
	w.start("")
	w.waitReady()
}

// killReal kills broker and plugins of real providers, as often as the flag says, or times.
// calm is how much longer than in the model it waits before each.
func killReal(t *testing.T, o options, times, calm int) {
	s := seed(t)
	w := newWorld(t, s, o)
	w.start("")
	w.waitReady()
	began := time.Now()
	kills := cmp.Or(*killsFlag, times)
	for blows := range slices.Chunk(schedule(newRandom(s, 0), kills), settleEvery) {
		clients := w.letLoose()
		for _, b := range blows {
			b.After *= time.Duration(calm)
			w.strike(b)
		}
		clients.end()
		w.restart() // and so there is a reconciliation
		w.settle()
		w.check()
		if t.Failed() {
			return
		}
	}
	w.finish()
	sum := w.check()
	t.Logf("%d kills in %s: %+v", kills, time.Since(began).Round(time.Second), sum)
	for _, door := range slices.Sorted(maps.Keys(sum.Doors)) {
		assert.Check(t, sum.Doors[door].Acknowledged > 0, "nothing was done through the door %q", door)
	}
}
