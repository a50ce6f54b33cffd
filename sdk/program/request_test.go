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
			for _, r := range remotes {
				_, err := r.make(c.req, program.Options{})
				assert.ErrorIs(t, err, &sdk.Error{Code: c.code})
				assert.ErrorContains(t, err, c.field)
			}
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
		for name, r := range remotes {
			t.Run(string(language)+" for "+name, func(t *testing.T) {
				req.Language = language
				p, err := r.make(req, program.Options{Dir: "/of its own"})
				assert.NilError(t, err)
				assert.Assert(t, !strings.Contains(p.Source, "own"))
				for _, c := range p.Source {
					assert.Assert(t, c < 128)
				}
			})
		}
	}
}

// A kernel serves one execution after the other.
func TestAKernelForgetsAnExecution(t *testing.T) {
	for _, c := range []struct {
		language      sdk.Language
		first, second string
	}{
		{
			sdk.Python, "import os, sys\nx = 1\nos.chdir('/')\nsys.path.insert(0, '/nowhere')\nsys.argv[:] = ['other']\nsys.stdout.flush()\ndef main(): return 1",
			"import os, sys\nprint('x' in globals(), 'main' in globals(), os.environ.get('K'), os.getcwd() == '/', '/nowhere' in sys.path, __name__)",
		},
		{
			sdk.JavaScript, "const x = 1; process.chdir('/'); process.exitCode = 0; process.argv = []; setInterval(() => {}, 1);\nfunction main() { return x }",
			"const x = typeof main; console.log(x, process.env.K, process.cwd() === '/', process.argv.length)",
		},
	} {
		t.Run(string(c.language), func(t *testing.T) {
			dir := t.TempDir()
			first, err := program.ForKernel(sdk.ExecuteRequest{Language: c.language, Code: c.first, Env: map[string]string{"K": "v"}, OutputLimit: 1000}, program.Options{Dir: dir})
			assert.NilError(t, err)
			second, err := program.ForKernel(sdk.ExecuteRequest{Language: c.language, Code: c.second, OutputLimit: 1000}, program.Options{Dir: dir})
			assert.NilError(t, err)
			argv := map[sdk.Language][]string{sdk.Python: {"python3", testdata(t, "kernel.py")}, sdk.JavaScript: {"node", testdata(t, "kernel.js")}}[c.language]
			stdout, stderr, code := start(t, dir, append(argv, store(t, first), store(t, second))...)
			assert.Equal(t, code, 0, "%s", stderr)

			var a, b recorder
			assert.NilError(t, first.Output(&a).Stdout(stdout))
			output := second.Output(&b)
			assert.NilError(t, output.Stdout(a.stdout.Bytes()))
			result, err := output.Finish(program.NoExitCode)
			assert.NilError(t, err)
			assert.Equal(t, result.Status, sdk.StatusSucceeded)
			want := map[sdk.Language]string{sdk.Python: "False False None False False __main__\n", sdk.JavaScript: "undefined undefined false 2\n"}[c.language]
			assert.Equal(t, b.stdout.String(), want)
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
