package frontdoortest

import (
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

func TestARouteWithoutATranscriptIsTold(t *testing.T) {
	t.Chdir(t.TempDir())
	assert.NilError(t, os.Mkdir("testdata", 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join("testdata", "some.golden"), []byte(
		">>> GET /door/things/a?x=1 HTTP/1.1\nHost: h\n\nGET /door/other\n\nDELETE /door/things/list HTTP/1.1\n>>> PUT /door/ports/80/deep/er HTTP/1.1\n>>> GET /another/other HTTP/1.1\n"), 0o600))
	var operations []rest.Operation
	for _, op := range [][2]string{
		{"GET", "/things/{id}"},
		{"POST", "/things/{id}"},
		{"DELETE", "/things/list"},
		{"DELETE", "/things/{id}"},
		{"PUT", "/ports/{port}/*"},
		{"PUT", "/ports/{port}"},
		{"GET", "/other"},
	} {
		operations = append(operations, rest.Operation{Method: op[0], Path: op[1]})
	}
	missing, err := Untranscribed(operations, "/door")
	assert.NilError(t, err)
	assert.DeepEqual(t, missing, []string{"DELETE /things/{id}", "GET /other", "POST /things/{id}", "PUT /ports/{port}"})
}
