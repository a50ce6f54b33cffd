package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
)

// This test is inside the package: it looks at Fiber's own table of routes.

func newTestServer(t *testing.T) *Server {
	t.Helper()
	s, err := NewServer(Options{Logger: hclog.NewNullLogger(), Bounds: Bounds{MaxBody: 1 << 10}})
	assert.NilError(t, err)
	t.Cleanup(s.end)
	return s
}

func TestRoutesAndDocumentAgree(t *testing.T) {
	s := newTestServer(t)
	served := map[string]bool{}
	for _, stack := range s.app.Stack() {
		for _, route := range stack {
			if route.Path == "/" && len(route.Handlers) == 1 { // the middleware
				continue
			}
			served[route.Method+" "+route.Path] = true
		}
	}
	documented := map[string]bool{}
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	assert.NilError(t, json.Unmarshal(s.Document(), &document))
	for path, operations := range document.Paths {
		path = strings.NewReplacer("{path}", "*", "{", ":", "}", "").Replace(path)
		for method := range operations {
			documented[strings.ToUpper(method)+" "+path] = true
			if method == "get" {
				documented["HEAD "+path] = true // HTTP defines it by GET
			}
		}
	}
	assert.DeepEqual(t, slices.Sorted(maps.Keys(served)), slices.Sorted(maps.Keys(documented)))
	assert.Assert(t, documented["POST /api/v1/execute"])
}

// TestEveryRuleOfARequestIsEnforced fails for a schema keyword in a request
// that bodyCheck does not know.
func TestEveryRuleOfARequestIsEnforced(t *testing.T) {
	s := newTestServer(t)
	enforced := []string{"Type", "Properties", "Required", "AdditionalProperties", "MinLength", "MaxLength", "Pattern", "ExclusiveMinimum", "Minimum", "Maximum", "MaxProperties", "Items", "MinItems", "MaxItems", "Enum"}
	words := []string{"Title", "Description", "Format", "Examples", "PatternDescription", "Ref", "Extensions", "Default"}
	seen := 0
	var check func(path string, schema *huma.Schema)
	check = func(path string, schema *huma.Schema) {
		if schema.Ref != "" {
			schema = s.document.schemas().SchemaFromRef(schema.Ref)
		}
		seen++
		v := reflect.ValueOf(schema).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !v.Type().Field(i).IsExported() || v.Field(i).IsZero() || slices.Contains(words, name) {
				continue
			}
			if m := v.Field(i); m.Kind() == reflect.Map && m.Len() == 0 {
				continue
			}
			assert.Check(t, slices.Contains(enforced, name), "%s: %s is promised and not enforced", path, name)
		}
		assert.Check(t, schema.Pattern == "" || schema.PatternDescription != "", "%s has a pattern without words", path)
		for name, property := range schema.Properties {
			check(path+"."+name, property)
		}
		if values, ok := schema.AdditionalProperties.(*huma.Schema); ok {
			check(path+".*", values)
		}
		if schema.Items != nil {
			check(path+"[]", schema.Items)
		}
	}
	for _, item := range s.document.openapi.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			if body := op.RequestBody.Content["application/json"]; body != nil {
				check(op.OperationID, body.Schema)
			}
		}
	}
	assert.Assert(t, seen > 20)
}

func FuzzDecode(f *testing.F) {
	document := newDocument()
	d := newDecoder(document.schemas(), document.schemaOf(reflect.TypeFor[ExecuteRequest]()))
	for _, seed := range []string{
		`{"code":"1","language":"js"}`,
		`{"code":"1","language":"js","arguments":{"a":[1,{"b":null}]},"env":{"A":"b"},"timeout":1.5,"keep":false}`,
		`{"code":1,"language":{"a":[]},"env":{"A":1,"A":2},"x":[[[]]]}`,
		`[`, `null`, "\xff", `{"a":`, `{"code":null}`, `{"":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req ExecuteRequest
		if err := d.decode("application/json", "", body, &req); err != nil {
			p, _ := problemOf(err, "x")
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
	s := newTestServer(t)
	d := newDecoder(s.document.schemas(), s.document.schemaOf(reflect.TypeFor[ExecuteRequest]()))
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
				err := d.decode("application/json", "", []byte(body), &ExecuteRequest{})
				problem, ok := errors.AsType[*requestError](err)
				assert.Assert(t, ok, "%v", err)
				assert.Assert(t, len(problem.fields) <= maxFieldErrors)
			})
			assert.Assert(t, allocations < 2000, "%v", allocations)
		})
	}
}

func TestLargeArgumentsCostLittleMoreThanTheirSize(t *testing.T) {
	s := newTestServer(t)
	d := newDecoder(s.document.schemas(), s.document.schemaOf(reflect.TypeFor[ExecuteRequest]()))
	const size = 4 << 20
	body := []byte(`{"code":"1","language":"js","arguments":{"a":[0` + strings.Repeat(",0", size/2) + `]}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	assert.NilError(t, d.decode("application/json", "", body, &ExecuteRequest{}))
	runtime.ReadMemStats(&after)
	used := after.TotalAlloc - before.TotalAlloc
	assert.Assert(t, used < 15*size, "%d MiB", used>>20)
}
