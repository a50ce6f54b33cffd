package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

func TestTheDocumentIsServed(t *testing.T) {
	f := start(t)
	resp := f.do(http.MethodGet, "/openapi.json", "", "Authorization: ").wants(http.StatusOK)
	assert.Equal(t, resp.text, string(f.server.Document()))
	assert.Assert(t, json.Valid([]byte(resp.text)))
	golden.Assert(t, resp.text+"\n", "openapi.golden.json")
}

func TestEveryReferenceInTheDocumentResolves(t *testing.T) {
	f := start(t)
	var document map[string]any
	assert.NilError(t, json.Unmarshal(f.server.Document(), &document))
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				var at any = document
				for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
					at = at.(map[string]any)[part]
				}
				assert.Check(t, at != nil, ref)
			}
			for _, child := range v {
				walk(child)
			}
		case []any:
			for _, child := range v {
				walk(child)
			}
		}
	}
	walk(document)
}
