package executions_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/executions"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

var (
	acme  = tenant.Tenant{Name: "acme", Since: 1}
	rival = tenant.Tenant{Name: "rival", Since: 1}
)

// fixture is a keeper on a state file, with a clock of the test's.
type fixture struct {
	*executions.Keeper
	t     *testing.T
	store *store.Store
	opts  executions.Options
	hooks hooks
	now   time.Time
}

func start(t *testing.T, limits executions.Limits) *fixture {
	t.Helper()
	state, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{})
	assert.NilError(t, err)
	f := &fixture{t: t, store: state, now: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)}
	f.opts = executions.Options{
		Store: state, Logger: hclog.NewNullLogger(), Limits: limits, Now: func() time.Time { return f.now },
		Webhooks: &f.hooks, Report: func(i executions.Info) []byte { return []byte(`"` + string(i.State) + `"`) },
	}
	f.restart()
	t.Cleanup(func() {
		f.Close()
		assert.Check(t, state.Close())
	})
	return f
}

// restart has another process take over.
func (f *fixture) restart() {
	f.t.Helper()
	if f.Keeper != nil {
		f.Close()
	}
	var err error
	f.Keeper, err = executions.Open(f.opts)
	assert.NilError(f.t, err)
}

func (f *fixture) begin(who tenant.Tenant, s executions.Start) *executions.Execution {
	f.t.Helper()
	if s.Cancel == nil {
		s.Cancel = func(error) {}
	}
	x, err := f.Begin(f.t.Context(), who, s)
	assert.NilError(f.t, err)
	return x
}

// stored is how an execution of acme stands for the next process.
func (f *fixture) stored(id string) (state executions.State) {
	f.t.Helper()
	assert.NilError(f.t, f.store.View(func(tx store.Tx) error {
		var r struct{ State executions.State }
		_, err := store.Get(tx, store.Executions, "acme\x00"+id, &r)
		state = r.State
		return err
	}))
	return state
}

// hooks are webhooks that note what they get.
type hooks struct{ added []string }

func (*hooks) NewID(tenant string) string { return "id of " + tenant }

func (h *hooks) Add(_ store.Tx, id, tenant, execution, url string, body []byte) error {
	h.added = append(h.added, strings.Join([]string{id, tenant, execution, url, string(body)}, " "))
	return nil
}

func (*hooks) Added(string, string) {}

// large are limits that are in nobody's way.
func large() executions.Limits {
	return executions.Limits{LogBytes: 1 << 20, AllBytes: 1 << 20, Time: time.Minute, DiskTimeout: 10 * time.Second}
}

func succeeded() executions.Outcome {
	return executions.Outcome{State: executions.Succeeded, Last: executions.Event{Name: "done", Data: []byte(`{}`)}}
}

// all reads an execution that has ended, and checks that nothing is missing in silence.
func all(t *testing.T, x *executions.Execution, after int64) (numbers []int64, lost int64) {
	t.Helper()
	for {
		events, gap, ended, err := x.Read(t.Context(), after)
		assert.NilError(t, err)
		if ended {
			return numbers, lost
		}
		after += gap
		lost += gap
		for _, e := range events {
			assert.Equal(t, e.Number, after+1)
			after = e.Number
			numbers = append(numbers, after)
		}
	}
}

func TestEventsAreReadAgainFromAnywhere(t *testing.T) {
	f := start(t, large())
	x := f.begin(acme, executions.Start{ID: "x"})
	const count = 50
	for i := range count {
		x.Append("stdout", fmt.Append(nil, i))
	}
	x.End(succeeded())
	for after := range int64(count + 2) {
		numbers, lost := all(t, x, after)
		assert.Equal(t, lost, int64(0))
		assert.Equal(t, len(numbers), int(count+1-after))
		id := x.EventID(after)
		got, err := x.ParseEventID("after", id)
		assert.NilError(t, err)
		assert.Equal(t, got, after)
	}
}

func TestTwoReadersHearAllWhileItRuns(t *testing.T) {
	f := start(t, large())
	x := f.begin(acme, executions.Start{})
	heard := make(chan string, 2)
	for range 2 {
		go func() {
			var text strings.Builder
			for after := int64(0); ; {
				events, lost, ended, err := x.Read(context.Background(), after)
				if err != nil || ended || lost > 0 {
					heard <- fmt.Sprint(text.String(), lost, err)
					return
				}
				for _, e := range events {
					text.Write(e.Data)
					after = e.Number
				}
			}
		}()
	}
	for range 100 {
		x.Append("stdout", []byte("a"))
	}
	x.End(succeeded())
	want := strings.Repeat("a", 100) + "{}0 <nil>"
	assert.Equal(t, <-heard, want)
	assert.Equal(t, <-heard, want)
}

func TestWhatIsTooMuchIsForgottenAndSaid(t *testing.T) {
	limits := large()
	limits.LogBytes = 10 << 10
	f := start(t, limits)
	x := f.begin(acme, executions.Start{})
	for range 1000 {
		x.Append("stdout", make([]byte, 100))
	}
	x.End(succeeded())
	numbers, lost := all(t, x, 0)
	assert.Equal(t, len(numbers)+int(lost), 1001)
	assert.Assert(t, len(numbers) > 10 && len(numbers) < 100, "%d are kept", len(numbers))
	assert.Equal(t, x.Info().First-1, lost)
}

func TestTheTenantThatTakesTheMostLosesFirst(t *testing.T) {
	limits := large()
	limits.AllBytes = 100 << 10
	f := start(t, limits)
	small := f.begin(rival, executions.Start{ID: "small"})
	small.Append("stdout", make([]byte, 5<<10))
	small.End(succeeded())
	ended := f.begin(acme, executions.Start{ID: "ended"})
	ended.Append("stdout", make([]byte, 5<<10))
	ended.End(succeeded())
	kept := f.begin(acme, executions.Start{ID: "kept", Detached: true})
	kept.Append("stdout", make([]byte, 5<<10))
	kept.End(succeeded())
	flood := f.begin(acme, executions.Start{ID: "flood"})
	for range 200 {
		flood.Append("stdout", make([]byte, 1<<10))
	}
	flood.End(succeeded())
	_, lost := all(t, small, 0)
	assert.Equal(t, lost, int64(0))
	_, err := f.Find(acme, "ended")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
	_, lost = all(t, kept, 0) // it is known, and its end
	assert.Equal(t, lost, int64(1))
	assert.Equal(t, kept.Info().State, executions.Succeeded)
}

func TestResultsTakeNoMoreThanThereIs(t *testing.T) {
	limits := large()
	limits.AllBytes = 100 << 10
	f := start(t, limits)
	other := f.begin(rival, executions.Start{ID: "other"})
	other.Append("stdout", make([]byte, 5<<10))
	outcome := succeeded()
	outcome.Result = []byte(`"` + strings.Repeat("a", 20<<10) + `"`)
	for i := range 20 {
		f.begin(acme, executions.Start{ID: fmt.Sprint(i), Detached: true}).End(outcome)
	}
	sum := 0
	for _, info := range f.List(acme) {
		sum += len(info.Result)
	}
	assert.Assert(t, sum > 60<<10 && sum <= 100<<10, "%d bytes", sum)
	_, err := f.Find(acme, "19")
	assert.NilError(t, err)
	_, err = f.Find(acme, "0")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
	other.End(succeeded())
	_, lost := all(t, other, 0)
	assert.Equal(t, lost, int64(0))
	f.restart()
	assert.Assert(t, len(f.List(acme)) <= 5)
}

func TestATenantWithNothingToLoseIsPassedOver(t *testing.T) {
	limits := large()
	limits.AllBytes = 2 << 10
	f := start(t, limits)
	for range 30 {
		f.begin(acme, executions.Start{})
	}
	ended := f.begin(rival, executions.Start{ID: "ended"})
	ended.Append("stdout", make([]byte, 1<<10))
	ended.End(succeeded())
	_, err := f.Find(rival, "ended")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
}

func TestTheEndOfAForgottenExecutionCostsNothing(t *testing.T) {
	limits := large()
	limits.AllBytes = 100 << 10
	f := start(t, limits)
	gone := f.begin(rival, executions.Start{ID: "gone", Detached: true})
	f.Forget(func(tenant string) bool { return tenant != "rival" })
	outcome := succeeded()
	outcome.Result = make([]byte, 90<<10)
	gone.End(outcome)
	kept := f.begin(acme, executions.Start{ID: "kept"})
	kept.Append("stdout", make([]byte, 25<<10))
	kept.Append("stdout", make([]byte, 25<<10))
	kept.End(succeeded())
	_, lost := all(t, kept, 0)
	assert.Equal(t, lost, int64(0))
}

func TestWhoseItIs(t *testing.T) {
	f := start(t, large())
	f.begin(acme, executions.Start{ID: "x"})
	_, err := f.Find(acme, "x")
	assert.NilError(t, err)
	for name, who := range map[string]tenant.Tenant{"another tenant": rival, "a later one of that name": {Name: "acme", Since: 2}} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Find(who, "x")
			assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
			assert.Equal(t, len(f.List(who)), 0)
		})
	}
	cancelled := 0
	f.begin(rival, executions.Start{ID: "y", Detached: true, Cancel: func(error) { cancelled++ }})
	f.Forget(func(tenant string) bool { return tenant != "rival" })
	assert.Equal(t, cancelled, 1)
	assert.Equal(t, len(f.List(rival)), 0)
	f.restart()
	assert.Equal(t, len(f.List(rival)), 0)
}

func TestAnIDIsForOneExecutionAtATime(t *testing.T) {
	f := start(t, large())
	first := f.begin(acme, executions.Start{ID: "x"})
	_, err := f.Begin(t.Context(), acme, executions.Start{ID: "x"})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConflict)
	first.Append("stdout", nil)
	first.End(succeeded())
	refused := f.begin(acme, executions.Start{ID: "x"})
	refused.Abandon()
	found, err := f.Find(acme, "x")
	assert.NilError(t, err)
	assert.Equal(t, found, first) // what was refused has not taken its place
	kept := f.begin(acme, executions.Start{ID: "kept", Detached: true})
	kept.End(succeeded())
	f.begin(acme, executions.Start{ID: "kept", Detached: true}).Abandon()
	assert.Equal(t, f.stored("kept"), executions.Succeeded) // nor in the state file
	assert.NilError(t, f.Remove(kept))
	second := f.begin(acme, executions.Start{ID: "x"})
	second.Taken()
	_, err = second.ParseEventID("after", first.EventID(1))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeConflict)
	_, _, _, err = first.Read(t.Context(), 2)
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
	assert.Equal(t, len(f.List(acme)), 1)
}

func TestWhatTheNextProcessKnows(t *testing.T) {
	f := start(t, large())
	f.begin(acme, executions.Start{ID: "attached"}).Append("stdout", nil)
	done := f.begin(acme, executions.Start{ID: "done", Detached: true})
	done.Append("stdout", nil)
	outcome := succeeded()
	outcome.Result = []byte(`{"a":1}`)
	done.End(outcome)
	cut := f.begin(acme, executions.Start{ID: "cut", Detached: true, Webhook: "https://a.example/"})
	assert.NilError(t, cut.Begins(t.Context(), "acme:s:i", "p"))
	f.restart()

	_, err := f.Find(acme, "attached")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
	found, err := f.Find(acme, "done")
	assert.NilError(t, err)
	assert.Equal(t, found.Info().State, executions.Succeeded)
	assert.Equal(t, string(found.Info().Result), `{"a":1}`)
	numbers, lost := all(t, found, 0)
	assert.DeepEqual(t, numbers, []int64{2})
	assert.Equal(t, lost, int64(1))
	after, err := found.ParseEventID("after", done.EventID(1)) // it is the same execution
	assert.NilError(t, err)
	assert.Equal(t, after, int64(1))
	found, err = f.Find(acme, "cut")
	assert.NilError(t, err)
	assert.Equal(t, found.Info().State, executions.Unknown)
	assert.Equal(t, found.Info().Instance, "acme:s:i")
	assert.DeepEqual(t, f.hooks.added, []string{`id of acme acme cut https://a.example/ "unknown"`})
	f.restart()
	assert.Equal(t, len(f.hooks.added), 1) // it was told once

	f.now = f.now.Add(2 * time.Minute)
	f.Sweep()
	assert.Equal(t, len(f.List(acme)), 0)
	f.restart()
	assert.Equal(t, len(f.List(acme)), 0)
}

func TestATenantHasSoManyDetached(t *testing.T) {
	f := start(t, large())
	first := f.begin(acme, executions.Start{ID: "0", Detached: true})
	for i := 1; i < 1000; i++ {
		f.begin(acme, executions.Start{ID: fmt.Sprint(i), Detached: true})
	}
	_, err := f.Begin(t.Context(), acme, executions.Start{Detached: true})
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeQuotaExceeded)
	first.End(succeeded())
	f.begin(acme, executions.Start{ID: "more", Detached: true})
	_, err = f.Find(acme, "0")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeNotFound)
}

func FuzzParseEventID(f *testing.F) {
	f.Add("0")
	f.Add("abcdefgh-1")
	f.Add("abcdefgh-99999999999999999999")
	f.Fuzz(func(t *testing.T, text string) {
		k := start(t, large())
		x := k.begin(acme, executions.Start{})
		x.Append("stdout", nil)
		number, err := x.ParseEventID("after", text)
		if err != nil {
			code := sdk.CodeOf(err)
			assert.Assert(t, code == sdk.CodeInvalidRequest || code == sdk.CodeConflict)
			return
		}
		assert.Assert(t, number == 0 && (text == "" || text == "0" || strings.HasPrefix(x.EventID(0), text[:9])) || text == x.EventID(1) || number <= 1)
	})
}
