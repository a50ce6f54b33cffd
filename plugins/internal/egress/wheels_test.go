package egress_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/egress"
)

func TestWheelsAreServedAndNothingElse(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	assert.NilError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	dir := t.TempDir()
	for _, name := range []string{"a-1.0+local-py3-none-any.whl", "notes.txt"} {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte("content of "+name), 0o600))
	}
	assert.NilError(t, os.Symlink(outside, filepath.Join(dir, "out-1.0-py3-none-any.whl")))
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "dir-1.0-py3-none-any.whl"), 0o700))
	wheels, err := egress.ServeWheels(dir)
	assert.NilError(t, err)
	transport := &http.Transport{DialContext: wheels.DialContext}
	client := &http.Client{Transport: transport}
	get := func(path string) (int, string) {
		resp, err := client.Get("http://" + egress.WheelHost + path)
		assert.NilError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		return resp.StatusCode, string(text)
	}
	status, page := get("/")
	assert.Equal(t, status, http.StatusOK)
	assert.Check(t, is.Contains(page, `<a href="a-1.0+local-py3-none-any.whl">`))
	status, text := get("/a-1.0%2Blocal-py3-none-any.whl")
	assert.Check(t, is.Equal(status, http.StatusOK))
	assert.Check(t, is.Equal(text, "content of a-1.0+local-py3-none-any.whl"))
	for _, path := range []string{"/notes.txt", "/out-1.0-py3-none-any.whl", "/dir-1.0-py3-none-any.whl", "/../secret", "/none-1.0-py3-none-any.whl", "//", "/%2e%2e/x.whl"} {
		status, text := get(path)
		assert.Check(t, status != http.StatusOK, path)
		assert.Check(t, text != "secret")
	}
	// Who fills it may put another directory in its place.
	assert.NilError(t, os.Rename(dir, dir+".old"))
	status, _ = get("/")
	assert.Check(t, is.Equal(status, http.StatusInternalServerError))
	assert.NilError(t, os.Mkdir(dir, 0o700))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "b-2.0-py3-none-any.whl"), []byte("new"), 0o600))
	_, page = get("/")
	assert.Check(t, is.Contains(page, "b-2.0-py3-none-any.whl"))
	_, text = get("/b-2.0-py3-none-any.whl")
	assert.Check(t, is.Equal(text, "new"))
	transport.CloseIdleConnections()
	assert.NilError(t, wheels.Close())
	_, err = wheels.DialContext(t.Context(), "tcp", egress.WheelHost)
	assert.ErrorContains(t, err, "not served any more")
}
