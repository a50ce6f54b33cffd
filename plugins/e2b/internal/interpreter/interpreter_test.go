package interpreter_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/e2bhttp"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/internal/interpreter"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/remote/kernel"
)

const end = `{"type": "end_of_execution"}` + "\n"

// execute runs a cell on a server that answers so.
func execute(t testing.TB, answer string) (events []kernel.Event, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, answer) }))
	defer server.Close()
	c := interpreter.New(e2bhttp.Endpoint{Base: server.URL, Client: server.Client()})
	err = c.Execute(t.Context(), "c", "1", func(ev kernel.Event) error {
		events = append(events, ev)
		return nil
	})
	return events, err
}

func TestLinesAreEvents(t *testing.T) {
	picture := strings.Repeat("iVBORw0KGgo=", 1)
	for name, c := range map[string]struct {
		line string
		want kernel.Event
	}{
		"stdout":              {`{"type": "stdout", "text": "a\n", "timestamp": "2026-01-01T00:00:00+00:00"}`, kernel.Event{Stdout: []byte("a\n")}},
		"stderr":              {`{"type": "stderr", "text": "a"}`, kernel.Event{Stderr: []byte("a")}},
		"an error":            {`{"type": "error", "name": "E", "value": "v", "traceback": ""}`, kernel.Event{Error: &kernel.Error{Name: "E", Value: "v"}}},
		"a value":             {`{"type": "result", "text": "2", "extra": {}, "is_main_result": true}`, kernel.Event{Value: &kernel.Value{Main: true, Forms: map[string][]byte{"text/plain": []byte("2")}}}},
		"a picture":           {`{"type": "result", "png": "` + picture + `", "text": null, "extra": {"x/y": "z"}}`, kernel.Event{Value: &kernel.Value{Forms: map[string][]byte{"image/png": []byte("\x89PNG\r\n\x1a\n"), "x/y": []byte("z")}}}},
		"documents":           {`{"type": "result", "json": [1], "data": {"a": [1]}, "chart": null}`, kernel.Event{Value: &kernel.Value{Forms: map[string][]byte{"application/json": []byte("[1]"), interpreter.DataType: []byte(`{"a": [1]}`)}}}},
		"a chart":             {`{"type": "result", "chart": {"type": "pie", "elements": []}}`, kernel.Event{Value: &kernel.Value{Forms: map[string][]byte{interpreter.ChartType: []byte(`{"type": "pie", "elements": []}`)}}}},
		"fields of odd types": {`{"type": "result", "text": 5, "png": {"a": 1}}`, kernel.Event{Value: &kernel.Value{Forms: map[string][]byte{}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := execute(t, c.line+"\n"+end)
			assert.NilError(t, err)
			assert.DeepEqual(t, got, []kernel.Event{c.want})
		})
	}
}

func TestLinesThatSayNothingAreIgnored(t *testing.T) {
	got, err := execute(t, "\n"+`{"type": "keepalive"}`+"\n"+`{"type": "of_tomorrow", "x": 1}`+"\n"+`{"type": "number_of_executions", "execution_count": 1}`+"\n"+end)
	assert.NilError(t, err)
	assert.Equal(t, len(got), 0)
}

func TestALongLineArrivesWhole(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	got, err := execute(t, `{"type": "stdout", "text": "`+long+`"}`+"\n"+end)
	assert.NilError(t, err)
	assert.Equal(t, string(got[0].Stdout), long)
}

func TestAStreamWithoutItsEndIsLost(t *testing.T) {
	for _, answer := range []string{"", `{"type": "stdout", "text": "a"}` + "\n", `{"type": "end_of_exec`} {
		_, err := execute(t, answer)
		_, lost := errors.AsType[*e2bhttp.LostError](err)
		assert.Check(t, lost, "%q: %v", answer, err)
	}
	_, err := execute(t, "<html>\n")
	e, ok := errors.AsType[*e2bhttp.Error](err)
	assert.Check(t, ok && e.NotJSON, "%v", err)
}
