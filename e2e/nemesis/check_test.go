package nemesis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/chaos/cloud"
	"github.com/sandbox-broker/sandbox-broker/e2e/nemesis/model"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// searchTimeout is how long an order of one history is looked for.
const searchTimeout = time.Minute

// findings are what is wrong.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// expectDone adds an operation that was not done.
func (f *findings) expectDone(o model.Operation, format string, args ...any) {
	if o.Outcome != model.Done {
		f.add("%s: %s", fmt.Sprintf(format, args...), o.Outcome)
	}
}

func (f findings) String() string {
	const shown = 10
	return fmt.Sprintf("%d findings, of which the first are:\n%s", len(f), strings.Join(f[:min(shown, len(f))], "\n"))
}

// truth is what the harness knows.
func (f *fleet) truth(effects []cloud.Effect) model.Truth {
	t := model.Truth{Owners: map[string]string{}}
	for _, e := range effects {
		if e.Kind == cloud.Created {
			t.Owners[idOf(e.Instance.Labels)] = e.Instance.Labels[sdk.LabelBroker]
		}
	}
	for _, b := range f.brokers {
		t.Windows = append(t.Windows, b.windows()...)
	}
	return t
}

// check looks for an order of each history of a round, and compares all with what the cloud has
// noted.
func (r *round) check(found *findings) {
	effects := r.fleet.cloud.Effects()[r.first:]
	truth := r.fleet.truth(effects)
	var mu sync.Mutex
	var group sync.WaitGroup
	turns := make(chan struct{}, 2)
	search := func(what string, s *subject, check func(model.History) porcupine.CheckResult) {
		turns <- struct{}{}
		group.Go(func() {
			defer func() { <-turns }()
			result := check(s.history)
			if result == porcupine.Ok {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if result == porcupine.Unknown {
				found.add("no order of the %d operations of %s %s was found in time", len(s.history), what, s.name)
				return
			}
			found.add("the history of %s %s has no order:\n%s", what, s.name, inWords(s.history, truth))
		})
	}
	for _, s := range r.sessions {
		search("session", s, func(h model.History) porcupine.CheckResult { return truth.Session(h, searchTimeout) })
	}
	for _, s := range r.frugal {
		search("tenant", s, func(h model.History) porcupine.CheckResult { return truth.Quota(h, maxInstances, searchTimeout) })
	}
	for _, k := range r.keys {
		search("key", &k.subject, func(h model.History) porcupine.CheckResult { return truth.Key(h, searchTimeout) })
	}
	group.Wait()
	found.executions(r, effects)
	found.instances(r, effects, truth)
	if len(*found) > 0 {
		r.save(truth)
	}
}

// ends are the instances whose end was asked for, and since when.
func (r *round) ends() map[string]time.Time {
	since := map[string]time.Time{}
	for _, s := range r.sessions {
		for _, o := range s.history {
			if first, found := since[o.ID]; o.Kind == model.Destroy && (!found || o.Call.Before(first)) {
				since[o.ID] = o.Call
			}
		}
	}
	return since
}

// firstTold says when an instance of a session was first told of.
func (r *round) firstTold() map[string]time.Time {
	since := map[string]time.Time{}
	for _, s := range r.sessions {
		for _, o := range s.history {
			if first, found := since[o.ID]; o.Outcome == model.Done && (!found || o.Return.Before(first)) {
				since[o.ID] = o.Return
			}
		}
	}
	return since
}

// save writes all histories down, for who looks for what went wrong.
func (r *round) save(truth model.Truth) {
	var text strings.Builder
	for _, of := range [][]*subject{r.sessions, r.frugal} {
		for _, s := range of {
			fmt.Fprintf(&text, "%s\n%s\n\n", s.name, inWords(s.history, truth))
		}
	}
	for _, k := range r.keys {
		fmt.Fprintf(&text, "%s %s %s\n%s\n\n", k.name, k.path, k.token, inWords(k.history, truth))
	}
	assert.Check(r.fleet.t, os.WriteFile(filepath.Join(r.fleet.dir, "histories"), []byte(text.String()), 0o600))
}

// executions finds code that did not run once.
func (f *findings) executions(r *round, effects []cloud.Effect) {
	ran := map[string]int{}
	for _, e := range effects {
		if e.Kind == cloud.Executed {
			ran[e.Program.Token]++
		}
	}
	for token, times := range ran {
		if times > 1 {
			f.add("doubled: the program %s has run %d times", token, times)
		}
	}
	for _, s := range r.sessions {
		for _, o := range s.history {
			if o.Kind == model.Use && (o.Outcome == model.Done) != (ran[o.Answer] == 1) && o.Outcome != model.Unknown {
				f.add("the program %s was told as %s, and has run %d times", o.Answer, o.Outcome, ran[o.Answer])
			}
		}
	}
	for _, k := range r.keys {
		for _, o := range k.history {
			if k.token != "" && o.Outcome == model.Done && ran[k.token] != 1 {
				f.add("the program %s was answered, and has run %d times", k.token, ran[k.token])
			}
		}
	}
}

// made is an instance of the cloud that there is.
type made struct {
	id, owner, session string
	at                 time.Time
}

// instances finds sessions with two instances or two owners, and tenants with too many, at any
// moment. What a broker made that has counted as dead since does not count any more, and one whose
// end was asked for is its session's no more.
func (f *findings) instances(r *round, effects []cloud.Effect, truth model.Truth) {
	ends, told := r.ends(), r.firstTold()
	alive, used, times := map[string]*made{}, map[string]time.Time{}, map[string]int{}
	for _, e := range effects {
		labels := e.Instance.Labels
		tenant := labels[sdk.LabelTenant]
		switch e.Kind {
		case cloud.Created:
			one := &made{id: idOf(labels), owner: labels[sdk.LabelBroker], session: tenant + ":" + labels[sdk.LabelSession], at: e.At}
			// One that nobody was told of, and that was destroyed, may be made once more by its ID.
			if times[one.id]++; times[one.id] > 1 && told[one.id].Before(e.At) && !told[one.id].IsZero() {
				f.add("doubled: %s was made %d times", one.id, times[one.id])
			}
			count := 1
			for _, other := range alive {
				if other.id == one.id {
					f.add("doubled: %s is made while it is there", one.id)
				}
				if deadBefore(truth, other, e.At) {
					if other.session == one.session {
						r.takeovers++
					}
					continue
				}
				if asked, found := ends[other.id]; other.session == one.session && (!found || asked.After(e.At)) {
					f.add("doubled: the session %s has %s, when %s is made", one.session, other.id, one.id)
				}
				if strings.HasPrefix(other.id, tenant+":") {
					count++
				}
			}
			if strings.HasPrefix(tenant, "frugal") && count > maxInstances {
				f.add("over-granted: %s has %d instances when %s is made", tenant, count, one.id)
			}
			alive[e.Instance.ID] = one
		case cloud.Gone:
			delete(alive, e.Instance.ID)
		case cloud.Executed:
			one := alive[e.Instance.ID]
			if one == nil {
				continue
			}
			if used[one.session].After(one.at) {
				f.add("two owners: code runs in %s, whose session has had code in a newer one", one.id)
			}
			used[one.session] = one.at
		}
	}
}

// deadBefore reports whether the owner of an instance may have counted as dead between its
// creation and a moment.
func deadBefore(truth model.Truth, one *made, at time.Time) bool {
	return slices.ContainsFunc(truth.Windows, func(w model.Window) bool {
		return w.Broker == one.owner && !w.From.After(at) && !w.To.Before(one.at)
	})
}

// inWords is a history in the order of the calls, with the windows that fall into it.
func inWords(h model.History, truth model.Truth) string {
	h = slices.Clone(h)
	slices.SortFunc(h, func(a, b model.Operation) int { return a.Call.Compare(b.Call) })
	const clock = "04:05.000"
	var lines []string
	for _, o := range h {
		owner := ""
		if o.ID != "" {
			owner = " of " + truth.Owners[o.ID]
		}
		lines = append(lines, fmt.Sprintf("%s to %s client %d: %s %s%s%s: %s", o.Call.Format(clock), o.Return.Format(clock), o.Client, o.Kind, o.ID, owner, o.Answer, o.Outcome))
	}
	for _, w := range truth.Windows {
		if len(h) > 0 && w.To.After(h[0].Call) && w.From.Before(h[len(h)-1].Return) {
			lines = append(lines, fmt.Sprintf("%s to %s %s may count as dead", w.From.Format(clock), w.To.Format(clock), w.Broker))
		}
	}
	return strings.Join(lines, "\n")
}
