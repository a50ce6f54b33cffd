package provider_test

import (
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// What the code prints is more than a pipe holds, so that no answer may depend on how fast
// it is read.
func TestLongVariablesReachAContextWhole(t *testing.T) {
	t.Parallel()
	long := func(scope string) string {
		return strings.Repeat("it's \""+scope+"\", \\n, `$HOME`\n\té", 3000) + scope
	}
	ofInstance, ofContext, ofExecution := long("instance"), long("context"), long("execution")
	for language, prints := range map[sdk.Language]string{
		sdk.Python:     "import os, sys\nfor name in 'INSTANCE', 'CONTEXT', 'EXECUTION': sys.stdout.write(os.environ.get(name, '') + ';')\n",
		sdk.JavaScript: "for (const name of ['INSTANCE', 'CONTEXT', 'EXECUTION']) process.stdout.write((process.env[name] ?? '') + ';');\n",
	} {
		t.Run(string(language), func(t *testing.T) {
			t.Parallel()
			p := configured(t, start(t))
			box, err := p.Create(t.Context(), sdk.CreateRequest{Template: "python", Env: map[string]string{"INSTANCE": ofInstance}})
			assert.NilError(t, err)
			made, err := p.CreateContext(t.Context(), sdk.CreateContextRequest{InstanceID: box.ID, Language: language, Env: map[string]string{"CONTEXT": ofContext}})
			assert.NilError(t, err)
			for _, given := range []string{ofExecution, ""} {
				var out heard
				result, err := p.Execute(t.Context(), sdk.ExecuteRequest{
					InstanceID: box.ID, ExecutionID: "x", ContextID: made.ID, Code: prints, Env: map[string]string{"EXECUTION": given},
					Timeout: 2 * time.Minute, OutputLimit: 1 << 20,
				}, &out)
				assert.NilError(t, err)
				assert.Equal(t, result.Status, sdk.StatusSucceeded, out.stderr.String())
				printed := out.stdout.String()
				assert.Assert(t, printed == ofInstance+";"+ofContext+";"+given+";", "%d bytes: %.200q", len(printed), printed)
			}
		})
	}
}
