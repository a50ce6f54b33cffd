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
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
)

// fakeAliyun starts a fake of AgentRun in this process.
func fakeAliyun(t *testing.T) *aliyunfake.Cloud {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	cloud := aliyunfake.Start()
	t.Cleanup(cloud.Close)
	return cloud
}

// aliyunBlock is the provider block, with an address of both planes.
func aliyunBlock(cloud *aliyunfake.Cloud, address string) string {
	return fmt.Sprintf("provider \"aliyun\" {\n  access_key_id = %q\n  access_key_secret = %q\n  account_id = \"1234567890123456\"\n  control_endpoint = %q\n  data_endpoint = %q\n}\n",
		cloud.Keys.AccessKeyID, cloud.Keys.AccessKeySecret, address, address)
}

func aliyunOptions(t *testing.T, cloud *aliyunfake.Cloud) harness.Options {
	t.Helper()
	return harness.Options{
		Config:  harness.Tenants + aliyunBlock(cloud, cloud.URL()),
		Plugins: map[string]string{"aliyun": filepath.Join(binaries.Dir(t), "plugins", "aliyun")},
	}
}

// noneAtAliyun waits until no sandbox lives.
func noneAtAliyun(t *testing.T, cloud *aliyunfake.Cloud) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if n := cloud.Sandboxes(); n > 0 {
			return poll.Continue("%d sandboxes live", n)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

// What a provider in the process of a test cannot show: its own tests run all the rest.
func TestTheAliyunPluginPassesTheCasesAboutProcesses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sandbox.hcl")
	cloud := fakeAliyun(t)
	assert.NilError(t, os.WriteFile(file, []byte(aliyunBlock(cloud, cloud.URL())), 0o600))
	result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "plugin", "verify", "--config", file,
		"--patience", "12", // it only makes a failure late
		"--run", "^(process|description|configure|isolation)/", filepath.Join(binaries.Dir(t), "plugins", "aliyun"))
	assert.NilError(t, result.Error, result.Combined())
}

func TestCodeRunsAtAliyunThroughTheBroker(t *testing.T) {
	t.Parallel()
	cloud := fakeAliyun(t)
	b := harness.Start(t, aliyunOptions(t, cloud))
	for language, code := range map[string]string{
		"python":     "def main(a, b):\n    print('working')\n    return a + b\n",
		"javascript": "function main({a, b}) {\n  console.log('working');\n  return a + b;\n}\n",
	} {
		got := b.Execute(t, map[string]any{"language": language, "code": code, "arguments": map[string]any{"a": 20, "b": 22}})
		assert.Equal(t, got.Status, "succeeded", "%+v", got)
		assert.Equal(t, got.Stdout, "working\n")
		assert.Equal(t, string(got.Result), "42")
	}
	noneAtAliyun(t, cloud)
	assert.Check(t, !strings.Contains(b.Log(), cloud.Keys.AccessKeySecret), "the secret is in the log")
	assert.Check(t, !strings.Contains(b.Log(), cloud.Keys.AccessKeyID), "the ID of the key is in the log")
}

func TestASandboxAtAliyunOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	cloud := fakeAliyun(t)
	b := harness.Start(t, aliyunOptions(t, cloud))
	kept := b.Execute(t, map[string]any{"language": "bash", "code": "echo mine > file", "session_id": "s"})
	assert.Equal(t, kept.Status, "succeeded", "%+v", kept)
	b.Kill()
	b.WaitGone()
	assert.Equal(t, cloud.Sandboxes(), 1)
	b.Restart()
	read := b.Execute(t, map[string]any{"language": "bash", "code": "cat file", "session_id": "s"})
	assert.Equal(t, read.InstanceID, kept.InstanceID)
	assert.Equal(t, read.Stdout, "mine\n", "%+v", read)
	answer := b.Do(http.MethodDelete, "/api/v1/instances/"+kept.InstanceID, harness.Token, nil)
	assert.Equal(t, answer.Status, http.StatusNoContent, "%s", answer.Body)
	noneAtAliyun(t, cloud)
}

// Offsets behind the end of the output are what a wait asks with.
func TestCommandsAtAliyunAreAwaitedByREST(t *testing.T) {
	t.Parallel()
	i := newCommandInstance(t, harness.Start(t, aliyunOptions(t, fakeAliyun(t))))
	started := i.start(http.StatusCreated, map[string]any{"command": "echo out; read line; echo $line; exit 3", "background": true, "stdin": true})
	var running command
	answer := i.post("/"+started.ID+"/wait?timeout=0.1", nil)
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer.Into(t, &running)
	assert.Equal(t, running.State, "running")
	assert.Equal(t, i.post("/"+started.ID+"/stdin?end=true", []byte("in\n")).Status, http.StatusNoContent)
	for range 2 { // it has ended the second time
		ended := i.wait(started.ID)
		assert.Equal(t, ended.State, "failed")
		assert.Equal(t, *ended.ExitCode, 3)
		assert.Equal(t, ended.StdoutBytes, int64(len("out\nin\n")))
	}
	var logs struct{ Stdout string }
	i.get("/"+started.ID+"/logs?stdout_offset=4", &logs)
	assert.Equal(t, logs.Stdout, "in\n")
	i.get("/"+started.ID+"/logs?stdout_offset=4000", &logs)
	assert.Equal(t, logs.Stdout, "")
}

func TestBackgroundCommandsAtAliyunAreWhatTheyAreElsewhere(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	testBackgroundCommands(t, harness.Start(t, aliyunOptions(t, fakeAliyun(t))))
}

// Nobody asks for its sandboxes any more, so that the service ends them soon.
func TestABrokerThatIsGoneLeavesSandboxesAtAliyunForMinutes(t *testing.T) {
	t.Parallel()
	cloud := fakeAliyun(t)
	b := harness.Start(t, aliyunOptions(t, cloud))
	kept := b.Execute(t, map[string]any{"language": "bash", "code": "true", "session_id": "s"})
	assert.Equal(t, kept.Status, "succeeded", "%+v", kept)
	cloud.Forward(9 * time.Minute)
	assert.Equal(t, cloud.Sandboxes(), 1)
	b.Kill()
	b.WaitGone()
	cloud.Forward(2 * time.Minute)
	assert.Equal(t, cloud.Sandboxes(), 0)
}
