package e2e_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

const (
	// transferBytes go each way, several times transferMemory. The sandbox keeps them in memory.
	transferBytes = 256 << 20
	// transferMemory is how much more broker and plugin each may hold meanwhile.
	transferMemory = 64 << 20
)

// transfers sends files to a sandbox and receives them, through one of the APIs.
type transfers struct {
	upload, download func(ctx context.Context, path string, content io.Reader) (*http.Request, error)
}

// What streams through is not kept, whether the client takes it or not.
func TestFilesStreamInBoundedMemory(t *testing.T) {
	t.Parallel()
	b := startForTransfers(t, "")
	id := newFiles(t, b).id
	of := func(method string) func(context.Context, string, io.Reader) (*http.Request, error) {
		return func(ctx context.Context, path string, content io.Reader) (*http.Request, error) {
			req, err := http.NewRequestWithContext(ctx, method, b.URL+"/api/v1/instances/"+id+"/files/content?path="+path, content)
			if err == nil {
				req.Header.Set("Authorization", "Bearer "+harness.Token)
			}
			return req, err
		}
	}
	transfers{upload: of(http.MethodPut), download: of(http.MethodGet)}.inBoundedMemory(t, b)
}

// The same holds of OpenSandbox's forms.
func TestFilesStreamInBoundedMemoryThroughOpenSandbox(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startForTransfers(t, "front_door \"opensandbox\" {\n  images = { \"python:3.12\" = \"\" }\n}\n")
	const sandboxes = "/opensandbox/v1/sandboxes"
	key := http.Header{"Open-Sandbox-Api-Key": {harness.Token}}
	var made struct{ ID string }
	askDoor(t, b, http.MethodPost, sandboxes, key, `{"image":{"uri":"python:3.12"},"timeout":3600}`, &made)
	var execd struct {
		Endpoint string
		Headers  map[string]string
	}
	askDoor(t, b, http.MethodGet, sandboxes+"/"+made.ID+"/endpoints/44772", key, "", &execd)
	headers := http.Header{}
	for name, value := range execd.Headers {
		headers.Set(name, value)
	}
	transfers{
		upload: func(ctx context.Context, path string, content io.Reader) (*http.Request, error) {
			return formRequest(ctx, "http://"+execd.Endpoint+"/files/upload", headers, path, content, func(form *multipart.Writer) error {
				metadata, err := form.CreateFormFile("metadata", "metadata")
				if err != nil {
					return err
				}
				return json.NewEncoder(metadata).Encode(map[string]string{"path": "/workspace/" + path})
			})
		},
		download: func(ctx context.Context, path string, _ io.Reader) (*http.Request, error) {
			return requestWith(ctx, http.MethodGet, "http://"+execd.Endpoint+"/files/download?path="+url.QueryEscape("/workspace/"+path), headers, nil)
		},
	}.inBoundedMemory(t, b)
}

// The same holds of E2B's forms.
func TestFilesStreamInBoundedMemoryThroughE2B(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startForTransfers(t, "front_door \"e2b\" { }\n")
	var made struct{ SandboxID, EnvdAccessToken string }
	askDoor(t, b, http.MethodPost, "/e2b/sandboxes", http.Header{"X-Api-Key": {harness.Token}}, `{"templateID":"base","timeout":3600,"secure":true}`, &made)
	headers := http.Header{"E2b-Sandbox-Id": {made.SandboxID}, "E2b-Sandbox-Port": {"49983"}, "X-Access-Token": {made.EnvdAccessToken}}
	of := func(path string) string { return b.URL + "/e2b/files?path=" + url.QueryEscape(path) }
	transfers{
		upload: func(ctx context.Context, path string, content io.Reader) (*http.Request, error) {
			return formRequest(ctx, of(path), headers, path, content, func(*multipart.Writer) error { return nil })
		},
		download: func(ctx context.Context, path string, _ io.Reader) (*http.Request, error) {
			return requestWith(ctx, http.MethodGet, of(path), headers, nil)
		},
	}.inBoundedMemory(t, b)
}

// askDoor asks a front door of the broker.
func askDoor(t *testing.T, b *harness.Broker, method, path string, header http.Header, body string, answer any) {
	t.Helper()
	req, err := requestWith(t.Context(), method, b.URL+path, header, strings.NewReader(body))
	assert.NilError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	assert.Assert(t, resp.StatusCode < http.StatusMultipleChoices, "%d %s", resp.StatusCode, text)
	assert.NilError(t, json.Unmarshal(text, answer))
}

func requestWith(ctx context.Context, method, url string, header http.Header, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err == nil {
		maps.Copy(req.Header, header)
	}
	return req, err
}

// formRequest sends a file in a form, after what comes first in it. The form is written
// around the content, which is too large to be held here too.
func formRequest(ctx context.Context, url string, header http.Header, name string, content io.Reader, first func(*multipart.Writer) error) (*http.Request, error) {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if err := first(form); err != nil {
		return nil, err
	}
	if _, err := form.CreateFormFile("file", name); err != nil {
		return nil, err
	}
	end := strings.NewReader("\r\n--" + form.Boundary() + "--\r\n")
	req, err := requestWith(ctx, http.MethodPost, url, header, io.MultiReader(&head, content, end))
	if err == nil {
		req.Header.Set("Content-Type", form.FormDataContentType())
	}
	return req, err
}

// startForTransfers starts a broker whose sandboxes have room for what is sent, with the
// given front doors.
func startForTransfers(t *testing.T, doors string) *harness.Broker {
	t.Helper()
	return harness.Start(t, harness.Options{
		Config: harness.Tenants + doors + fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 0\n  workspace_mb = 300\n  memory_mb = 2048\n}\n", binaries.Runsc(t)),
	})
}

// inBoundedMemory fails the test if broker or plugin keep what goes through them.
func (f transfers) inBoundedMemory(t *testing.T, b *harness.Broker) {
	t.Helper()
	put := func(path string, content io.Reader) {
		t.Helper()
		resp, err := f.send(t, f.upload, path, content)
		assert.NilError(t, err)
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.StatusCode, http.StatusOK, "%s", text)
	}
	get := func(path string) io.ReadCloser {
		t.Helper()
		resp, err := f.send(t, f.download, path, nil)
		assert.NilError(t, err)
		assert.Equal(t, resp.StatusCode, http.StatusOK)
		return resp.Body
	}
	read := func(path string) (n int64, sum []byte) {
		t.Helper()
		body, hash := get(path), sha256.New()
		n, err := io.Copy(hash, body)
		assert.NilError(t, err)
		assert.NilError(t, body.Close())
		return n, hash.Sum(nil)
	}
	warm := make([]byte, 1<<20)
	put("warm", bytes.NewReader(warm))
	warmSum := sha256.Sum256(warm)
	n, got := read("warm")
	assert.Equal(t, n, int64(len(warm)))
	assert.DeepEqual(t, got, warmSum[:])

	m := harness.WatchMemory(t, transferMemory, map[string]int{"broker": b.PID, "plugin": b.Plugin("self_managed")})
	sent := sha256.New()
	put("large", io.TeeReader(io.LimitReader(endless{}, transferBytes), sent))
	m.Check(t, "an upload")

	n, got = read("large")
	assert.Equal(t, n, int64(transferBytes))
	assert.DeepEqual(t, got, sent.Sum(nil))
	m.Check(t, "a download")

	// These take a little and then nothing more.
	for range 4 {
		body := get("large")
		defer body.Close()
		_, err := io.ReadFull(body, make([]byte, 1<<20))
		assert.NilError(t, err)
	}
	n, got = read("warm")
	assert.Equal(t, n, int64(len(warm)), "others are served")
	assert.DeepEqual(t, got, warmSum[:])
	m.Check(t, "four readers that stall")

	// These give a little and then nothing more, and are there until the end.
	var stalled sync.WaitGroup
	defer stalled.Wait()
	for i := range 4 {
		body, client := io.Pipe()
		stalled.Go(func() {
			resp, err := f.send(t, f.upload, fmt.Sprint("stalled-", i), body)
			if err == nil {
				_ = resp.Body.Close()
			}
			assert.Check(t, err != nil, "an upload without its end is answered")
		})
		_, err := client.Write(make([]byte, 1<<20))
		assert.NilError(t, err)
		defer client.CloseWithError(errors.New("the client gives up")) //nolint:errcheck // never fails
	}
	put("warm", bytes.NewReader([]byte("x"))) // others are served
	m.Check(t, "four writers that stall beside them")
}

// send sends a request, and returns its answer when that begins.
func (f transfers) send(t *testing.T, request func(context.Context, string, io.Reader) (*http.Request, error), path string, content io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	t.Cleanup(cancel)
	req, err := request(ctx, path, content)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}
