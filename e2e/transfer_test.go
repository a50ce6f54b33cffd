package e2e_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

const (
	// transferBytes go each way. The sandbox keeps them in memory.
	transferBytes = 1 << 30
	// transferMemory is how much more broker and plugin each may hold meanwhile.
	transferMemory = 64 << 20
)

// What streams through is not kept, whether the client takes it or not.
func TestFilesStreamInBoundedMemory(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 0\n  workspace_mb = 1100\n  memory_mb = 2048\n}\n", binaries.Runsc(t)),
	})
	f := newFiles(t, b)
	assert.Equal(t, f.put("warm", make([]byte, 1<<20)).Status, http.StatusOK)
	assert.Equal(t, f.get("warm").Status, http.StatusOK)

	m := harness.WatchMemory(t, transferMemory, map[string]int{"broker": b.PID, "plugin": b.Plugin("self_managed")})
	sent := sha256.New()
	resp := f.begin(t, http.MethodPut, io.TeeReader(io.LimitReader(endless{}, transferBytes), sent))
	assert.Equal(t, resp.StatusCode, http.StatusOK)
	assert.NilError(t, resp.Body.Close())
	m.Check(t, "an upload")

	got := sha256.New()
	resp = f.begin(t, http.MethodGet, nil)
	n, err := io.Copy(got, resp.Body)
	assert.NilError(t, err)
	assert.NilError(t, resp.Body.Close())
	assert.Equal(t, n, int64(transferBytes))
	assert.DeepEqual(t, got.Sum(nil), sent.Sum(nil))
	m.Check(t, "a download")

	// These take a little and then nothing more.
	for range 4 {
		resp := f.begin(t, http.MethodGet, nil)
		defer resp.Body.Close()
		_, err := io.ReadFull(resp.Body, make([]byte, 1<<20))
		assert.NilError(t, err)
	}
	assert.Equal(t, string(f.get("warm").Body), string(make([]byte, 1<<20)), "others are served")
	m.Check(t, "four readers that stall")

	// These give a little and then nothing more, and are there until the end.
	var stalled sync.WaitGroup
	defer stalled.Wait()
	for i := range 4 {
		body, client := io.Pipe()
		stalled.Go(func() {
			resp, err := f.request(t, http.MethodPut, fmt.Sprint("stalled-", i), body)
			if err == nil {
				_ = resp.Body.Close()
			}
			assert.Check(t, err != nil, "an upload without its end is answered")
		})
		_, err := client.Write(make([]byte, 1<<20))
		assert.NilError(t, err)
		defer client.CloseWithError(errors.New("the client gives up")) //nolint:errcheck // never fails
	}
	assert.Equal(t, f.put("warm", []byte("x")).Status, http.StatusOK, "others are served")
	m.Check(t, "four writers that stall beside them")
}

// begin starts a request for the large file whose answer is read by the caller.
func (f filesOf) begin(t *testing.T, method string, body io.Reader) *http.Response {
	t.Helper()
	resp, err := f.request(t, method, "large", body)
	assert.NilError(t, err)
	return resp
}

func (f filesOf) request(t *testing.T, method, path string, body io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, f.URL+"/api/v1/instances/"+f.id+"/files/content?path="+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+harness.Token)
	return http.DefaultClient.Do(req)
}
