package commandline_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/icmd"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const adminToken = "token-of-an-administrator"

var real = harness.Shared{Options: func(t testing.TB) harness.Options {
	return harness.Options{Config: harness.Tenants + fmt.Sprintf(
		"admin { token_sha256 = [\"%x\"] }\nlimits {\n  create_timeout = \"5m\"\n}\nprovider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 2\n  memory_mb = 256\n}\n",
		sha256.Sum256([]byte(adminToken)), binaries.Runsc(t))}
}}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := real.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "the broker that tests shared:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// person is somebody with a command line of their own.
type person struct {
	t    *testing.T
	home string
	env  []string
}

// newPerson has a home that is empty, and the variables for a broker.
func newPerson(t *testing.T, b *harness.Broker) *person {
	t.Helper()
	home := t.TempDir()
	return &person{t: t, home: home, env: []string{
		"HOME=" + home, "PATH=" + binaries.Dir(t) + ":" + os.Getenv("PATH"), "TERM=xterm-256color",
		"SANDBOX_BROKER_URL=" + b.URL, "SANDBOX_BROKER_TOKEN=" + harness.Token,
	}}
}

// does runs the command line and expects an exit code.
func (p *person) does(code int, stdin string, args ...string) *icmd.Result {
	p.t.Helper()
	command := icmd.Command(filepath.Join(binaries.Dir(p.t), "sandbox-broker"), args...)
	result := icmd.RunCmd(command, icmd.WithEnv(p.env...), icmd.WithStdin(strings.NewReader(stdin)), icmd.Dir(p.home))
	assert.Equal(p.t, result.ExitCode, code, "%v: %s", args, result.Combined())
	return result
}

// says runs the command line, which must succeed, and returns what it prints.
func (p *person) says(args ...string) string {
	p.t.Helper()
	return strings.TrimSpace(p.does(0, "", args...).Stdout())
}

func TestAnInstanceFromItsBeginningToItsEnd(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	id := p.says("create", "--session", "life", "--template", "bash", "--label", "of=life", "--env", "GREETING=moin")
	assert.Assert(t, strings.HasPrefix(id, "acme:life:"), id)
	assert.Equal(t, p.says("create", "--session", "life"), id, "a session has one instance")

	assert.Equal(t, p.says("ps", "-q", "--label", "of=life"), id)
	table := p.says("ps", "--session", "life")
	short := id[strings.LastIndex(id, ":")+1:][:12]
	assert.Check(t, is.Contains(table, "ID            SESSION"))
	assert.Check(t, is.Contains(table, short+"  life"))
	var list client.InstanceList
	assert.NilError(t, json.Unmarshal([]byte(p.says("ps", "--session", "life", "--output", "json")), &list))
	assert.Equal(t, list.Instances[0].ID, id)
	assert.Equal(t, p.says("ps", "-q", "--session", "life", "--state", "paused"), "")

	for _, name := range []string{id, "life", short, short[:8]} {
		assert.Equal(t, p.says("exec", name, "--", "sh", "-c", "echo $GREETING"), "moin", name)
	}
	result := p.does(5, "", "exec", "-w", "/tmp", "-e", "A=b c", "life", "sh", "-c", `echo "$A" $PWD; echo err >&2; exit 5`)
	assert.Equal(t, result.Stdout(), "b c /tmp\n")
	assert.Equal(t, result.Stderr(), "err\n")
	assert.Equal(t, p.does(0, "in\nput\n", "exec", "-i", "life", "cat").Stdout(), "in\nput\n")
	p.does(124, "", "exec", "--timeout", "300ms", "life", "sleep", "100").Assert(t, icmd.Expected{ExitCode: 124, Err: "SB005"})
	p.does(127, "", "exec", "life", "no-such-program").Assert(t, icmd.Expected{ExitCode: 127, Err: "no-such-program"})
	p.does(137, "", "exec", "life", "--", "sh", "-c", "kill -9 $$")

	command := p.says("exec", "-d", "life", "--", "sh", "-c", "echo begun; echo err >&2; read -r x </dev/null; echo ended")
	logs := p.does(0, "", "logs", "--follow", "life", command)
	assert.Equal(t, logs.Stdout(), "begun\nended\n")
	assert.Equal(t, logs.Stderr(), "err\n")
	assert.Equal(t, p.does(0, "", "logs", "life").Stdout(), logs.Stdout(), "the last one that began")
	assert.Check(t, is.Contains(p.says("ps", "life"), command+" "))
	assert.Check(t, is.Contains(p.says("top", "--once", "--interval", "200ms"), short+"  life"))

	// A megabyte or so may lag behind; what is lost beyond that is said. Input is never lost.
	result = icmd.RunCmd(icmd.Command(filepath.Join(binaries.Dir(t), "sandbox-broker"), "exec", "life", "--", "head", "-c", "20000000", "/dev/zero"), icmd.WithEnv(p.env...))
	if missing := 20_000_000 - len(result.Stdout()); missing > 0 {
		assert.Equal(t, result.ExitCode, 1)
		assert.Check(t, is.Contains(result.Stderr(), fmt.Sprintf("%d bytes of the output are missing", missing)))
	} else {
		assert.Equal(t, result.ExitCode, 0)
	}
	large := strings.Repeat("0123456789abcdef", 1<<18)
	assert.Equal(t, p.does(0, large, "exec", "-i", "life", "sha256sum").Stdout(), fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(large))))

	assert.Equal(t, p.says("rm", "life"), id)
	p.does(3, "", "rm", "life").Assert(t, icmd.Expected{ExitCode: 3, Err: "SB013"})
	p.does(0, "", "rm", "--force", "life")
}

func TestSomethingThatRunsKeepsItsInstance(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	id := p.says("create", "--session", "busy", "--template", "python")
	running := icmd.StartCmd(icmd.Cmd{
		Command: []string{filepath.Join(binaries.Dir(t), "sandbox-broker"), "run", "--session", "busy", "-"},
		Env:     p.env, Stdin: strings.NewReader("print('begun', flush=True)\nimport time\ntime.sleep(1000)"),
	})
	assert.NilError(t, running.Error)
	awaitContains(t, running.Stdout, "begun")
	p.does(1, "", "rm", "busy").Assert(t, icmd.Expected{ExitCode: 1, Err: "something runs in it: --force ends that"})
	assert.Equal(t, p.says("rm", "--force", "busy"), id)
	result := icmd.WaitOnCmd(0, running)
	assert.Check(t, result.ExitCode != 0)
}

func TestFilesGoInAndOut(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "files", "--template", "bash")
	write := func(name, content string) {
		path := filepath.Join(p.home, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.WriteFile(path, []byte(content), 0o640))
	}
	large := strings.Repeat("0123456789", 300_000)
	write("src/a.txt", "one\n")
	write("src/sub/large", large)
	assert.NilError(t, os.Mkdir(filepath.Join(p.home, "src/empty"), 0o755))
	assert.NilError(t, os.Symlink("a.txt", filepath.Join(p.home, "src/link")))

	p.says("cp", "src", "files:")
	p.says("cp", "src", "files:renamed")
	p.says("cp", "src/.", "files:inside/")
	p.says("cp", "src/a.txt", "files:deep/er/b.txt")
	p.says("cp", "src/a.txt", "files:inside")
	p.does(0, "typed", "cp", "-", "files:typed.txt")
	there := p.says("exec", "files", "--", "sh", "-c", "find . | sort; stat -c %a src/a.txt deep/er/b.txt; cat typed.txt")
	assert.Equal(t, there, strings.Join([]string{
		".", "./deep", "./deep/er", "./deep/er/b.txt", "./inside", "./inside/a.txt", "./inside/empty", "./inside/link", "./inside/sub", "./inside/sub/large",
		"./renamed", "./renamed/a.txt", "./renamed/empty", "./renamed/link", "./renamed/sub", "./renamed/sub/large",
		"./src", "./src/a.txt", "./src/empty", "./src/link", "./src/sub", "./src/sub/large", "./typed.txt", "640", "640", "typed",
	}, "\n"))

	p.says("cp", "files:src", "back")
	for name, want := range map[string]string{"a.txt": "one\n", "link": "one\n", "sub/large": large} {
		text, err := os.ReadFile(filepath.Join(p.home, "back", name))
		assert.NilError(t, err)
		assert.Assert(t, string(text) == want, name)
	}
	p.says("cp", "files:src", ".") // over what is there
	p.says("cp", "files:src/sub/large", "back/")
	assert.Equal(t, len(p.does(0, "", "cp", "files:src/sub/large", "-").Stdout()), len(large))
	assert.Check(t, is.Contains(p.says("exec", "files", "--", "ls", "-A", "src"), "a.txt"))

	// A tar stream out of one place and into another.
	stream := p.does(0, "", "cp", "files:src", "-").Stdout()
	p.does(0, stream, "cp", "--tar", "-", "files:/tmp")
	assert.Equal(t, p.says("exec", "files", "cat", "/tmp/src/link"), "one")

	for name, c := range map[string]struct {
		code int
		args []string
		says string
	}{
		"both here":                {2, []string{"cp", "a", "b"}, "one of the two must be in an instance"},
		"both there":               {2, []string{"cp", "files:a", "files:b"}, "by way of this machine"},
		"a tar stream of no -":     {2, []string{"cp", "--tar", "src", "files:x"}, "--tar is for -"},
		"standard input, no name":  {2, []string{"cp", "-", "files:"}, "name the file"},
		"a file that is not here":  {1, []string{"cp", "none", "files:"}, "no such file"},
		"a file that is not there": {3, []string{"cp", "files:none", "."}, "SB013"},
		"no such instance":         {3, []string{"cp", "none:x", "."}, `the session "none"`},
		"a place that is not open": {3, []string{"cp", "files:/etc/passwd", "."}, "SB010"},
	} {
		t.Run(name, func(t *testing.T) {
			result := (&person{t: t, home: p.home, env: p.env}).does(c.code, "", c.args...)
			assert.Check(t, is.Contains(result.Stderr(), c.says))
		})
	}
	p.says("rm", "-f", "files")
}

// Code in a sandbox may be hostile to who copies what it has made.
func TestLinksThatLeadOutStayBehind(t *testing.T) {
	t.Parallel()
	p := newPerson(t, real.Broker(t))
	p.says("create", "--session", "hostile", "--template", "bash")
	p.says("exec", "hostile", "--", "sh", "-c", "mkdir -p evil/sub && cd evil && ln -s /etc absolute && ln -s ../../../x above && ln -s sub fine && echo x >sub/file && mkfifo pipe")
	result := p.does(0, "", "cp", "hostile:evil", "evil")
	assert.Check(t, is.Contains(result.Stderr(), `"absolute" stays behind`))
	assert.Check(t, is.Contains(result.Stderr(), `"above" stays behind`))
	entries, err := os.ReadDir(filepath.Join(p.home, "evil"))
	assert.NilError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.DeepEqual(t, names, []string{"fine", "sub"})
	p.says("rm", "-f", "hostile")
}

func TestContextsSayWhereTheBrokerIs(t *testing.T) {
	t.Parallel()
	b := real.Broker(t)
	p := newPerson(t, b)
	p.env = p.env[:3] // nothing of a broker
	p.does(0, harness.Token+"\n", "config", "context", "set", "work", "--address", b.URL, "--token-file", "-")
	p.does(0, adminToken, "config", "context", "set", "admin", "--address", b.URL, "--token-file", "-")
	list := p.says("config", "context", "-o", "json")
	assert.Check(t, !strings.Contains(list, harness.Token) && !strings.Contains(list, adminToken), list)
	assert.Check(t, is.Contains(p.says("config", "context"), "work     yes"))

	assert.Check(t, is.Contains(p.says("usage"), "max_concurrent"))
	p.does(3, "", "tenants").Assert(t, icmd.Expected{ExitCode: 3, Err: "SB012"})
	assert.Equal(t, p.says("tenants", "--context", "admin", "-o", "name"), "acme\nrival")
	assert.Check(t, is.Contains(p.says("tenants", "show", "--context", "admin", "acme"), "max_concurrent=10000"))
	assert.Check(t, is.Contains(p.says("config", "show", "--context", "admin"), "pool_size"))
	assert.Check(t, is.Contains(p.says("config", "generations", "--context", "admin"), "applied"))
	assert.Check(t, is.Contains(p.says("config", "reload", "--dry-run", "--context", "admin"), "unchanged: generation"))
	assert.Check(t, is.Contains(p.says("version", "--context", "admin"), "\nbroker "))
	p.says("config", "context", "use", "admin")
	assert.Check(t, is.Contains(p.says("tenants"), "acme"))

	// A token is for its own broker alone.
	p.does(3, "", "usage", "--url", b.URL).Assert(t, icmd.Expected{ExitCode: 3, Err: "SB011"})
	p.says("config", "context", "set", "work", "--address", "http://127.0.0.1:1")
	p.does(2, "", "usage", "--context", "work").Assert(t, icmd.Expected{ExitCode: 2, Err: "has no token"})

	file := filepath.Join(p.home, ".config/sandbox-broker/contexts.json")
	info, err := os.Stat(file)
	assert.NilError(t, err)
	assert.Equal(t, info.Mode().Perm(), os.FileMode(0o600))
	assert.NilError(t, os.Chmod(file, 0o644))
	p.does(2, "", "usage").Assert(t, icmd.Expected{ExitCode: 2, Err: "other users may read it"})
}

func TestTokensOfATenantAreChanged(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{Config: harness.Tenants + fmt.Sprintf(
		"admin { token_sha256 = [\"%x\"] }\nprovider \"self_managed\" {\n  runsc = %q\n  pool_size = 0\n}\n", sha256.Sum256([]byte(adminToken)), binaries.Runsc(t))})
	p := newPerson(t, b)
	p.env[len(p.env)-1] = "SANDBOX_BROKER_TOKEN=" + adminToken
	first := p.says("tenants", "add", "fresh", "--quota", "max_instances=1")
	second := p.says("tenants", "token", "add", "fresh")
	as := func(token string) *person {
		return &person{t: t, home: p.home, env: append(p.env[:len(p.env)-1:len(p.env)-1], "SANDBOX_BROKER_TOKEN="+token)}
	}
	assert.Check(t, is.Contains(as(first).says("usage"), "max_instances"))
	var shown client.AdminTenantAnswer
	assert.NilError(t, json.Unmarshal([]byte(p.says("tenants", "show", "fresh", "-o", "json")), &shown))
	assert.Equal(t, len(shown.Data.Tokens), 2)
	assert.Check(t, is.Contains(p.says("tenants", "set", "fresh", "--provider", "self_managed", "--quota", "max_instances=3"), "max_instances=3"))
	assert.Check(t, is.Contains(p.says("tenants", "set", "fresh", "--all-providers", "--quota", "max_instances=null"), "all"))
	assert.Check(t, !strings.Contains(p.says("tenants", "show", "fresh"), "max_instances"))
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(second)))[:16]
	third := p.says("tenants", "token", "rotate", "fresh", id)
	as(second).does(3, "", "usage").Assert(t, icmd.Expected{ExitCode: 3, Err: "SB011"})
	as(third).says("usage")
	p.says("tenants", "token", "revoke", "fresh", fmt.Sprintf("%x", sha256.Sum256([]byte(third)))[:16])
	as(third).does(3, "", "usage")
	assert.Equal(t, p.says("tenants", "remove", "fresh"), "fresh")
	as(first).does(3, "", "usage")

	assert.Check(t, is.Contains(p.says("config", "apply", "self_managed", "memory_mb:=128"), "applied: generation"))
	assert.Check(t, is.Contains(p.says("config", "activate", "self_managed"), "generation"))
	p.does(3, "", "config", "apply", "self_managed", "memory_mb:=true").Assert(t, icmd.Expected{ExitCode: 3, Err: "memory_mb"})
	p.does(3, "", "config", "apply", "self_managed", "memory_mb:=130", "--revision", strings.Repeat("0", 64)).Assert(t, icmd.Expected{ExitCode: 3, Err: "SB014"})
}
