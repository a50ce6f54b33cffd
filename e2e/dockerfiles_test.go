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
	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

func TestATemplateOfADockerfile(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "RUN needs root")
	}
	image := smallroot.Image(t, smallroot.Shell(t))
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	const text = `ARG BASE
FROM $BASE
COPY greeting /srv/greeting
RUN echo a-line-of-the-build; [ -z "$OWN" ] && echo built > /srv/built
`
	write("Dockerfile", text)
	write("greeting", "first\n")
	b := startChangeable(t, fmt.Sprintf(`
provider "self_managed" {
  runsc     = %q
  pool_size = 0
}
template "data" {
  dockerfile = %q
  build_args = { BASE = %q }
  env        = { OWN = "a-value-that-is-secret" }
  network {
    allow "packages.example.com" {}
    secret "index" {
      value = "another-value-that-is-secret"
      hosts = ["packages.example.com"]
    }
  }
}
`, binaries.Runsc(t), filepath.Join(dir, "Dockerfile"), image))
	first := readyTemplate(t, b, "data", nil)
	seen := func() string { return string(b.Do(http.MethodGet, adminAPI+"/templates", adminToken, nil).Body) }
	for _, step := range []string{"line 3: COPY greeting /srv/greeting", "line 4 | a-line-of-the-build"} {
		assert.Check(t, is.Contains(seen(), step))
	}
	greets := func(want string) {
		t.Helper()
		e := b.Execute(t, map[string]any{"template": "data", "language": "bash", "code": "cat /srv/greeting /srv/built; echo $OWN"})
		assert.Check(t, is.Equal(e.Stdout, want+"\nbuilt\na-value-that-is-secret\n"), "%+v", e)
	}
	greets("first")

	// What has changed is built when somebody asks for it, and not before.
	write("greeting", "second\n")
	b.Kill()
	b.Restart()
	again := readyTemplate(t, b, "data", nil)
	assert.Check(t, is.Equal(again.Image, first.Image))
	greets("first")
	assert.Equal(t, b.Do(http.MethodPost, adminAPI+"/templates/data/build", adminToken, nil).Status, http.StatusAccepted)
	readyTemplate(t, b, "data", func(now client.AdminTemplate) bool { return now.Source != first.Source })
	greets("second")

	// While a build fails, instances are made of what there was before.
	write("Dockerfile", text+"RUN echo the-reason >&2; exit 7\n")
	assert.Equal(t, b.Do(http.MethodPost, adminAPI+"/templates/data/build", adminToken, nil).Status, http.StatusAccepted)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if body := seen(); !strings.Contains(body, `"failed"`) {
			return poll.Continue("%s", body)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	assert.Check(t, is.Contains(seen(), "line 5: the command ended with the exit code 7; it said last: the-reason"))
	greets("second")

	// It is changed in the file alone.
	for _, body := range []map[string]any{{"from": image}, {"dockerfile": "/etc/passwd"}} {
		answer := change(t, b, http.MethodPut, "/templates/data", "", body)
		assert.Check(t, answer.Status == http.StatusForbidden || answer.Status == http.StatusUnprocessableEntity, "%s", answer.Body)
	}
	_, audited := auditLines(t, auditDir(b))
	tenants := b.Do(http.MethodGet, "/api/v1/templates", harness.Token, nil)
	for _, said := range []string{seen(), b.Log(), audited, string(tenants.Body)} {
		assert.Check(t, !strings.Contains(said, "value-that-is-secret"))
	}
	assert.Check(t, is.Contains(audited, filepath.Join(dir, "Dockerfile")))
}

func TestABuildIsBegunAgainAfterACrash(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	if os.Geteuid() != 0 {
		binaries.Missing(t, "RUN needs root")
	}
	image := smallroot.Image(t, smallroot.Shell(t))
	file := filepath.Join(t.TempDir(), "Dockerfile")
	// The second try ends at once: its context is another.
	text := "FROM " + image + "\nCOPY seconds /seconds\nRUN echo it-has-begun; read -r n < /seconds; sleep $n; echo built > /srv/built\n"
	assert.NilError(t, os.WriteFile(file, []byte(text), 0o644))
	seconds := filepath.Join(filepath.Dir(file), "seconds")
	assert.NilError(t, os.WriteFile(seconds, []byte("600\n"), 0o644))
	b := harness.Start(t, harness.Options{Config: harness.Tenants + adminBlock() + fmt.Sprintf(`
provider "self_managed" {
  runsc     = %q
  pool_size = 0
}
template "data" { dockerfile = %q }
`, binaries.Runsc(t), file)})
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		body := string(b.Do(http.MethodGet, adminAPI+"/templates", adminToken, nil).Body)
		if !strings.Contains(body, "line 3 | it-has-begun") {
			return poll.Continue("%s", body)
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	b.Kill()
	b.WaitGone()
	assert.NilError(t, os.WriteFile(seconds, []byte("0\n"), 0o644))
	b.Restart()
	readyTemplate(t, b, "data", nil)
	e := b.Execute(t, map[string]any{"template": "data", "language": "bash", "code": "cat /srv/built"})
	assert.Check(t, is.Equal(e.Stdout, "built\n"), "%+v", e)
}
