package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

func TestExecRunsAFile(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := real.Broker(t)
	broker := filepath.Join(binaries.Dir(t), "sandbox-broker")
	env := append(os.Environ(), "SANDBOX_BROKER_URL="+b.URL, "SANDBOX_BROKER_TOKEN="+harness.Token)
	hello := filepath.Join(t.TempDir(), "hello.py")
	assert.NilError(t, os.WriteFile(hello, []byte("def main(name):\n    print('greeting')\n    return f'Hello {name}!'\n"), 0o644))

	result := icmd.RunCmd(icmd.Command(broker, "exec", hello, "--arg", "name=World"), icmd.WithEnv(env...))
	result.Assert(t, icmd.Expected{Out: "greeting\n\"Hello World!\"\n"})
	result = icmd.RunCmd(icmd.Command(broker, "exec", "-", "-l", "bash"), icmd.WithEnv(env...), icmd.WithStdin(strings.NewReader("echo out; echo err >&2; exit 3")))
	result.Assert(t, icmd.Expected{ExitCode: 3, Out: "out\n", Err: "err\n"})
	result = icmd.RunCmd(icmd.Command(broker, "exec", "-", "--timeout", "1s"), icmd.WithEnv(env...), icmd.WithStdin(strings.NewReader("while True: pass")))
	result.Assert(t, icmd.Expected{ExitCode: 124, Err: "SB005"})
	result = icmd.RunCmd(icmd.Command(broker, "exec", hello), icmd.WithEnv(append(env, "SANDBOX_BROKER_TOKEN=wrong")...))
	result.Assert(t, icmd.Expected{ExitCode: 3, Err: "SB011"})
	result = icmd.RunCmd(icmd.Command(broker, "exec", hello, "--url", "http://127.0.0.1:1"), icmd.WithEnv(env...))
	result.Assert(t, icmd.Expected{ExitCode: 3, Err: "no broker answers"})
}

func TestTheBannersCommandWorksWhenPasted(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	b := real.Broker(t)
	line := regexp.MustCompile(`(?m)^\s*(curl .*)$`).FindStringSubmatch(b.Log())
	assert.Assert(t, line != nil, "%s", b.Log())
	result := icmd.RunCmd(icmd.Command("sh", "-c", line[1]), icmd.WithEnv(append(os.Environ(), "SANDBOX_BROKER_TOKEN="+harness.Token)...))
	result.Assert(t, icmd.Expected{Out: `"result":{"message": "Hello World!"}`})
}

func TestServeRefusesABrokenFileAndShowsEveryMistake(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "sandbox.hcl")
	assert.NilError(t, os.WriteFile(file, []byte(`listen = "nowhere"
plugin_dir = "`+filepath.Join(binaries.Dir(t), "plugins")+`"
provider "self_managed" {
  pool_sise = 5
  memory_mb = "much"
}
tenant "a" { token_sha256 = ["zz"] }
`), 0o644))
	for _, command := range []string{"serve --config", "check"} {
		args := append(strings.Fields(command), file)
		result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), args...)
		assert.Check(t, is.Equal(result.ExitCode, 1))
		for _, want := range []string{
			"sandbox.hcl:1:10", `1 | listen = "nowhere"`,
			"sandbox.hcl:4:3", `Did you mean "pool_size"?`,
			"sandbox.hcl:5:15", "memory_mb must be a whole number",
			"sandbox.hcl:7:30", "4 mistakes",
		} {
			assert.Check(t, is.Contains(result.Stderr(), want), command)
		}
		assert.Check(t, is.Equal(result.Stdout(), ""))
	}
}

func TestCheckAcceptsTheFileOfTheRepository(t *testing.T) {
	t.Parallel()
	result := icmd.RunCommand(filepath.Join(binaries.Dir(t), "sandbox-broker"), "check", "../sandbox.hcl")
	result.Assert(t, icmd.Expected{Out: "ok (1 provider, 1 tenant"})
}
