package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const volumeConfig = harness.Tenants + `
provider "self_managed" {
  pool_size  = 0
  volumes_mb = 256
}
`

// Volumes through the real broker, with real sandboxes: what is written outlives instances
// and a broker that is killed, nobody else finds it, and a request that is sent again makes
// nothing twice.
func TestVolumesOutliveInstancesAndTheBroker(t *testing.T) {
	if os.Geteuid() != 0 {
		binaries.Missing(t, "volumes need root")
	}
	t.Parallel()
	b := harness.Start(t, harness.Options{Config: strings.Replace(volumeConfig, "quota { max_concurrent = 10000 }",
		"quota {\n  max_concurrent   = 10000\n  max_volumes      = 2\n  max_volume_bytes = 104857600\n}", 1)})
	ctx, api := t.Context(), b.API()

	create := map[string]any{"name": "data", "size_bytes": 32 << 20}
	key := map[string]string{"Idempotency-Key": "k1"}
	first := b.DoWith(http.MethodPost, "/api/v1/volumes", harness.Token, create, key)
	assert.Equal(t, first.Status, http.StatusCreated, "%s", first.Body)
	again := b.DoWith(http.MethodPost, "/api/v1/volumes", harness.Token, create, key)
	assert.Equal(t, again.Status, http.StatusCreated, "%s", again.Body)
	assert.Check(t, is.Equal(string(first.Body), string(again.Body)))
	assert.Equal(t, b.Do(http.MethodPost, "/api/v1/volumes", harness.Token, create).Status, http.StatusConflict)
	assert.Equal(t, b.Do(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": "large", "size_bytes": 90 << 20}).Status, http.StatusTooManyRequests)

	_, err := api.WriteFile(ctx, client.FilesOf("data"), map[string][]string{"path": {"in/a.txt"}, "parents": {"true"}}, strings.NewReader("by the API"))
	assert.NilError(t, err)
	mounted := func(session, path string, readOnly bool) {
		t.Helper()
		i, err := api.CreateInstance(ctx, client.CreateInstanceRequest{
			SessionID: session, Template: "bash", Volumes: []client.VolumeMount{{Name: "data", Path: path, ReadOnly: readOnly}},
		})
		assert.NilError(t, err)
		assert.Check(t, is.Len(i.Volumes, 1))
	}
	in := func(session, code string) string {
		t.Helper()
		return strings.TrimSpace(b.Execute(t, map[string]any{"language": "bash", "session_id": session, "code": code}).Stdout)
	}
	mounted("one", "/data", false)
	mounted("two", "/workspace/v", true)
	assert.Check(t, is.Equal(in("one", "cat /data/in/a.txt; echo kept > /data/kept"), "by the API"))
	assert.Check(t, is.Equal(in("two", "cat /workspace/v/kept; touch /workspace/v/x || echo refused"), "kept\nrefused"))

	for _, path := range []string{"/api/v1/volumes/data", "/api/v1/volumes/data/files?path=/", "/api/v1/volumes/data/archive"} {
		assert.Equal(t, b.Do(http.MethodGet, path, harness.OtherToken, nil).Status, http.StatusNotFound, path)
	}
	stolen := b.Do(http.MethodPost, "/api/v1/instances", harness.OtherToken, map[string]any{"volumes": []map[string]any{{"name": "data", "path": "/data"}}})
	assert.Equal(t, stolen.Status, http.StatusNotFound, "%s", stolen.Body)
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/volumes/data", harness.OtherToken, nil).Status, http.StatusNotFound)
	assert.Equal(t, b.Do(http.MethodDelete, "/api/v1/volumes/data", harness.Token, nil).Status, http.StatusConflict)

	b.Kill()
	b.WaitGone()
	b.Restart()
	api = b.API()
	content, err := api.ReadFile(ctx, client.FilesOf("data"), "kept")
	assert.NilError(t, err)
	assert.NilError(t, content.Close())
	_, err = client.VolumesOf(api).Create(ctx, client.CreateVolumeRequest{Name: "copy", From: "data"})
	assert.NilError(t, err)
	found, err := api.StatFile(ctx, client.FilesOf("copy"), "/kept")
	assert.NilError(t, err)
	assert.Check(t, is.Equal(found.Size, int64(len("kept\n"))))
	assert.Equal(t, b.Do(http.MethodPost, "/api/v1/volumes", harness.Token, map[string]any{"name": "third", "size_bytes": 16 << 20}).Status, http.StatusTooManyRequests)
	used := b.Do(http.MethodGet, "/api/v1/usage", harness.Token, nil)
	assert.Check(t, is.Contains(string(used.Body), `{"name":"max_volumes","used":2,"limit":2}`))
	assert.Check(t, is.Contains(string(used.Body), `{"name":"max_volume_bytes","used":67108864,"limit":104857600}`))

	// The instances ended with the broker.
	for _, name := range []string{"data", "copy"} {
		assert.NilError(t, client.VolumesOf(api).Delete(ctx, name))
	}
	list, err := client.VolumesOf(api).List(ctx)
	assert.NilError(t, err)
	assert.Check(t, is.Len(list.Volumes, 0))
	kept, err := filepath.Glob(filepath.Join(b.Dir, "state", "providers", "self_managed", "volumes", "*", "volume-*"))
	assert.NilError(t, err)
	assert.Check(t, is.Len(kept, 0))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if left := loopDevicesOf(t, b.Dir); len(left) > 0 {
			return poll.Continue("%v", left)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// loopDevicesOf finds the loop devices whose file is, or was, below a directory.
func loopDevicesOf(t *testing.T, dir string) (devices []string) {
	t.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	assert.NilError(t, err)
	for _, file := range files {
		if path, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(path), dir) {
			devices = append(devices, fmt.Sprintf("%s: %s", file, path))
		}
	}
	return devices
}
