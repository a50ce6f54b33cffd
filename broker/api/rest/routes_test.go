package rest_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	v1 "github.com/sandbox-broker/sandbox-broker/broker/api/v1"
)

// newServer returns one with the broker's own API, which has routes of all kinds.
func newServer(t *testing.T) (*rest.Server, *rest.API) {
	t.Helper()
	s := rest.NewServer(rest.Options{Logger: hclog.NewNullLogger(), Bounds: rest.Bounds{MaxBody: 1 << 10}})
	a, err := v1.Add(s, v1.Options{PreviewHosts: &atomic.Pointer[v1.PreviewHosts]{}})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, s.Shutdown(context.Background())) })
	return s, a
}

func TestRoutesAndDocumentAgree(t *testing.T) {
	s, a := newServer(t)
	served := map[string]bool{}
	for _, stack := range s.Stack() {
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
	text, err := a.Document()
	assert.NilError(t, err)
	assert.NilError(t, json.Unmarshal(text, &document))
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
	_, a := newServer(t)
	enforced := []string{"Type", "Properties", "Required", "AdditionalProperties", "MinLength", "MaxLength", "Pattern", "ExclusiveMinimum", "Minimum", "Maximum", "MaxProperties", "Items", "MinItems", "MaxItems", "Enum"}
	words := []string{"Title", "Description", "Format", "Examples", "PatternDescription", "Ref", "Extensions", "Default"}
	seen := 0
	var check func(path string, schema *huma.Schema)
	check = func(path string, schema *huma.Schema) {
		if schema.Ref != "" {
			schema = a.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
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
	for _, item := range a.OpenAPI().Paths {
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
