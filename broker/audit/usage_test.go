package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	broker "github.com/sandbox-broker/sandbox-broker/broker/effect"
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
