package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// object has the schema of client.JSONObject.
type object struct{}

func (object) Schema(Registry) *Schema { return &Schema{Type: "object", AdditionalProperties: true} }

// executeDecoder reads the largest request that there is.
func executeDecoder() *decoder {
	document := newDocument(About{Schemas: map[reflect.Type]reflect.Type{reflect.TypeFor[client.JSONObject](): reflect.TypeFor[object]()}})
	return newDecoder(document.schemas(), document.schemaOf(reflect.TypeFor[client.ExecuteRequest]()))
}

func FuzzDecode(f *testing.F) {
	d := executeDecoder()
	for _, seed := range []string{
		`{"code":"1","language":"js"}`,
		`{"code":"1","language":"js","arguments":{"a":[1,{"b":null}]},"env":{"A":"b"},"timeout":1.5,"keep":false}`,
		`{"code":1,"language":{"a":[]},"env":{"A":1,"A":2},"x":[[[]]]}`,
		`[`, `null`, "\xff", `{"a":`, `{"code":null}`, `{"":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req client.ExecuteRequest
		if err := d.decode("application/json", "", body, &req); err != nil {
			p := RefusalOf(err, "x")
			assert.Assert(t, p.Status >= http.StatusBadRequest && p.Status < http.StatusInternalServerError)
			assert.Assert(t, len(p.Errors) <= maxFieldErrors)
			return
		}
		assert.Assert(t, req.Code != "" && req.Language != "" && req.Timeout >= 0)
		assert.Assert(t, req.Arguments == nil || json.Valid(req.Arguments))
	})
}

// TestABodyFullOfMistakesCostsLittle counts allocations, which a clock would not
// do as surely.
func TestABodyFullOfMistakesCostsLittle(t *testing.T) {
	d := executeDecoder()
	var names strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&names, `,"v%d":"x"`, i)
	}
	for name, body := range map[string]string{
		"fields that there are not": `{"code":"1","language":"js"` + names.String() + `}`,
		"too many variables":        `{"code":"1","language":"js","env":{"A":"x"` + names.String() + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			allocations := testing.AllocsPerRun(1, func() {
				err := d.decode("application/json", "", []byte(body), &client.ExecuteRequest{})
				problem, ok := errors.AsType[*Error](err)
				assert.Assert(t, ok, "%v", err)
				assert.Assert(t, len(problem.Fields) <= maxFieldErrors)
			})
			assert.Assert(t, allocations < 2000, "%v", allocations)
		})
	}
}

func TestLargeArgumentsCostLittleMoreThanTheirSize(t *testing.T) {
	d := executeDecoder()
	const size = 4 << 20
	body := []byte(`{"code":"1","language":"js","arguments":{"a":[0` + strings.Repeat(",0", size/2) + `]}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	assert.NilError(t, d.decode("application/json", "", body, &client.ExecuteRequest{}))
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc
	assert.Assert(t, used < 15*size, "%d MiB", used>>20)
}
