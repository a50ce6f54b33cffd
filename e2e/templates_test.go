package e2e_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// push makes an image of a small root file system that greets so, and gives it a tag.
func push(t *testing.T, host, greeting string) (tag string) {
	t.Helper()
	var layers []io.Reader
	var root, changed bytes.Buffer
	w := tar.NewWriter(&root)
	assert.NilError(t, w.AddFS(os.DirFS(smallroot.Bash(t))))
	assert.NilError(t, w.Close())
	w = tar.NewWriter(&changed)
	assert.NilError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "srv/greeting", Mode: 0o644, Size: int64(len(greeting))}))
	_, err := w.Write([]byte(greeting))
	assert.NilError(t, err)
	assert.NilError(t, w.Close())
	layers = append(layers, &root, &changed)
	image := empty.Image
	for _, layer := range layers {
		raw, err := io.ReadAll(layer)
		assert.NilError(t, err)
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
		assert.NilError(t, err)
		image, err = mutate.AppendLayers(image, l)
		assert.NilError(t, err)
	}
	config, err := image.ConfigFile()
	assert.NilError(t, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	image, err = mutate.ConfigFile(image, config)
	assert.NilError(t, err)
	ref, err := name.ParseReference(host + "/small:1")
	assert.NilError(t, err)
	assert.NilError(t, remote.Write(ref, image))
	return ref.String()
}

// template waits until a template is ready, and returns what administrators see of it.
func readyTemplate(t *testing.T, b *harness.Broker, name string, also func(client.AdminTemplate) bool) (found client.AdminTemplate) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var list client.AdminTemplateList
		answer := b.Do(http.MethodGet, adminAPI+"/templates", adminToken, nil)
		answer.Into(t, &list)
		for _, found = range list.Data {
			if found.Name == name && found.State == "ready" && (also == nil || also(found)) {
				return poll.Success()
			}
		}
		return poll.Continue("%s\n%s", answer.Body, b.Log())
	}, poll.WithTimeout(2*time.Minute))
	return found
}

func TestSandboxesOfAnImage(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	tag := push(t, host, "first\n")
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + adminBlock() + fmt.Sprintf(`
limits { create_timeout = "5m" }
provider "self_managed" {
  runsc         = %q
  pool_size     = 2
  queue_timeout = "4m"
}
template "data" {
  from      = %q
  env       = { OWN = "a-value-that-is-secret" }
  memory_mb = 200
  tenants   = ["acme"]
}
`, binaries.Runsc(t), tag),
	})
	first := readyTemplate(t, b, "data", nil)
	greets := func(template, want string) {
		t.Helper()
		e := b.Execute(t, map[string]any{"template": template, "language": "bash", "code": "cat /srv/greeting"})
		assert.Check(t, is.Equal(e.Stdout, want), "%+v", e)
	}
	greets("data", "first\n")
	e := b.Execute(t, map[string]any{"template": "data", "language": "bash", "code": "echo $OWN"})
	assert.Check(t, is.Equal(e.Stdout, "a-value-that-is-secret\n"))
	var made client.Instance
	b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"template": "data"}).Into(t, &made)
	assert.Check(t, is.Equal(made.Template, "data"))
	assert.Check(t, is.Equal(made.Metadata["memory_mb"], "200"))
	// It is forked and kept as any other.
	ctx, snapshots := t.Context(), client.SnapshotsOf(b.API())
	forked, err := snapshots.Fork(ctx, made.ID, client.ForkInstanceRequest{Count: 2})
	assert.NilError(t, err)
	assert.Assert(t, is.Len(forked.Instances, 2))
	for _, i := range forked.Instances {
		assert.Check(t, is.Equal(i.Template, "data"))
		destroyAfter(t, b, i.ID)
	}
	kept, err := snapshots.Create(ctx, made.ID, client.CreateSnapshotRequest{})
	assert.NilError(t, err)

	// What it cannot run is refused before anything is made; who may not use it knows nothing of it.
	refused := harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"template": "data", "language": "python", "code": "1"}), http.StatusUnprocessableEntity, "SB010")
	assert.Check(t, is.Contains(refused.Detail, `the template "data" does not run python`))
	refused = harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.OtherToken, map[string]any{"template": "data", "language": "bash", "code": "1"}), http.StatusUnprocessableEntity, "SB010")
	assert.Check(t, is.Equal(refused.Field, "template"))
	var list client.TemplateList
	b.Do(http.MethodGet, "/api/v1/templates", harness.Token, nil).Into(t, &list)
	assert.Check(t, is.Len(list.Templates, 1))
	b.Do(http.MethodGet, "/api/v1/templates", harness.OtherToken, nil).Into(t, &list)
	assert.Check(t, is.Len(list.Templates, 0))

	// The tag leads elsewhere, and the broker is killed: the image stays what it was.
	push(t, host, "second\n")
	b.Kill()
	b.Restart()
	again := readyTemplate(t, b, "data", nil)
	assert.Check(t, is.Equal(again.Source, first.Source))
	assert.Check(t, is.Equal(again.Image, first.Image))
	greets("data", "first\n")
	assert.Equal(t, b.Do(http.MethodPost, adminAPI+"/templates/data/build", adminToken, nil).Status, http.StatusAccepted)
	readyTemplate(t, b, "data", func(now client.AdminTemplate) bool { return now.Source != first.Source })
	greets("data", "second\n")
	// What was kept goes on with what it was made of.
	copied, err := b.API().CreateInstance(ctx, client.CreateInstanceRequest{Snapshot: kept.ID, SessionID: "copy"})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(copied.Template, "data"))
	e = b.Execute(t, map[string]any{"session_id": "copy", "language": "bash", "code": "cat /srv/greeting; echo $OWN"})
	assert.Check(t, is.Equal(e.Stdout, "first\na-value-that-is-secret\n"))

	_, audited := auditLines(t, auditDir(b))
	for _, text := range []string{string(b.Do(http.MethodGet, adminAPI+"/templates", adminToken, nil).Body), b.Log(), audited} {
		assert.Check(t, !strings.Contains(text, "a-value-that-is-secret"))
	}
	assert.Check(t, is.Contains(audited, `"build_template"`))
}

func TestAnAdministratorChangesTemplates(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag := push(t, strings.TrimPrefix(server.URL, "http://"), "hello\n")
	root := smallroot.Bash(t)
	b := startChangeable(t, fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  pool_size = 0\n}\ntemplate \"files\" {\n  rootfs = %q\n}\n", binaries.Runsc(t), root))

	preview := change(t, b, http.MethodPut, "/templates/late", "", map[string]any{"from": tag, "dry_run": true})
	assert.Equal(t, preview.Status, http.StatusOK, "%s", preview.Body)
	assert.Check(t, is.Contains(string(preview.Body), `+template \"late\"`))
	assert.Equal(t, change(t, b, http.MethodPut, "/templates/late", "", map[string]any{"from": tag, "tenants": []string{"acme"}, "memory_mb": 128}).Status, http.StatusOK)
	readyTemplate(t, b, "late", nil)
	e := b.Execute(t, map[string]any{"template": "late", "language": "bash", "code": "cat /srv/greeting"})
	assert.Check(t, is.Equal(e.Stdout, "hello\n"), "%+v", e)

	for name, c := range map[string]struct {
		path, want string
		body       map[string]any
		status     int
	}{
		"a path of the machine":      {"/templates/files", "change this template in the file", map[string]any{"from": tag}, http.StatusForbidden},
		"a path that is not taken":   {"/templates/other", "rootfs", map[string]any{"rootfs": "/etc"}, http.StatusUnprocessableEntity},
		"a tenant that there is not": {"/templates/other", "Unknown tenant", map[string]any{"from": tag, "tenants": []string{"nobody"}}, http.StatusBadRequest},
		"no name":                    {"/templates/No%20Name", "of the form", map[string]any{"from": tag}, http.StatusBadRequest},
	} {
		answer := change(t, b, http.MethodPut, c.path, "", c.body)
		assert.Check(t, is.Equal(answer.Status, c.status), "%s: %s", name, answer.Body)
		assert.Check(t, is.Contains(string(answer.Body), c.want), name)
	}
	assert.Equal(t, change(t, b, http.MethodDelete, "/templates/late", "", map[string]any{}).Status, http.StatusOK)
	harness.Refused(t, b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"template": "late", "language": "bash", "code": "1"}), http.StatusUnprocessableEntity, "SB010")
	assert.Equal(t, change(t, b, http.MethodDelete, "/templates/late", "", map[string]any{}).Status, http.StatusNotFound)
}
