package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// leakBound is how long the harness waits for what is left over to go. The promise is 30 seconds;
// a machine of tests may be slow.
const leakBound = 2 * time.Minute

// settle waits until the broker and the cloud agree on what there is, and nothing is
// in use. Nobody asks meanwhile.
func (w *world) settle() {
	w.t.Helper()
	poll.WaitOn(w.t, func(poll.LogT) poll.Result {
		if why := w.unsettled(); why != "" {
			return poll.Continue("%s\n%s", why, w.lastLog())
		}
		return poll.Success()
	}, poll.WithTimeout(w.pace.settle), poll.WithDelay(w.pace.look))
}

// unsettled says where they do not agree.
func (w *world) unsettled() string {
	there, frozen := map[string][]string{}, w.frozen()
	for _, i := range w.alive() {
		tenant := i.Labels[sdk.LabelTenant]
		there[tenant] = append(there[tenant], idOf(i))
	}
	if len(there[""]) > 0 {
		return fmt.Sprintf("nobody's, and still there: %q", there[""])
	}
	for _, tenant := range w.tenants() {
		var list struct{ Instances []struct{ ID, State string } }
		a := w.ask(http.MethodGet, "/api/v1/instances?limit=100", tenant, nil, "")
		if a.Status != http.StatusOK || !a.into(&list) {
			return fmt.Sprintf("%s cannot list: %v %s", tenant, a.Err, a.Body)
		}
		known, paused := []string{}, 0
		for _, i := range list.Instances {
			known = append(known, i.ID)
			if i.State == "paused" {
				paused++
			}
			if i.State == "running" && frozen[i.ID] {
				return fmt.Sprintf("%s is running according to the broker, and paused according to the cloud", i.ID)
			}
		}
		slices.Sort(known)
		slices.Sort(there[tenant])
		if !slices.Equal(known, there[tenant]) {
			return fmt.Sprintf("%s has according to the broker\n%q, according to the cloud\n%q", tenant, known, there[tenant])
		}
		used := w.used(tenant)
		if used["max_concurrent"] != 0 || used["max_instances"]+used["max_paused"] != float64(len(known)) {
			return fmt.Sprintf("%s uses %v, and has %d instances", tenant, used, len(known))
		}
		if used["max_paused"] > float64(paused) {
			return fmt.Sprintf("%s uses %v, and has %d paused instances", tenant, used, paused)
		}
	}
	return w.unsettledKept()
}

func (w *world) used(tenant string) map[string]float64 {
	var usage struct {
		Limits []struct {
			Name string
			Used float64
		}
	}
	used := map[string]float64{}
	if w.ask(http.MethodGet, "/api/v1/usage", tenant, nil, "").into(&usage) {
		for _, l := range usage.Limits {
			used[l.Name] = l.Used
		}
	}
	return used
}

// idOf is the broker's name for an instance.
func idOf(i cloud.Instance) string {
	return i.Labels[sdk.LabelTenant] + ":" + i.Labels[sdk.LabelSession] + ":" + i.Labels[sdk.LabelInstance]
}

// findings are what is wrong with a history.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// figures are what a checked history is made of.
type figures struct {
	Requests, Acknowledged, Created, Destroyed, Executed, AuditLines int
	// Doors is what came through each front door, and without one.
	Doors map[string]traffic
	// Kept is what keepers and the administrator asked for, by operation.
	Kept map[operation]traffic
}

// traffic is requests. Those that were cut off reached the broker, and had no whole answer
// although their clients waited for it.
type traffic struct{ Requests, Acknowledged, CutOff int }

// check compares what was told, what there is, what has happened and the audit log.
// The world has settled.
func (w *world) check() figures {
	w.t.Helper()
	if len(w.backends) > 0 {
		return w.checkReal()
	}
	effects, alive := w.effects(), w.alive()
	var found findings
	events := found.named(w.history.all(), namesOf(effects))
	found.acknowledged(events, alive)
	found.refusals(events)
	found.keys(events)
	found.tenants(events)
	found.counts(events, w.listsGone)
	found.effects(events, effects)
	found.providers(events, effects, w.labels())
	found.outcomes(events, effects)
	found.contents(events)
	found.promises(events)
	found.quotas(effects)
	found.concurrent(effects)
	if w.keepers {
		found.kept(events, effects, w.forked())
	}
	lines := w.auditLines()
	found.audit(effects, lines)
	found.origins(events, effects, lines)
	w.verifyAudit()
	for _, tenant := range w.tenants() {
		found.executions(tenant, w.used(tenant)["executions_per_day"], effects)
	}
	w.report(found)
	sum := sumOf(events, lines)
	for _, e := range effects {
		switch e.Kind {
		case cloud.Created:
			sum.Created++
		case cloud.Gone:
			sum.Destroyed++
		case cloud.Executed:
			sum.Executed++
		}
	}
	return sum
}

// report fails the test with what was found.
func (w *world) report(found findings) {
	w.t.Helper()
	if len(found) == 0 {
		return
	}
	const shown = 20
	w.t.Errorf("%d findings, of which the first are:\n%s", len(found), strings.Join(found[:min(shown, len(found))], "\n"))
}

// sumOf are the figures that events alone tell.
func sumOf(events []event, lines []auditLine) figures {
	sum := figures{Requests: len(events), AuditLines: len(lines), Doors: map[string]traffic{}, Kept: map[operation]traffic{}}
	for _, e := range events {
		if e.acknowledged() {
			sum.Acknowledged++
		}
		sum.Doors[e.Door] = sum.Doors[e.Door].with(e)
		if slices.Contains(ofKeepers, e.Operation) {
			sum.Kept[e.Operation] = sum.Kept[e.Operation].with(e)
		}
	}
	return sum
}

// with counts one more.
func (t traffic) with(e event) traffic {
	t.Requests++
	switch {
	case e.acknowledged():
		t.Acknowledged++
	case e.Error != "" && e.Patience == 0 && !strings.Contains(e.Error, "connection refused"): // it had begun
		t.CutOff++
	}
	return t
}

// ownersUse is what only those do who were told of an instance.
var ownersUse = []operation{opLook, opExecute, opCommand, opStart, opFollow, opStop, opWrite, opRenew, opEndpoint, opPause, opResume}

// acknowledged instances exist unless somebody asked for their end, and those whose
// end was acknowledged do not.
func (f *findings) acknowledged(events []event, alive []cloud.Instance) {
	there := map[string]bool{}
	for _, i := range alive {
		there[idOf(i)] = true
	}
	asked, gone := map[string]bool{}, map[string]bool{}
	for _, e := range events {
		if e.Operation == opDestroy {
			asked[e.Instance] = true
			gone[e.Instance] = gone[e.Instance] || e.acknowledged()
		}
	}
	for _, e := range events {
		switch {
		case e.Operation == opFork && e.answered():
			for _, id := range e.List {
				if !asked[id] && !there[id] {
					f.add("lost: %s was acknowledged as a copy at %s and is no more", id, e.Ended.Format(time.RFC3339Nano))
					asked[id] = true
				}
			}
		case (e.Operation == opCreate || e.Operation == opRun && e.Session != "") && e.answered() && !asked[e.Told] && !there[e.Told]:
			f.add("lost: %s was acknowledged at %s and is no more", e.Told, e.Ended.Format(time.RFC3339Nano))
			asked[e.Told] = true // say it once
		case e.Operation == opDestroy && gone[e.Instance] && there[e.Instance]:
			f.add("undead: the end of %s was acknowledged, and it is there", e.Instance)
			gone[e.Instance] = false
		case slices.Contains(ownersUse, e.Operation) && (e.Status == http.StatusNotFound || e.Status == http.StatusUnauthorized) && !asked[e.Instance]:
			f.add("denied: %s was acknowledged and %s is answered with %d at %s: %s", e.Instance, e.Operation, e.Status, e.Ended.Format(time.RFC3339Nano), e.Detail)
		}
	}
}

// refusals say why, by the broker's code.
func (f *findings) refusals(events []event) {
	for _, e := range events {
		if e.Error == "" && e.Status >= 400 && e.Code == "" && e.Operation != opHealth {
			f.add("no code: %s of %s by %q was refused with %d: %s", e.Operation, e.Instance, e.Door, e.Status, e.Detail)
		}
	}
}

// keys have one answer each, and a client uses each for one request.
func (f *findings) keys(events []event) {
	told := map[string]string{}
	for _, e := range events {
		if e.Key != "" && strings.Contains(e.Detail, "was used for another request") {
			f.add("mixed up: the key %s is answered with %d: %s", e.Key, e.Status, e.Detail)
		}
		if e.Key == "" || !e.answered() {
			continue
		}
		thing := cmp.Or(e.Told, e.Kept)
		if e.Operation == opFork {
			thing = strings.Join(e.List, " ")
		}
		if other := told[e.Key]; other != "" && other != thing {
			f.add("doubled: the key %s was answered with %s and %s", e.Key, other, thing)
		}
		told[e.Key] = thing
	}
}

// tenants see what is theirs.
func (f *findings) tenants(events []event) {
	for _, e := range events {
		if e.Operation == opSteal && e.answered() {
			f.add("seen: %s got at %s", e.Tenant, e.Instance)
		}
		if e.Told != "" && e.answered() && !strings.HasPrefix(e.Told, e.Tenant+":") {
			f.add("seen: %s was told of %s", e.Tenant, e.Told)
		}
		if e.Operation != opList && e.Operation != opFork && e.Operation != opLeft {
			continue
		}
		for _, id := range e.List {
			if !strings.HasPrefix(id, e.Tenant+":") {
				f.add("seen: %s was shown %s", e.Tenant, id)
			}
		}
	}
}

// counts are within the limits at every moment, as the broker tells them. An orphan whose
// end fails counts whatever the limit; so does one that is gone, if the cloud lists it.
func (f *findings) counts(events []event, listsGone bool) {
	for _, e := range events {
		if e.Operation != opUsage {
			continue
		}
		for _, above := range e.List {
			if !listsGone || !strings.HasPrefix(above, "max_instances:") {
				f.add("above a limit: %s, %q", e.Tenant, above)
			}
		}
	}
}

// effects happen once: one execution for each piece of code, one living instance for
// each session. One whose end was asked for is its session's no more, gone or not: who asks
// for it again gets another, and what that is made to run runs there.
func (f *findings) effects(events []event, effects []cloud.Effect) {
	author, asked, made := map[string]string{}, map[string]time.Time{}, map[string]bool{}
	for _, e := range events {
		author[e.Token] = e.Tenant
		made[e.Token] = made[e.Token] || e.Operation == opCreate
		if e.Operation == opDestroy && (asked[e.Instance].IsZero() || e.Began.Before(asked[e.Instance])) {
			asked[e.Instance] = e.Began
		}
	}
	type place struct{ cloud, id string } // two clouds may have the same ids
	executed, sessions := map[string]cloud.Effect{}, map[string]cloud.Effect{}
	ended := func(i cloud.Instance, by time.Time) bool {
		end := asked[idOf(i)]
		return !end.IsZero() && !end.After(by)
	}
	// A creation that the broker could not write down is refused, and what it made is
	// destroyed as soon as that can be audited. No client has heard of it; the next request of
	// the session gets another.
	refused := func(made cloud.Effect, by time.Time) bool {
		id, tenant, session := idOf(made.Instance), made.Instance.Labels[sdk.LabelTenant], made.Instance.Labels[sdk.LabelSession]
		return !slices.ContainsFunc(events, func(e event) bool { return e.Told == id || e.Instance == id || slices.Contains(e.List, id) }) &&
			slices.ContainsFunc(events, func(e event) bool {
				// The names of sessions that a door makes are its own.
				return e.Operation == opCreate && e.Tenant == tenant && (e.Door != "" || e.Session == session) && e.Code != "" && e.Ended.After(made.At) && e.Began.Before(by)
			})
	}
	at := func(e cloud.Effect) place { return place{e.Cloud, e.Instance.ID} }
	for _, e := range effects {
		session := owner(e.Instance.Labels[sdk.LabelTenant], e.Instance.Labels[sdk.LabelSession], e.Cloud)
		switch e.Kind {
		case cloud.Executed, cloud.Started, cloud.Typed:
			token := e.Program.Token
			before, again := executed[token]
			inTheNext := made[token] && at(before) != at(e) && ended(before.Instance, e.At)
			if again && !inTheNext {
				f.add("doubled: %s was executed again", token)
			}
			executed[token] = e
			if tenant := e.Instance.Labels[sdk.LabelTenant]; author[token] != tenant {
				f.add("mixed up: code of %s ran in an instance of %s", author[token], tenant)
			}
		case cloud.Created:
			other, has := sessions[session]
			if has && !ended(other.Instance, e.At) && !refused(other, e.At) {
				f.add("doubled: %s has %v and %v at %s", session, at(other), at(e), e.At.Format(time.RFC3339Nano))
			}
			sessions[session] = e
		case cloud.Gone:
			if at(sessions[session]) == at(e) {
				delete(sessions, session)
			}
		}
	}
}

// quotas hold at every moment. What is paused is none of the instances.
func (f *findings) quotas(effects []cloud.Effect) {
	instances, paused := map[string]int{}, map[string]bool{}
	for _, e := range effects {
		tenant, id := e.Instance.Labels[sdk.LabelTenant], e.Cloud+e.Instance.ID
		switch {
		case e.Kind == cloud.Created, e.Kind == cloud.Resumed && paused[id]:
			paused[id] = false
			if instances[tenant]++; instances[tenant] > maxInstances {
				f.add("above a limit: %s has %d instances at %s", tenant, instances[tenant], e.At.Format(time.RFC3339Nano))
			}
		case e.Kind == cloud.Paused && !paused[id]:
			paused[id] = true
			instances[tenant]--
		case e.Kind == cloud.Gone && !paused[id]:
			instances[tenant]--
		}
	}
}

// executions are all counted, and none is granted above the limit of the day.
func (f *findings) executions(tenant string, used float64, effects []cloud.Effect) {
	days, today := map[string]int{}, time.Now().UTC().Format(time.DateOnly)
	for _, e := range effects {
		if e.Kind == cloud.Executed && e.Instance.Labels[sdk.LabelTenant] == tenant {
			days[e.At.UTC().Format(time.DateOnly)]++
		}
	}
	if used < float64(days[today]) {
		f.add("not counted: %s has executed %d times, of which %v count", tenant, days[today], used)
	}
	for _, n := range slices.Collect(maps.Values(days)) {
		if tenant == frugal && n > frugalExecutions {
			f.add("above a limit: %s has executed %d times in a day", tenant, n)
		}
	}
}

// auditLine is what is checked of a line of the audit log.
type auditLine struct {
	Event            string    `json:"event"`
	Operation        string    `json:"operation"`
	Covers           []string  `json:"covers"`
	Tenant           string    `json:"tenant_id"`
	Provider         string    `json:"provider"`
	Instance         string    `json:"instance_id"`
	ProviderInstance string    `json:"provider_instance"`
	Execution        string    `json:"execution_id"`
	CodeHash         string    `json:"code_hash"`
	Path             string    `json:"path"`
	To               string    `json:"to"`
	Template         string    `json:"template"`
	Snapshot         string    `json:"snapshot_id"`
	ProviderSnapshot string    `json:"provider_snapshot"`
	Door             string    `json:"front_door"`
	Timestamp        time.Time `json:"timestamp"`
}

// keys name the effects that a line stands for.
func (l auditLine) keys() (keys []string) {
	for _, operation := range append([]string{l.Operation}, l.Covers...) {
		key := ""
		switch {
		case operation == "create_instance":
			key = "create " + l.Instance
		case operation == "destroy_instance" && len(l.Covers) > 0:
			key = "destroy " + l.Instance
		case operation == "destroy_instance":
			key = "destroy " + l.ProviderInstance
		case operation == "execute_code":
			key = "execute " + l.Execution
		default:
			key = cmp.Or(insideKey(operation, l.ProviderInstance, l.CodeHash, l.Path), l.keyOf(operation))
		}
		if key += " in " + l.Provider; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// audit has a line for each effect, from before it happened.
func (f *findings) audit(effects []cloud.Effect, lines []auditLine) {
	begins := map[string][]auditLine{}
	for _, l := range lines {
		if l.Event != "begin" {
			continue
		}
		for _, key := range l.keys() {
			begins[key] = append(begins[key], l)
		}
	}
	for _, e := range effects {
		key, covered := "", ""
		switch e.Kind {
		case cloud.Created:
			key = "create " + idOf(e.Instance) + " in " + e.Cloud
		case cloud.Gone:
			key = "destroy " + e.Instance.ID + " in " + e.Cloud
			// A line that covers it was written before the provider had a name for it.
			covered = "destroy " + idOf(e.Instance) + " in " + e.Cloud
		case cloud.Executed:
			key = "execute " + e.Execution + " in " + e.Cloud
		case cloud.Ended, cloud.Killed, cloud.Typed: // the log does not say what is typed
			continue
		default:
			key = keyInside(e)
		}
		if kept := keyOfKept(e); kept != "" {
			key = kept + " in " + e.Cloud
		}
		if e.Process == cloud.StrayProcess {
			continue // nobody's doing
		}
		before := func(l auditLine) bool { return !l.Timestamp.After(e.At) }
		i := slices.IndexFunc(begins[key], before)
		if i < 0 && !slices.ContainsFunc(begins[covered], before) {
			f.add("unaudited: %s at %s", key, e.At.Format(time.RFC3339Nano))
			continue
		}
		if e.Kind == cloud.Created { // each takes a line of its own
			begins[key] = slices.Delete(slices.Clone(begins[key]), i, i+1)
		}
	}
}

// auditLines reads the log, in the order of its files.
func (w *world) auditLines() (lines []auditLine) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.auditDir, "audit-*.jsonl*"))
	assert.NilError(w.t, err)
	for _, file := range files {
		content, err := readLog(file)
		assert.NilError(w.t, err)
		for line := range strings.Lines(content) {
			var l auditLine
			assert.NilError(w.t, json.Unmarshal([]byte(line), &l), "%s: %s", file, line)
			lines = append(lines, l)
		}
	}
	return lines
}

// verifyAudit has the broker verify its log.
func (w *world) verifyAudit() {
	w.t.Helper()
	out, err := exec.Command(built.broker, "audit", "verify", w.auditDir).CombinedOutput()
	assert.Check(w.t, err, "%s", out)
}
