package program_test

import (
	"encoding/json"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/program"
)

func TestWhatNoProgramCanBeMadeOfIsRefused(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for name, c := range map[string]struct {
		req   sdk.ExecuteRequest
		code  sdk.Code
		field string
	}{
		"arguments for bash":           {sdk.ExecuteRequest{Language: sdk.Bash, Arguments: json.RawMessage(`{}`)}, sdk.CodeInvalidRequest, "arguments"},
		"arguments that are no object": {sdk.ExecuteRequest{Language: sdk.Python, Arguments: json.RawMessage(`[1]`)}, sdk.CodeInvalidRequest, "arguments"},
		"arguments that are null":      {sdk.ExecuteRequest{Language: sdk.Python, Arguments: json.RawMessage(`null`)}, sdk.CodeInvalidRequest, "arguments"},
		"arguments that nest for ever": {sdk.ExecuteRequest{Language: sdk.Python, Arguments: json.RawMessage(`{"a":` + deep + `}`)}, sdk.CodeInvalidRequest, "arguments"},
		"a variable with =":            {sdk.ExecuteRequest{Language: sdk.Python, Env: map[string]string{"a=b": ""}}, sdk.CodeInvalidRequest, "env"},
		"a variable without a name":    {sdk.ExecuteRequest{Language: sdk.Python, Env: map[string]string{"": ""}}, sdk.CodeInvalidRequest, "env"},
		"a variable with a NUL":        {sdk.ExecuteRequest{Language: sdk.Python, Env: map[string]string{"a": "\x00"}}, sdk.CodeInvalidRequest, "env"},
		"code as a variable of bash":   {sdk.ExecuteRequest{Language: sdk.Bash, Env: map[string]string{"a;id": ""}}, sdk.CodeInvalidRequest, "env"},
		"another language":             {sdk.ExecuteRequest{Language: sdk.R}, sdk.CodeNotSupported, "language"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := program.ForProcess(c.req, program.Options{})
			assert.ErrorIs(t, err, &sdk.Error{Code: c.code})
			assert.ErrorContains(t, err, c.field)
		})
	}
}

func TestEveryProgramHasAMarkerOfItsOwn(t *testing.T) {
	req := sdk.ExecuteRequest{Language: sdk.Python, Code: "1"}
	a, err := program.ForProcess(req, program.Options{})
	assert.NilError(t, err)
	b, err := program.ForProcess(req, program.Options{})
	assert.NilError(t, err)
	assert.Assert(t, a.Source != b.Source)
}

func TestNothingOfTheExecutionStandsInTheSource(t *testing.T) {
	req := sdk.ExecuteRequest{
		Code: "code_of_its_own()", Arguments: json.RawMessage(`{"argument":"of its own"}`), Env: map[string]string{"VARIABLE": "'; of its own"},
	}
	for _, language := range []sdk.Language{sdk.Python, sdk.JavaScript} {
		t.Run(string(language), func(t *testing.T) {
			req.Language = language
			p, err := program.ForProcess(req, program.Options{Dir: "/of its own"})
			assert.NilError(t, err)
			assert.Assert(t, !strings.Contains(p.Source, "own"))
			for _, c := range p.Source {
				assert.Assert(t, c < 128)
			}
		})
	}
}

func TestAProgramRemovesItselfAndFindsItsDirectory(t *testing.T) {
	for language, code := range map[sdk.Language]string{
		sdk.Python:     "import os\nprint(os.path.basename(os.getcwd()), os.listdir('..'))",
		sdk.JavaScript: "console.log(require('path').basename(process.cwd()), JSON.stringify(require('fs').readdirSync('..')).replaceAll('\"', \"'\"))",
	} {
		t.Run(string(language), func(t *testing.T) {
			p, err := program.ForProcess(sdk.ExecuteRequest{Language: language, Code: code, OutputLimit: 1000}, program.Options{Dir: "made"})
			assert.NilError(t, err)
			file := store(t, p)
			stdout, stderr, _ := start(t, strings.TrimSuffix(file, "/program"+p.Suffix), p.Command(file)...)
			var rec recorder
			assert.NilError(t, p.Output(&rec).Stdout(stdout))
			assert.Equal(t, rec.stdout.String(), "made ['made']\n", "%s", stderr)
		})
	}
}
