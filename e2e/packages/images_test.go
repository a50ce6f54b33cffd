package packages_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/packages/machine"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const demoTenant = `tenant "demo" { token_sha256 = ["7c43ef5ae21d43ce2743f770c68e24def1a43ee2f416d2438410c8af7af2ff2c"] }`

// docker runs a program for the engine that tests have.
func docker(t *testing.T, e *dockerengine.Engine, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+e.Host, "SANDBOX_BROKER_VERSION=test", "COMPOSE_PROJECT_NAME=packages-test")
	out, err := cmd.CombinedOutput()
	assert.NilError(t, err, "%q: %s", argv, out)
	return string(out)
}

// images makes both images as `make release` does, without a network: the interpreters are
// those of the image of `make rootfs`.
func images(t *testing.T, e *dockerengine.Engine) {
	t.Helper()
	out := t.TempDir()
	tool := exec.Command("go", "run", "-buildvcs=false", ".", "-bin", binaries.Dir(t), "-out", out, "-epoch", "1790000000", "-version", "v"+first, "images")
	tool.Dir = filepath.Join(repository(), "cmd", "release")
	said, err := tool.CombinedOutput()
	assert.NilError(t, err, "%s", said)
	for _, name := range []string{"broker", "self-managed"} {
		image := "sandbox-broker/" + name + ":test"
		docker(t, e, out, "docker", "build", "--network=none", "--build-arg=BASE="+dockerengine.Image, "--tag", image, filepath.Join("images", name))
		t.Cleanup(func() { docker(t, e, out, "docker", "image", "rm", "--force", image) })
	}
}

func TestTheImagesOfAReleaseRunCode(t *testing.T) {
	binaries.Needs(t, "docker-compose", "docker-compose")
	binaries.Needs(t, "bwrap", "bubblewrap")
	e := dockerengine.Find(t)
	images(t, e)

	t.Run("gvisor", func(t *testing.T) {
		c := startService(t, e, "gvisor", demoTenant+"\n")
		for language, code := range map[string]string{"python": "import os; print(os.uname().release)", "javascript": "console.log(require('os').release())"} {
			assert.Equal(t, run(t, c.agent(), client.ExecuteRequest{Language: language, Code: code}), "4.19.0-gvisor\n")
		}
	})
	t.Run("clouds", func(t *testing.T) {
		block := func(api, sandboxes string) string {
			return fmt.Sprintf("%s\nprovider \"e2b\" {\n  api_key = %q\n  api_url = %q\n  sandbox_url = %q\n}\n", demoTenant, e2bfake.DefaultAPIKey, api, sandboxes)
		}
		// The cloud is within the network of the container, and that comes with the container.
		c := startService(t, e, "clouds", block("https://127.0.0.1:1", "https://127.0.0.1:1"))
		assert.Equal(t, docker(t, e, "", "docker", "inspect", "--format={{.Config.User}} {{.HostConfig.CapAdd}} {{.HostConfig.ReadonlyRootfs}}", c.id), "65532:65532 [] true\n")
		var cloud *e2bfake.Server
		assert.NilError(t, c.Inside(func() (err error) {
			cloud, err = e2bfake.Start(e2bfake.Options{})
			return err
		}))
		t.Cleanup(func() { assert.Check(t, cloud.Close()) })
		assert.NilError(t, os.WriteFile(c.config, []byte(block(cloud.APIURL, cloud.SandboxURL)), 0o644))
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			got, err := c.agent().Execute(t.Context(), client.ExecuteRequest{Language: "bash", Code: "echo hello"})
			if err != nil {
				return poll.Continue("%v", err)
			}
			assert.Equal(t, got.Stdout, "hello\n")
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute), poll.WithDelay(100*time.Millisecond))
	})
}

// service is a running service of examples/compose.
type service struct {
	*machine.Network
	id     string // of its container
	config string // the file of the test beside the configuration in its image
}

func (s *service) agent() *client.Client {
	return client.New(url, "demo-token").Over(&http.Client{Transport: &http.Transport{DialContext: s.DialContext, DisableKeepAlives: true}, Timeout: 2 * time.Minute})
}

// startService starts a service as its file says, but for the network, which is none, and
// what is mounted in conf.d.
func startService(t *testing.T, e *dockerengine.Engine, name, config string) *service {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir(); at = filepath.Dir(at) {
		assert.NilError(t, os.Chmod(at, 0o755)) // for the broker's user
	}
	s := &service{config: filepath.Join(dir, "conf.d", "test.hcl")}
	assert.NilError(t, os.Mkdir(filepath.Dir(s.config), 0o755))
	assert.NilError(t, os.WriteFile(s.config, []byte(config), 0o644))
	trusted, err := os.ReadFile(os.Getenv("SSL_CERT_FILE"))
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "conf.d", "trusted.pem"), trusted, 0o644))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "test.yaml"), fmt.Appendf(nil,
		"services:\n  %s:\n    network_mode: none\n    environment: {SSL_CERT_FILE: /etc/sandbox-broker/conf.d/trusted.pem}\n    volumes: [\"%s/conf.d:/etc/sandbox-broker/conf.d:ro\"]\n", name, dir), 0o644))
	argv := []string{"docker-compose", "--file", filepath.Join(repository(), "examples", "compose", "compose.yaml"), "--file", filepath.Join(dir, "test.yaml"), "--profile", name}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(docker(t, e, dir, append(argv, "logs")...))
		}
		docker(t, e, dir, append(argv, "down", "--volumes")...)
	})
	docker(t, e, dir, append(argv, "up", "--detach")...)
	s.id = strings.TrimSpace(docker(t, e, dir, append(argv, "ps", "--quiet", name)...))
	pid, err := strconv.Atoi(strings.TrimSpace(docker(t, e, dir, "docker", "inspect", "--format={{.State.Pid}}", s.id)))
	assert.NilError(t, err)
	s.Network = machine.Enter(t, pid)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		response, err := (&http.Client{Transport: &http.Transport{DialContext: s.DialContext, DisableKeepAlives: true}}).Get(url + "/healthz")
		if err != nil {
			return poll.Continue("%v", err)
		}
		assert.Check(t, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			return poll.Continue("status %d", response.StatusCode)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(50*time.Millisecond))
	assert.Check(t, is.Contains(docker(t, e, dir, "docker", "inspect", "--format={{.State.Status}}", s.id), "running"))
	return s
}
