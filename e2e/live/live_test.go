package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/icmd"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/pluginhost/watchdog"
	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/aliyunfake"
	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// asRunner makes the test binary the command itself.
const asRunner = "SANDBOX_BROKER_LIVE_RUNNER"

func TestMain(m *testing.M) {
	watchdog.Main()
	if os.Getenv(asRunner) != "" {
		main()
	}
	daytonafake.Main()
	e2bfake.Main() // it would have the command trust another fake
	if err := aliyunfake.Trust(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// cases are few, and quick.
const cases = "^(execute/python/code runs|lifecycle/to destroy)"

// service is a fake, and how it is reached.
type service struct {
	provider  string
	variables map[string]string
	sandboxes func() int
	// keep has the service end no sandbox that it is asked to, until it is mended.
	keep, mend func()
	e2b        *e2bfake.Server
	aliyun     *aliyunfake.Cloud
	daytona    *daytonafake.Server
}

// onEach runs a test on each fake.
func onEach(t *testing.T, test func(*testing.T, service)) {
	t.Run("e2b", func(t *testing.T) { test(t, fakeE2B(t)) })
	t.Run("aliyun", func(t *testing.T) { test(t, fakeAliyun(t)) })
	t.Run("daytona", func(t *testing.T) { test(t, fakeDaytona(t)) })
}

func fakeE2B(t *testing.T) service {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := e2bfake.Start(e2bfake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, server.Close()) })
	return service{
		provider: "e2b", e2b: server, sandboxes: func() int { return len(server.Sandboxes()) },
		keep: func() {
			server.Inject(e2bfake.Fault{On: "DELETE /sandboxes/*", Status: http.StatusInternalServerError})
		}, mend: server.Honest,
		variables: map[string]string{"E2B_API_KEY": e2bfake.DefaultAPIKey, "E2B_API_URL": server.APIURL, "E2B_SANDBOX_URL": server.SandboxURL},
	}
}

func fakeDaytona(t *testing.T) service {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server, err := daytonafake.Start(daytonafake.Options{})
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, server.Close()) })
	return service{
		provider: "daytona", daytona: server, sandboxes: func() int { return len(server.Sandboxes()) },
		keep: func() {
			server.Inject(daytonafake.Fault{On: "DELETE /sandbox/*", Status: http.StatusInternalServerError})
		}, mend: server.Honest,
		variables: map[string]string{"DAYTONA_API_KEY": daytonafake.DefaultAPIKey, "DAYTONA_API_URL": server.APIURL},
	}
}

func fakeAliyun(t *testing.T) service {
	t.Helper()
	binaries.Needs(t, "bwrap", "bubblewrap")
	server := aliyunfake.Start()
	t.Cleanup(server.Close)
	return service{
		provider: "aliyun", aliyun: server, sandboxes: server.Sandboxes,
		keep: func() {
			server.Fault(aliyunfake.Fault{Action: "DeleteSandbox", Times: 1 << 20, Status: http.StatusInternalServerError, Body: `{"code":"ERR_INTERNAL_SERVER_ERROR"}`})
		},
		mend: server.Mend,
		variables: map[string]string{
			"AGENTRUN_ACCESS_KEY_ID": server.Keys.AccessKeyID, "AGENTRUN_ACCESS_KEY_SECRET": server.Keys.AccessKeySecret,
			"AGENTRUN_ACCOUNT_ID": "1234567890123456", "AGENTRUN_CONTROL_ENDPOINT": server.URL(), "AGENTRUN_DATA_ENDPOINT": server.URL(),
		},
	}
}

// runner is the command on a fake.
func (s service) runner(t *testing.T, dir string, more ...string) icmd.Cmd {
	t.Helper()
	program, err := os.Executable()
	assert.NilError(t, err)
	arguments := append([]string{"-provider", s.provider, "-bin", binaries.Dir(t), "-dir", dir, "-cases", cases}, more...)
	env := append(os.Environ(), asRunner+"=1")
	for _, provider := range []string{"e2b", "aliyun", "daytona"} {
		c, err := cloudOf(provider)
		assert.NilError(t, err)
		for _, variables := range []map[string]string{c.required, c.optional} {
			for name := range variables {
				env = append(env, name+"="+s.variables[name]) // the last of a name counts
			}
		}
	}
	return icmd.Cmd{Command: append([]string{program}, arguments...), Env: env}
}

// start runs the command beside the test, until there is a sandbox. end must be called.
func (s service) start(t *testing.T, dir string, more ...string) (run *exec.Cmd) {
	t.Helper()
	before := s.sandboxes()
	cmd := s.runner(t, dir, more...)
	run = exec.CommandContext(t.Context(), cmd.Command[0], cmd.Command[1:]...)
	run.Env = cmd.Env
	assert.NilError(t, run.Start())
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if s.sandboxes() == before {
			return poll.Continue("there is no sandbox yet")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	return run
}

// stranger makes a sandbox with the same key that is no live run's.
func (s service) stranger(t *testing.T) {
	t.Helper()
	for name, value := range s.variables {
		t.Setenv(name, value)
	}
	c, err := cloudOf(s.provider)
	assert.NilError(t, err)
	p, err := newPlugin(filepath.Join(binaries.Dir(t), "plugins", s.provider), t.TempDir())
	assert.NilError(t, err)
	defer func() { assert.Check(t, p.launcher.Close()) }()
	process, err := p.launcher.Launch(t.Context(), p.spec)
	assert.NilError(t, err)
	defer process.Stop(t.Context())
	settings, mistakes := process.Provider().Describe().Schema.Resolve(c.settings())
	assert.Equal(t, len(mistakes), 0)
	assert.NilError(t, process.Provider().Configure(t.Context(), sdk.ConfigureRequest{Label: "verified", BrokerID: "stranger", StateDir: t.TempDir(), Settings: settings}))
	_, err = process.Provider().Create(t.Context(), sdk.CreateRequest{Template: "python", Labels: map[string]string{sdk.LabelBroker: "stranger"}})
	assert.NilError(t, err)
}

// reports are the texts of those in a directory.
func reports(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	assert.NilError(t, err)
	var texts []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NilError(t, err)
		texts = append(texts, string(text))
	}
	return texts
}

func TestWithoutAKeyNothingIsRun(t *testing.T) {
	for provider, variables := range map[string]string{
		"e2b": "E2B_API_KEY", "daytona": "DAYTONA_API_KEY", "aliyun": "AGENTRUN_ACCESS_KEY_ID, AGENTRUN_ACCESS_KEY_SECRET, AGENTRUN_ACCOUNT_ID",
	} {
		dir := filepath.Join(t.TempDir(), "not made")
		for _, more := range []string{"-clean=false", "-clean"} {
			result := icmd.RunCmd(service{provider: provider}.runner(t, dir, more))
			assert.Equal(t, result.ExitCode, exitNoKey)
			assert.Equal(t, result.Combined(), "There is no key for "+provider+": set "+variables+" in the environment. Nothing was run, and nothing is charged.\n")
		}
		_, err := os.Stat(dir)
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

func TestLimitsThatAreNoneAreRefused(t *testing.T) {
	for _, more := range [][]string{
		{"-minutes", "NaN"},
		{"-minutes", "0"},
		{"-minutes", "1e300"},
		{"-spend", "NaN"},
		{"-spend", "Inf"},
		{"-spend", "-1"},
		{"-spend", "0"},
		{"-price", "-1"},
		{"-price", "NaN"},
		{"-cases", "("},
		{"-provider", "../e2b"},
		{"-unknown"},
	} {
		s := service{provider: "e2b", variables: map[string]string{"E2B_API_KEY": "none", "E2B_API_URL": "http://127.0.0.1:1"}}
		result := icmd.RunCmd(s.runner(t, t.TempDir(), more...))
		assert.Equal(t, result.ExitCode, exitUsage, "%q: %s", more, result.Combined())
	}
}

func TestARunLeavesAReportAndNothingElse(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		t.Parallel()
		dir := t.TempDir()
		result := icmd.RunCmd(s.runner(t, dir))
		assert.Equal(t, result.ExitCode, 0, result.Combined())
		assert.Equal(t, s.sandboxes(), 0)
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		assert.NilError(t, err)
		assert.Equal(t, len(files), 1, "%q", files)
		texts := reports(t, dir)
		assert.Equal(t, len(texts), 1)
		assert.Assert(t, strings.Contains(texts[0], `"a context keeps state"`))
		source := map[string]string{"e2b": "the example of cost_per_second in the schema of the plugin e2b", "aliyun": "a guess on the high side", "daytona": "a guess on the high side"}[s.provider]
		assert.Assert(t, strings.Contains(texts[0], `"price_source": "`+source), texts[0])
		assert.Assert(t, strings.Contains(result.Stdout(), source), result.Stdout())
		for name, value := range s.variables {
			assert.Check(t, !strings.Contains(texts[0]+result.Combined(), value), name)
		}
	})
}

func TestARunEndsWhenItsMoneyIsSpent(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		t.Parallel()
		dir := t.TempDir()
		result := icmd.RunCmd(s.runner(t, dir, "-cases", ".", "-spend", "0.1", "-price", "0.05"))
		assert.Equal(t, result.ExitCode, exitFailed, result.Combined())
		assert.Assert(t, strings.Contains(result.Stdout(), "the budget of 0.1 was spent"), result.Combined())
		assert.Equal(t, s.sandboxes(), 0)
		texts := reports(t, dir)
		assert.Equal(t, len(texts), 1)
		assert.Assert(t, strings.Contains(texts[0], `"price_source": "given as PRICE"`))
	})
}

func TestARunEndsInTime(t *testing.T) {
	s := fakeAliyun(t)
	result := icmd.RunCmd(s.runner(t, t.TempDir(), "-cases", ".", "-minutes", "0.05"))
	assert.Equal(t, result.ExitCode, exitFailed, result.Combined())
	assert.Assert(t, strings.Contains(result.Stdout(), "the 0.05 minutes were over"), result.Combined())
	assert.Equal(t, s.sandboxes(), 0)
}

func TestWhatAKilledRunLeftIsRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		s.stranger(t)
		dir := t.TempDir()
		s.keep() // or it may have none at the moment when it dies
		run := s.start(t, dir, "-cases", "^deadlines/python/")
		beside := icmd.RunCmd(s.runner(t, dir, "-clean"))
		assert.Equal(t, beside.ExitCode, exitFailed, "a run that goes on is not cleaned up after: %s", beside.Combined())
		assert.NilError(t, run.Process.Kill())
		assert.ErrorContains(t, run.Wait(), "killed")
		s.mend()
		assert.Assert(t, s.sandboxes() > 1)

		// With another key nothing of it can be seen, which must not be taken for the end.
		other := s
		other.variables = map[string]string{}
		for name, value := range s.variables {
			other.variables[name] = value
		}
		switch {
		case s.aliyun != nil:
			other.variables["AGENTRUN_ACCOUNT_ID"] = "6543210987654321"
		case s.daytona != nil:
			other.variables["DAYTONA_API_KEY"] = "dtn_" + strings.Repeat("0", 64)
		default:
			other.variables["E2B_API_KEY"] = "e2b_0000000000000000000000000000000000000000"
		}
		result := icmd.RunCmd(other.runner(t, dir, "-clean"))
		assert.Equal(t, result.ExitCode, exitFailed, result.Combined())
		assert.Assert(t, strings.Contains(result.Stdout(), "of another account"), result.Combined())
		assert.Assert(t, s.sandboxes() > 1)

		result = icmd.RunCmd(s.runner(t, dir, "-clean"))
		assert.Equal(t, result.ExitCode, 0, result.Combined())
		assert.Equal(t, s.sandboxes(), 1, "that of somebody else is left alone")
	})
}

func TestTheSnapshotsOfAKilledRunAreRemoved(t *testing.T) {
	s, dir := fakeE2B(t), t.TempDir()
	s.e2b.Inject(e2bfake.Fault{On: "DELETE /templates/*/*", Status: http.StatusInternalServerError})
	run := s.start(t, dir, "-cases", "^snapshots/")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if len(s.e2b.Snapshots()) == 0 {
			return poll.Continue("no snapshot yet")
		}
		return poll.Success()
	}, poll.WithTimeout(time.Minute))
	assert.NilError(t, run.Process.Kill())
	assert.ErrorContains(t, run.Wait(), "killed")
	s.mend()
	result := icmd.RunCmd(s.runner(t, dir, "-clean"))
	assert.Equal(t, result.ExitCode, 0, result.Combined())
	assert.Equal(t, s.sandboxes(), 0)
	assert.Equal(t, len(s.e2b.Snapshots()), 0)
}

// The broker makes sandboxes under its own name and label.
func TestWhatTheBrokerOfAKilledRunLeftIsRemoved(t *testing.T) {
	onEach(t, func(t *testing.T, s service) {
		t.Parallel()
		dir := t.TempDir()
		s.keep() // or it may have none at the moment when it dies
		run := s.start(t, dir, "-cases", "^no case$")
		assert.NilError(t, run.Process.Kill())
		assert.ErrorContains(t, run.Wait(), "killed")
		s.mend()
		assert.Assert(t, s.sandboxes() > 0)
		result := icmd.RunCmd(s.runner(t, dir, "-clean"))
		assert.Equal(t, result.ExitCode, 0, result.Combined())
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			if n := s.sandboxes(); n > 0 {
				return poll.Continue("%d sandboxes", n)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute))
		left, err := filepath.Glob(filepath.Join(dir, runDir+"*"))
		assert.NilError(t, err)
		assert.Equal(t, len(left), 0, "%q", left)
	})
}

func TestAnInterruptedRunRemovesWhatItMade(t *testing.T) {
	s, dir := fakeAliyun(t), t.TempDir()
	run := s.start(t, dir, "-cases", "^deadlines/python/")
	assert.NilError(t, run.Process.Signal(os.Interrupt))
	assert.ErrorContains(t, run.Wait(), "exit status 1")
	assert.Equal(t, s.sandboxes(), 0)
	texts := reports(t, dir)
	assert.Equal(t, len(texts), 1)
	assert.Assert(t, strings.Contains(texts[0], `"stopped": "a signal ended the run"`))
}

// The service itself puts secrets into what it says.
func TestAReportHoldsNoSecrets(t *testing.T) {
	canaries := []string{
		"CanaryOfTheSignature000000", "CanaryOfTheToken0000000000", "CanaryOfTheBearer000000000", "CanaryOfTheLogin0000000000",
		"LTAI5tCanaryOfAnotherKey", "STS.CanaryOfATemporaryKey", "CanaryOfTheOtherSecret0000",
	}
	s, dir := fakeAliyun(t), t.TempDir()
	said := s.aliyun.Keys.AccessKeyID + " " + s.aliyun.Keys.AccessKeySecret + ` at https://oss.example/file?OSSAccessKeyId=` + canaries[4] + `&Signature=` + canaries[0] +
		`&security-token=x then Authorization: Bearer ` + canaries[2] + ` X-Access-Token: ` + canaries[1] +
		` https://user:` + canaries[3] + `@proxy.example/ ` + canaries[5] + ` \"AccessKeySecret\": \"` + canaries[6] + `\"`
	// Both the suite and the broker's round make contexts.
	s.aliyun.Fault(aliyunfake.Fault{Action: "CreateContext", Times: 1 << 20, Status: 400, Body: `{"code":"ERR_BAD_REQUEST","requestId":"1","message":"` + said + `"}`})
	result := icmd.RunCmd(s.runner(t, dir, "-cases", "^contexts/python/a context keeps its state"))
	assert.Equal(t, result.ExitCode, exitFailed, result.Combined())
	texts := reports(t, dir)
	assert.Equal(t, len(texts), 1)
	all := texts[0] + result.Combined()
	assert.Assert(t, strings.Count(texts[0], "oss.example") > 1 && strings.Contains(result.Stdout(), "oss.example"), "the service's words must be there: %s", all)
	for _, secret := range append(canaries, s.aliyun.Keys.AccessKeyID, s.aliyun.Keys.AccessKeySecret, s.variables["AGENTRUN_ACCOUNT_ID"]) {
		assert.Check(t, !strings.Contains(all, secret), "%s is in %s", secret, all)
	}
	assert.Equal(t, s.sandboxes(), 0)
}
