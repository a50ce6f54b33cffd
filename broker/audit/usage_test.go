package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	broker "github.com/sandbox-broker/sandbox-broker/broker/effect"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// reservation is one that is noted in the first line.
type reservation struct {
	text  string
	noted bool
}

func (r *reservation) Note() json.RawMessage {
	if r.noted {
		return nil
	}
	return json.RawMessage(r.text)
}

func (r *reservation) Noted() { r.noted = true }

// noteIn begins and ends an effect that has reserved something.
func noteIn(t *testing.T, log *audit.Log, number int) {
	t.Helper()
	r := &reservation{text: fmt.Sprintf(`{"number":%d}`, number)}
	for range 2 { // only the first has it
		record, err := log.Begin(broker.WithReservation(t.Context(), r), effect("execute_code"))
		assert.NilError(t, err)
		assert.Assert(t, r.noted)
		assert.NilError(t, record.End(audit.Outcome{Status: "succeeded"}))
	}
}

func usageSince(t *testing.T, log *audit.Log, seq uint64, hash string) (noted []string, found bool) {
	t.Helper()
	found, err := log.UsageSince(seq, hash, func(text json.RawMessage) { noted = append(noted, string(text)) })
	assert.NilError(t, err)
	return noted, found
}

func TestWhatWasNotedBehindALineIsFound(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	noteIn(t, log, 1)
	seq, hash := log.Position()
	noteIn(t, log, 2)
	noteIn(t, log, 3)
	noted, found := usageSince(t, log, seq, hash)
	assert.Assert(t, found)
	assert.DeepEqual(t, noted, []string{`{"number":2}`, `{"number":3}`})

	shut(t, log)
	log = open(t, audit.Options{Dir: dir, Detail: audit.Detail{MaxBytes: 1}}) // another file with each line
	noteIn(t, log, 4)
	noteIn(t, log, 5)
	noted, found = usageSince(t, log, seq, hash)
	assert.Assert(t, found)
	assert.DeepEqual(t, noted, []string{`{"number":2}`, `{"number":3}`, `{"number":4}`, `{"number":5}`})
	last, of := log.Position()
	noted, found = usageSince(t, log, last, of)
	assert.Assert(t, found && noted == nil)
	_, found = usageSince(t, log, seq, of)
	assert.Assert(t, !found, "that line has another hash")
	_, found = usageSince(t, log, last+1, of)
	assert.Assert(t, !found, "there is no such line yet")
	shut(t, log)
	intact(t, dir)
}

func TestALineThatSomebodyHasChangedNotesNothing(t *testing.T) {
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir})
	seq, hash := log.Position()
	noteIn(t, log, 1)
	noteIn(t, log, 2)
	assert.NilError(t, log.Close(context.Background()))
	edit(t, only(t, dir), func(text []byte) []byte {
		return bytes.Replace(text, []byte(`{"number":1}`), []byte(`{"number":0}`), 1)
	})
	noted, found := usageSince(t, log, seq, hash)
	assert.Assert(t, found)
	assert.DeepEqual(t, noted, []string{`{"number":2}`})
}

func TestAFileThatCannotBeReadHidesNoOther(t *testing.T) {
	dir := newDir(t)
	c := newClock()
	log := open(t, audit.Options{Dir: dir, Now: c.Now})
	seq, hash := log.Position()
	for number := range 3 { // each in the file of its day
		noteIn(t, log, number)
		c.move(24 * time.Hour)
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		segments, err := audit.Segments(dir)
		if err == nil && len(segments) == 3 && segments[0].Compressed && segments[1].Compressed {
			return poll.Success()
		}
		return poll.Continue("%v, %v", segments, err)
	}, poll.WithTimeout(2*time.Minute))
	noted, found := usageSince(t, log, seq, hash)
	assert.Assert(t, found)
	assert.DeepEqual(t, noted, []string{`{"number":0}`, `{"number":1}`, `{"number":2}`})

	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	edit(t, segments[1].Path, func([]byte) []byte { return []byte("no gzip") })
	noted = nil
	found, err = log.UsageSince(seq, hash, func(text json.RawMessage) { noted = append(noted, string(text)) })
	assert.ErrorContains(t, err, segments[1].Path)
	assert.Assert(t, found)
	assert.DeepEqual(t, noted, []string{`{"number":0}`, `{"number":2}`})
}

func TestWhatTheDiskDidNotTakeIsNotNoted(t *testing.T) {
	f := &faults{}
	dir := newDir(t)
	log := open(t, audit.Options{Dir: dir, Open: f.Open, RetryEvery: time.Millisecond})
	f.set(func(f *faults) { f.sync = func() error { return errors.New("broken") } })
	r := &reservation{text: `{"number":1}`}
	_, err := log.Begin(broker.WithReservation(t.Context(), r), effect("execute_code"))
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
	assert.Assert(t, !r.noted)
	f.set(func(f *faults) { f.sync = nil })
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		// A caller can be refused before the log says that it fails.
		if state := log.State(); state.Writable && state.Recovered == 1 {
			return poll.Success()
		}
		return poll.Continue("%+v, %v", log.State(), log.Err())
	}, poll.WithTimeout(2*time.Minute))
	seq, hash := log.Position()
	noteIn(t, log, 2)
	noted, found := usageSince(t, log, seq, hash)
	assert.Assert(t, found)
	assert.DeepEqual(t, noted, []string{`{"number":2}`})
	shut(t, log)
	intact(t, dir)
}

func BenchmarkUsageSince(b *testing.B) {
	dir := newDir(b)
	assert.NilError(b, os.MkdirAll(dir, 0o700))
	log := open(b, audit.Options{Dir: dir})
	seq, hash := log.Position()
	for _, test := range []struct{ name, usage string }{
		{"of lines that note nothing", ""},
		{"of lines that note something", `,"usage":{"tenant":"acme","version":1234567,"day":"2026-11-29","executions":123456,"execution_ns":123456789,"money_day":1234,"month":"2026-11","money_month":12345}`},
	} {
		b.Run(test.name, func(b *testing.B) {
			const lines = 100_000
			segments, err := audit.Segments(dir)
			assert.NilError(b, err)
			text, err := os.ReadFile(segments[0].Path)
			assert.NilError(b, err)
			for number := range uint64(lines) {
				text = append(text, audit.Seal(seq+1+number, audit.Hash{}, fmt.Appendf(nil, `{"timestamp":"2026-11-29T12:00:00.000000Z","event":"begin","effect_id":"f-%020d","operation":"execute_code","covers":["create_instance","execute_code","destroy_instance"],"cause":"request","tenant_id":"acme","session_id":"s-abcdefghijklmnopqrst","provider":"self_managed","code_hash":"sha256:%064d","code_bytes":1204%s}`, number, number, test.usage))...)
			}
			other := newDir(b)
			assert.NilError(b, os.MkdirAll(other, 0o700))
			assert.NilError(b, os.WriteFile(filepath.Join(other, filepath.Base(segments[0].Path)), text, 0o600))
			l := open(b, audit.Options{Dir: other})
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				found, err := l.UsageSince(seq, hash, func(json.RawMessage) {})
				assert.NilError(b, err)
				assert.Assert(b, found)
			}
		})
	}
}
