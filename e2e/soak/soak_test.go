package soak_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

// What is right comes in force, what is wrong changes nothing, no request notices,
// and nothing is left behind.
func TestSettingsChangeUnderLoad(t *testing.T) {
	if testing.Short() {
		*reloads = min(*reloads, 16)
	}
	b, w, first := startBroker(t)
	s := &soak{broker: b, writer: w, head: head(t, b), force: first, faults: faults(t)}
	o := newObserver(t, b)

	load := startClients(t, b)
	warmUp := min(max(2*len(deliveries), *reloads/20), *reloads)
	for range warmUp {
		s.change(t)
	}
	load.stop()
	s.begin(t)
	before := o.rest(t, providers)

	began := time.Now()
	under := startClients(t, b)
	for range *reloads {
		s.change(t)
	}
	took := time.Since(began)
	under.stop()
	s.begin(t)
	after := o.awaitNoGrowth(t, providers, before)

	assert.Equal(t, load.failed.Load()+under.failed.Load(), int64(0))
	assert.Check(t, under.mock.Load() > 0 && under.real.Load() > 0, "no client did anything")
	t.Logf("%d changes under load in %s, %d of them refused; %d executions on the mock provider and %d in sandboxes, no failed request; load of the machine %s",
		*reloads, took.Round(time.Second), *reloads/2, under.mock.Load(), under.real.Load(), loadAverage(t))
	t.Log("\n" + table(before, after))
}

// providers are those of the settings that begin leaves.
const providers = 2

// soak changes the settings of one broker.
type soak struct {
	broker *harness.Broker
	writer writer
	head   string
	faults []fault

	force  settings // what is in force
	number int      // of the changes so far
	wrong  int      // of those that were refused
}

// change does the next one: every other is wrong.
func (s *soak) change(t *testing.T) {
	t.Helper()
	s.number++
	if s.number%2 == 1 {
		s.changeWrongly(t)
	} else {
		s.changeWell(t)
	}
	if t.Failed() {
		t.FailNow()
	}
}

func (s *soak) changeWrongly(t *testing.T) {
	t.Helper()
	f := s.faults[s.wrong%len(s.faults)]
	way := s.wrong % (len(deliveries) + 1)
	s.wrong++
	generation := s.generation(t)
	next := s.force
	next.token, next.mark = fmt.Sprint("token-broken-", s.number), fmt.Sprint("broken-", s.number)
	if way == len(deliveries) && f.edit != nil {
		s.restore(t)
		f.edit["mark"] = next.mark
		answer := edit(t, s.broker, f.edit)
		harness.Refused(t, answer, http.StatusBadRequest, "SB002")
	} else {
		d := deliveries[way%len(deliveries)]
		text := f.spoil(s.head + s.writer.text(next))
		d.deliver(t, s.broker, text)
		what := f.name + " by " + d.name
		a := awaitResult(t, s.broker, what)
		assert.Equal(t, a.Result, "refused", what)
		assert.Check(t, len(a.Diagnostics) > 0, what)
	}
	assert.Equal(t, s.generation(t), generation, f.name)
	s.check(t, f.name)
	in, err := works(s.broker, next.token)
	assert.NilError(t, err)
	assert.Check(t, !in, "%s: the tenant of a broken configuration is known", f.name)
}

func (s *soak) changeWell(t *testing.T) {
	t.Helper()
	generation := s.generation(t)
	next, well := s.force, s.number/2
	way := well % (len(deliveries) + 1)
	if way == len(deliveries) {
		s.restore(t)
		next.mark = fmt.Sprint("good-", s.number)
		answer := edit(t, s.broker, map[string]any{"mark": next.mark})
		assert.Equal(t, answer.Status, http.StatusOK, "%s %v", answer.Body, answer.Err)
		s.force = next
		assert.Equal(t, s.generation(t), generation+1)
		s.check(t, "an edit")
		return
	}
	next.token = fmt.Sprint("token-", s.number)
	switch well % 3 {
	case 0:
		next.mark = fmt.Sprint("good-", s.number)
	case 1:
		next.spare = !next.spare
	default:
		next.output++
	}
	if well%20 == 7 { // a new pool takes its time
		next.memoryMB = 256 + 384 - next.memoryMB
	}
	next.logLevel = "error" // each request is a line at info
	old := s.force.token
	deliveries[way].deliver(t, s.broker, s.head+s.writer.text(next))
	a := awaitResult(t, s.broker, deliveries[way].name)
	assert.Equal(t, a.Result, "applied", "%v", a)
	s.force = next
	assert.Equal(t, s.generation(t), generation+1)
	s.check(t, deliveries[way].name)
	in, err := works(s.broker, old)
	assert.NilError(t, err)
	assert.Check(t, !in, "the tenant of the configuration before is still known")
}

// check looks whether what should be in force is.
func (s *soak) check(t *testing.T, what string) {
	t.Helper()
	in, err := works(s.broker, s.force.token)
	assert.NilError(t, err)
	assert.Check(t, in, "%s: the tenant's token does not work", what)
	assert.Check(t, is.Equal(markInForce(t, s.broker), s.force.mark), what)
}

func (s *soak) generation(t *testing.T) int {
	t.Helper()
	return attempts(t, s.broker)[0].Generation
}

// restore writes what is in force into the files again.
func (s *soak) restore(t *testing.T) {
	t.Helper()
	saveByRename(t, s.broker, s.head+s.writer.text(s.force))
}

// begin brings the settings back to what figures are compared at.
func (s *soak) begin(t *testing.T) {
	t.Helper()
	s.number++
	s.force.spare, s.force.token = false, fmt.Sprint("token-", s.number)
	s.restore(t)
	assert.Equal(t, awaitResult(t, s.broker, "back to the beginning").Result, "applied")
}

// table shows figures before and after, as a table in Markdown.
func table(before, after map[string]float64) string {
	var text strings.Builder
	text.WriteString("| at rest | before | after |\n| --- | --- | --- |\n")
	for _, f := range figures() {
		show := func(value float64) string {
			if f.unit == "MiB" {
				return fmt.Sprintf("%.1f MiB", value/(1<<20))
			}
			return fmt.Sprintf("%.0f", value)
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", f.name, show(before[f.name]), show(after[f.name]))
	}
	return text.String()
}
