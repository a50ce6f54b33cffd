//go:build live

package provider_test

import (
	"context"
	"os"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/provider"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
)

// live are the settings of an account that pays for what the tests do:
//
//	AGENTRUN_ACCESS_KEY_ID=… AGENTRUN_ACCESS_KEY_SECRET=… AGENTRUN_ACCOUNT_ID=… go test -tags live -count=1 -timeout 2h -run Live -v ./plugins/aliyun/internal/provider
func live(t *testing.T) map[string]any {
	t.Helper()
	values := map[string]any{}
	for setting, name := range map[string]string{
		"access_key_id": "AGENTRUN_ACCESS_KEY_ID", "access_key_secret": "AGENTRUN_ACCESS_KEY_SECRET", "account_id": "AGENTRUN_ACCOUNT_ID",
		"security_token": "AGENTRUN_SECURITY_TOKEN", "region": "AGENTRUN_REGION", "template_name": "AGENTRUN_TEMPLATE_NAME",
	} {
		if value := os.Getenv(name); value != "" {
			values[setting] = value
		}
	}
	for _, setting := range []string{"access_key_id", "access_key_secret", "account_id"} {
		if values[setting] == nil {
			t.Fatalf("no account is given: %s is missing", setting)
		}
	}
	return values
}

// What no document says, in the order in which the provider needs it. A later question
// has no answer where an earlier one has the wrong one.
func TestLiveQuestions(t *testing.T) {
	p, err := configure(t, live(t), t.TempDir())
	assert.NilError(t, err, "the key, its rights on both planes, and the account")
	made, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", IdempotencyKey: t.Name() + time.Now().String()})
	assert.NilError(t, err, "a template, and a sandbox by the name that we give it")
	t.Cleanup(func() { assert.Check(t, p.Destroy(context.Background(), made.ID)) })
	t.Logf("code works in %s", made.Metadata["workspace"])

	ask := func(name string, question func(t *testing.T)) {
		t.Helper()
		if !t.Run(name, question) {
			t.Logf("the rest may have no answer: %s", name)
		}
	}
	ask("a process outlives the command that started it", func(t *testing.T) {
		result, printed, err := run(t, p, made.ID, "import time\ntime.sleep(12)\nprint('still here')\n")
		assert.NilError(t, err)
		assert.Equal(t, printed, "still here\n", "%+v", result)
	})
	for _, language := range []sdk.Language{sdk.JavaScript, sdk.Bash} {
		ask("there is an interpreter for "+string(language), func(t *testing.T) {
			result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: made.ID, ExecutionID: "x", Language: language, Code: "", Timeout: 20 * time.Second, OutputLimit: 1 << 20}, &heard{})
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusSucceeded)
		})
	}
	ask("/workspace can be made", func(t *testing.T) { assert.Equal(t, made.Metadata["workspace"], "/workspace") })
	for _, language := range []sdk.Language{sdk.Python, sdk.JavaScript} {
		ask("a kernel can be used for contexts in "+string(language), func(t *testing.T) {
			kernel, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: made.ID, Language: language})
			assert.NilError(t, err)
			code := map[sdk.Language]string{sdk.Python: "import time\ntime.sleep(600)", sdk.JavaScript: "await new Promise((resolve) => setTimeout(resolve, 600000))"}[language]
			result, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: made.ID, ExecutionID: "y", ContextID: kernel.ID, Code: code, Timeout: 2 * time.Second, OutputLimit: 1 << 20}, &heard{})
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusTimeout)
			t.Logf("an interrupt: %+v", result)
		})
	}
	ask("memory outlives a pause", func(t *testing.T) {
		command, err := p.StartCommand(t.Context(), sdk.CommandRequest{InstanceID: made.ID, Argv: []string{"sh", "-c", "read a; echo got $a"}, Stdin: true, KeepOutput: 1 << 10})
		assert.NilError(t, err)
		assert.NilError(t, p.Pause(t.Context(), made.ID))
		assert.NilError(t, p.Resume(t.Context(), made.ID))
		assert.NilError(t, p.WriteCommand(t.Context(), made.ID, command.ID, []byte("it\n"), true))
		_, out := read(t, p, made.ID, command.ID)
		assert.Equal(t, out, "got it\n")
	})
	ask("the region named elsewhere only has the service", func(t *testing.T) {
		values := live(t)
		values["region"] = "cn-guangzhou"
		delete(values, "template_name")
		_, err := configure(t, values, t.TempDir())
		assert.NilError(t, err)
	})
}

// The suite against the service itself.
func TestLive(t *testing.T) {
	providertest.Run(t, provider.New, providertest.WithSettings(live(t)), providertest.WithPatience(5))
}
