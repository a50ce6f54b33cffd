package hostile_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/hostile"
)

const sample = `# must: x
# status: timeout
# stdout: planted \d
# timeout: 2
# env: A=b=c
# env: D=
# truncated: yes
# instance: may end

plant()
# --- another session
# status: succeeded
# stdout: clean
# control: session
probe()
`

func TestAProgramIsTakenApart(t *testing.T) {
	p, err := hostile.Parse("python", sample)
	assert.NilError(t, err)
	assert.Equal(t, p.Must, "x")
	assert.Assert(t, is.Len(p.Steps, 2))
	plant, probe := p.Steps[0], p.Steps[1]
	assert.Equal(t, plant.Code, "\nplant()\n")
	assert.Equal(t, plant.Timeout, 2*time.Second)
	assert.DeepEqual(t, plant.Env, map[string]string{"A": "b=c", "D": ""})
	assert.Check(t, plant.Truncated && plant.InstanceMayEnd)
	assert.Check(t, is.Equal(plant.Exit, -1))
	assert.Check(t, plant.Stdout.MatchString("planted 1\n"))
	for _, other := range []string{"planted 1\n\n", "planted 12", "x\nplanted 1", ""} {
		assert.Check(t, !plant.Stdout.MatchString(other), "%q", other)
	}
	assert.Check(t, plant.Stderr == nil, "what is said when the time is over is anybody's guess")
	assert.Check(t, is.Equal(probe.Place, hostile.AnotherSession))
	assert.Check(t, is.Equal(probe.Control, hostile.InSession))
	assert.Check(t, is.Equal(probe.Exit, 0))
	assert.Check(t, probe.Stderr.MatchString("") && !probe.Stderr.MatchString("x"))
}

func TestWhatWouldNotBeCheckedIsRefused(t *testing.T) {
	const must, ok = "# must: x\n", "# must: x\n# status: succeeded\n# stdout: x\n"
	cases := map[string]struct{ text, want string }{
		"nothing":                               {"", "stdout is missing"},
		"no must":                               {"# status: succeeded\n# stdout: x\ncode", "must is missing"},
		"no status":                             {must + "# stdout: x\ncode", `status ""`},
		"a status that is none":                 {must + "# status: fine\n# stdout: x\ncode", `status "fine"`},
		"no stdout":                             {must + "# status: succeeded\ncode", "stdout is missing"},
		"no code":                               {ok, "no code"},
		"a misspelt key":                        {ok + "# exitt: 1\ncode", "no such key"},
		"a key twice":                           {ok + "# stdout: y\ncode", "said twice"},
		"an expression that is none":            {must + "# status: succeeded\n# stdout: (\ncode", "missing closing"},
		"a failure without its exit code":       {must + "# status: failed\n# stdout: x\n# stderr: y\ncode", "needs exit"},
		"a failure without its stderr":          {must + "# status: failed\n# stdout: x\n# exit: 1\ncode", "needs exit"},
		"a success with an exit code":           {ok + "# exit: 1\ncode", "exit code 0"},
		"an exit code that is no number":        {ok + "# exit: one\ncode", "invalid syntax"},
		"a result that is not JSON":             {ok + "# result: {\ncode", "not JSON"},
		"a variable without a value":            {ok + "# env: A\ncode", "NAME=value"},
		"a doubtful flag":                       {ok + "# truncated: maybe\ncode", `"maybe"`},
		"a probe without a control":             {ok + "code\n# --- next execution\n# status: succeeded\n# stdout: clean\ncode", "control"},
		"a look that shows nothing":             {must + "# status: succeeded\n# stdout: clean\ncode", "that it looked"},
		"a control with nothing before":         {ok + "# control: session\ncode", "nothing to control"},
		"a control that is none":                {ok + "code\n# --- next execution\n# control: magic\n", `"magic"`},
		"a place that is none":                  {ok + "code\n# --- somewhere\n", `no place "somewhere"`},
		"a second must":                         {ok + "code\n# --- meanwhile\n" + ok + "code", "must is said twice"},
		"a step without an expectation":         {ok + "code\n# --- meanwhile\ncode", "step 2: stdout is missing"},
		"a comment of JavaScript in its header": {ok + "// exitt: 1\ncode", "no such key"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := hostile.Parse("python", c.text)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := hostile.Parse("bash", text)
		if err != nil {
			return
		}
		assert.Check(t, p.Must != "" && len(p.Steps) > 0)
		for i, s := range p.Steps {
			assert.Check(t, s.Stdout != nil && s.Status != "" && (i > 0) == (s.Place != ""))
		}
	})
}

// What is promised of the corpus.
func TestTheCorpusIsLargeEnough(t *testing.T) {
	programs, err := hostile.Programs()
	assert.NilError(t, err)
	themes, languages, probes, musts := map[string]int{}, map[string]int{}, 0, map[string]string{}
	for _, p := range programs {
		themes[p.Theme]++
		languages[p.Language]++
		if p.Theme == "executions" || p.Theme == "sessions" {
			probes++
			assert.Check(t, len(p.Steps) > 1, "%s looks for nothing", p.Name)
		}
		other, said := musts[p.Must]
		assert.Check(t, !said, "%s and %s say the same", p.Name, other)
		musts[p.Must] = p.Name
	}
	assert.Check(t, len(programs) >= 120)
	assert.Check(t, probes >= 40)
	assert.Check(t, is.Len(languages, 3))
	for _, theme := range hostile.Themes {
		assert.Check(t, themes[theme.Name] > 0, "the theme %s is empty", theme.Name)
	}
}
