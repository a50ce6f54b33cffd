package api_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

func TestTheDocumentIsServed(t *testing.T) {
	f := start(t)
	resp := f.do(http.MethodGet, "/openapi.json", "", "Authorization: ").wants(http.StatusOK)
	assert.Assert(t, json.Valid([]byte(resp.text)))
	golden.Assert(t, resp.text+"\n", "openapi.golden.json")
}

func TestEveryReferenceInTheDocumentResolves(t *testing.T) {
	f := start(t)
	var document map[string]any
	f.do(http.MethodGet, "/openapi.json", "").wants(http.StatusOK).decode(&document)
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

// What every operation refuses with is in the document: a parameter that it does not
// take, and a port that is none.
func TestTheDocumentHasTheStatusesOfRefusals(t *testing.T) {
	f := start(t)
	var document struct {
		Paths map[string]map[string]struct {
			Responses map[string]any `json:"responses"`
		} `json:"paths"`
	}
	f.do(http.MethodGet, "/openapi.json", "").wants(http.StatusOK).decode(&document)
	asked := 0
	for path, operations := range document.Paths {
		for method, operation := range operations {
			target := regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "0") + "?no-such-parameter=%zz&x=1"
			status := strconv.Itoa(f.do(strings.ToUpper(method), target, "").StatusCode)
			_, known := operation.Responses[status]
			assert.Check(t, known, "%s %s answers %s", method, path, status)
			target = strings.Replace(target, "%zz", "", 1)
			status = strconv.Itoa(f.do(strings.ToUpper(method), target, "").StatusCode)
			_, known = operation.Responses[status]
			assert.Check(t, known, "%s %s answers %s", method, path, status)
			asked++
		}
	}
	assert.Assert(t, asked > 50)
	_, ok := document.Paths["/api/v1/instances/{id}/files/content"]["get"].Responses["416"]
	assert.Check(t, ok)
}
