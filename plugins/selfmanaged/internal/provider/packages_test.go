package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/packageindex"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// install installs Python packages.
func install(t *testing.T, p testProvider, id string, requirements ...string) (outcome, error) {
	t.Helper()
	return installWith(t, p, sdk.InstallPackagesRequest{InstanceID: id, Language: sdk.Python, Requirements: requirements})
}

func installWith(t *testing.T, p testProvider, req sdk.InstallPackagesRequest) (outcome, error) {
	t.Helper()
	if req.Timeout == 0 {
		req.Timeout = time.Minute
	}
	req.OutputLimit = 1 << 20
	var r recorder
	result, err := p.InstallPackages(t.Context(), req, &r)
	return outcome{ExecuteResult: result, stdout: r.out.String(), stderr: r.err.String()}, err
}

// succeeded fails the test unless an installation went well.
func succeeded(t *testing.T, got outcome, err error) {
	t.Helper()
	assert.NilError(t, err)
	assert.Equal(t, got.Status, sdk.StatusSucceeded, "%s\n%s", got.stdout, got.stderr)
}

// failed fails the test unless an installation went wrong in the one way.
func failed(t *testing.T, got outcome, err error) {
	t.Helper()
	assert.NilError(t, err)
	assert.Check(t, is.Equal(got.Status, sdk.StatusFailed), got.stderr)
	assert.Check(t, got.ExitCode != 0)
	assert.Check(t, strings.HasPrefix(got.stderr, "Failed to install requirements: "), got.stderr)
}

func run(t *testing.T, p testProvider, id string, language sdk.Language, code string) outcome {
	t.Helper()
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: language, Code: code})
	assert.NilError(t, err)
	return got
}

func TestPackagesAreInstalledForTheLifeOfAnInstance(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testPackagesAreInstalledForTheLifeOfAnInstance)
}

func testPackagesAreInstalledForTheLifeOfAnInstance(t *testing.T, newProvider makeProvider) {
	index := packageindex.Start(t)
	index.AddWheel("first", "1.0", "def hello(): return 'hello from first'")
	index.AddWheel("second", "2.5", "value = 25")
	index.AddWheel("json", "1.0", "dumps = None")
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	id, other := create(t, p, templatePython), create(t, p, templatePython)

	got, err := install(t, p, id, "first", "second>=2,<3")
	succeeded(t, got, err)
	assert.Check(t, is.Contains(got.stdout, "Successfully installed first-1.0 second-2.5"))
	assert.Equal(t, run(t, p, id, sdk.Python, "import first, second; print(first.hello(), second.value)").stdout, "hello from first 25\n")
	assert.Equal(t, run(t, p, id, sdk.Bash, "ls -A /tmp").stdout, "", "an installer leaves nothing behind")
	got, err = install(t, p, id, "json")
	succeeded(t, got, err)
	assert.Equal(t, run(t, p, id, sdk.Python, "import json, first; print(json.dumps([1]))").stdout, "[1]\n", "the standard library comes first, and what was installed before stays")
	assert.Check(t, is.Contains(run(t, p, other, sdk.Python, "import first").stderr, "ModuleNotFoundError"))

	for name, requirements := range map[string][]string{
		"unknown":         {"no-such-package"},
		"a wrong version": {"second==7"},
		"one of two":      {"first", "no-such-package"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := install(t, p, other, requirements...)
			failed(t, got, err)
			assert.Check(t, is.Contains(got.stderr, "ERROR: "))
		})
	}
	assert.Check(t, is.Contains(run(t, p, other, sdk.Python, "import first").stderr, "ModuleNotFoundError"))
}

func TestContextsFindThePackages(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testContextsFindThePackages)
}

func testContextsFindThePackages(t *testing.T, newProvider makeProvider) {
	index := packageindex.Start(t)
	for _, name := range []string{"first", "second"} {
		index.AddWheel(name, "1.0", "value = 'from "+name+"'")
	}
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	id := create(t, p, templatePython)
	before := newContext(t, p, id, sdk.Python)
	assert.Check(t, is.Contains(before.run("import first").stderr, "ModuleNotFoundError"))
	for _, name := range []string{"first", "second"} {
		got, err := install(t, p, id, name)
		succeeded(t, got, err)
		code := "import " + name + "; print(" + name + ".value)"
		assert.Equal(t, before.run(code).stdout, "from "+name+"\n")
		assert.Equal(t, newContext(t, p, id, sdk.Python).run(code).stdout, "from "+name+"\n")
	}
}

func TestPipThatCodeCallsInstallsWhatIsAllowed(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testPipThatCodeCallsInstallsWhatIsAllowed)
}

func testPipThatCodeCallsInstallsWhatIsAllowed(t *testing.T, newProvider makeProvider) {
	index := packageindex.Start(t)
	for _, name := range []string{"first", "second", "third", "fourth", "fifth"} {
		index.AddWheel(name, "1.0", "value = 'from "+name+"'")
	}
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	id := create(t, p, templatePython)
	c := newContext(t, p, id, sdk.Python)

	got := c.run("!pip install -q first\nimport first\nfirst.value")
	assert.Check(t, is.Equal(got.value(), "'from first'"), got.stderr)
	got = c.run("%pip install --upgrade second\nimport second\nsecond.value")
	assert.Check(t, is.Equal(got.value(), "'from second'"), got.stderr)
	assert.Check(t, is.Contains(got.stdout, "Successfully installed second-1.0"))
	got = run(t, p, id, sdk.Python, "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', '--user', 'third==1.0'])\nimport third; print(third.value)")
	assert.Check(t, is.Contains(got.stdout, "from third\n"), got.stderr)
	got = run(t, p, id, sdk.Bash, "printf 'fourth # a comment\\n\\n' > r.txt; pip3 install -r r.txt fifth && python3 -m pip list")
	for _, want := range []string{"fourth", "fifth"} {
		assert.Check(t, is.Contains(got.stdout, want), got.stderr)
	}

	for name, test := range map[string]struct{ command, want string }{
		"a package that is not there": {"pip install no-such-package", "Failed to install requirements: "},
		"a URL":                       {"pip install https://example.com/x.whl", "is not the name of a package"},
		"an index of its own":         {"pip install --index-url http://127.0.0.1/ first", "--index-url is not taken"},
		"a file that is not there":    {"pip install -r none.txt", "Could not open requirements file"},
		"nothing":                     {"pip install", "You must give at least one requirement"},
		"too much at once":            {"pip install $(seq -f package%g 1 300)", "more than 200 requirements"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, p, id, sdk.Bash, test.command)
			assert.Check(t, is.Equal(got.Status, sdk.StatusFailed))
			assert.Check(t, is.Contains(got.stderr, test.want))
		})
	}
	got = run(t, p, id, sdk.Python, "import socket\ns = [socket.socket(socket.AF_UNIX) for _ in range(40)]\nfor x in s: x.settimeout(1); x.connect('/run/sandbox/packages.sock'); x.send(b'junk\\n')\n[x.close() for x in s]\nprint('done')")
	assert.Check(t, is.Equal(got.stdout, "done\n"), got.stderr)
	assert.Check(t, is.Equal(run(t, p, id, sdk.Bash, "pip install first >/dev/null && echo well").stdout, "well\n"))

	off := newProvider(t, nil)
	got = run(t, off, create(t, off, templatePython), sdk.Bash, "echo $PATH $PYTHONPATH; ls /run/sandbox/packages.sock")
	assert.Check(t, is.Equal(got.stdout, "/usr/local/bin:/usr/bin:/bin\n"))
}

func TestPackagesComeFromADirectoryOfWheels(t *testing.T) {
	inTheGuest(t, testPackagesComeFromADirectoryOfWheels)
}

func testPackagesComeFromADirectoryOfWheels(t *testing.T, newProvider makeProvider) {
	dir := t.TempDir()
	file, content := packageindex.Wheel(t, "local", "3.1", "x = 31")
	assert.NilError(t, os.WriteFile(filepath.Join(dir, file), content, 0o644))
	p := newProvider(t, map[string]any{"packages": "on", "wheel_dir": dir})
	id := create(t, p, templatePython)
	got, err := install(t, p, id, "local")
	succeeded(t, got, err)
	assert.Equal(t, run(t, p, id, sdk.Python, "import local; print(local.x)").stdout, "31\n")
	got, err = install(t, p, id, "pip")
	failed(t, got, err)
}

func TestJavaScriptPackagesAreInstalled(t *testing.T) {
	tier.Full(t)
	index := packageindex.Start(t)
	index.AddNPM("left", "1.2.3", "module.exports = s => '  ' + s")
	p := newProvider(t, map[string]any{"packages": "on", "npm_registry": index.URL + "/"})
	id := create(t, p, templateNode)
	got, err := installWith(t, p, sdk.InstallPackagesRequest{InstanceID: id, Language: sdk.JavaScript, Requirements: []string{"left@^1"}})
	if p.packages.Installable(sdk.JavaScript) != nil { // most machines have none, and it is large
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
		assert.ErrorContains(t, err, "there is no npm")
		return
	}
	succeeded(t, got, err)
	assert.Equal(t, run(t, p, id, sdk.JavaScript, "console.log(require('left')('x'))").stdout, "  x\n")
	assert.Equal(t, run(t, p, id, sdk.JavaScript, "import left from 'left'; console.log(left('y'))").stdout, "  y\n")
	got, err = installWith(t, p, sdk.InstallPackagesRequest{InstanceID: id, Language: sdk.JavaScript, Requirements: []string{"right"}})
	failed(t, got, err)
}

func TestWhatIsNotAllowedIsNotInstalled(t *testing.T) {
	off := newProvider(t, nil)
	id := create(t, off, templatePython)
	_, err := install(t, off, id, "numpy")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
	assert.ErrorContains(t, err, `packages = "on"`)

	on := newProvider(t, map[string]any{"packages": "on", "wheel_dir": t.TempDir()})
	id = create(t, on, templatePython)
	_, err = install(t, on, "nowhere", "numpy")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	_, err = install(t, on, id, "git+https://example.com/x")
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidRequest})
	for _, language := range []sdk.Language{sdk.JavaScript, sdk.Bash} {
		_, err = installWith(t, on, sdk.InstallPackagesRequest{InstanceID: id, Language: language, Requirements: []string{"x"}})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotSupported})
	}
}

// refusedSettings configures a provider with what it refuses.
func refusedSettings(t *testing.T, given map[string]any) error {
	t.Helper()
	all := map[string]any{"pool_size": 0, "runsc": binaries.Runsc(t), "guest": filepath.Join(binaries.Dir(t), "sandbox-guest")}
	maps.Copy(all, given)
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, problems := p.Describe().Schema.Resolve(all)
	assert.Assert(t, is.Len(problems, 0))
	return p.Configure(t.Context(), sdk.ConfigureRequest{Label: "self_managed", BrokerID: "test" + newID(), StateDir: t.TempDir(), Settings: settings})
}

func TestTheSettingsOfPackagesAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		settings map[string]any
		field    string
	}{
		"no source":              {map[string]any{}, "packages"},
		"a password in the URL":  {map[string]any{"package_index": "https://me:s3cret@example.com/simple/"}, "package_index"},
		"no host in the URL":     {map[string]any{"package_index": "https:///simple/"}, "package_index"},
		"an impossible port":     {map[string]any{"npm_registry": "https://example.com:99999/"}, "npm_registry"},
		"a query":                {map[string]any{"package_index": "https://example.com/simple/?x=1"}, "package_index"},
		"an address among hosts": {map[string]any{"wheel_dir": "/", "package_hosts": []any{"10.0.0.1"}}, "package_hosts"},
		"everything as a host":   {map[string]any{"wheel_dir": "/", "package_hosts": []any{"*"}}, "package_hosts"},
		"all of a top level":     {map[string]any{"wheel_dir": "/", "package_hosts": []any{"*.com"}}, "package_hosts"},
		"no such directory":      {map[string]any{"wheel_dir": "/nowhere"}, "wheel_dir"},
	} {
		t.Run(name, func(t *testing.T) {
			test.settings["packages"] = "on"
			err := refusedSettings(t, test.settings)
			assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
			e, _ := errors.AsType[*sdk.Error](err)
			assert.Check(t, is.Equal(e.Field, test.field))
			assert.Check(t, !strings.Contains(err.Error(), "s3cret"))
		})
	}
}

func TestAnInstallationReachesOnlyWhatTheOperatorNamed(t *testing.T) {
	inTheGuest(t, testAnInstallationReachesOnlyWhatTheOperatorNamed)
}

func testAnInstallationReachesOnlyWhatTheOperatorNamed(t *testing.T, newProvider makeProvider) {
	index, forbidden := packageindex.Start(t), packageindex.Start(t)
	reached := make(chan string, 10)
	forbidden.Handle("/", func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path })
	file, _ := packageindex.Wheel(t, "away", "1.0", "")
	index.Link("away", forbidden.URL+"/"+file)
	index.Link("moved", "/moved/"+strings.Replace(file, "away", "moved", 1))
	index.Handle("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, forbidden.URL+r.URL.Path, http.StatusFound)
	})
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	id := create(t, p, templatePython)
	for _, name := range []string{"away", "moved"} {
		got, err := install(t, p, id, name)
		failed(t, got, err)
	}
	assert.Check(t, is.Len(reached, 0), "another port of the same host")
}

// userCode tries what it can to get out while an installation waits.
const userCode = `
import os, re, socket
def listening():
    for line in open('/proc/net/tcp').readlines()[1:]:
        fields = line.split()
        if fields[3] == '0A': yield int(fields[1].split(':')[1], 16)
def ports():
    found = set()
    try: found.update(listening())
    except OSError: pass
    if found: return found
    for port in range(1024, 65536):
        s = socket.socket()
        if s.connect_ex(('127.0.0.1', port)) == 0: found.add(port)
        s.close()
    return found
def ask(port, head):
    s = socket.create_connection(('127.0.0.1', port), 5)
    s.sendall((head + '\r\n\r\n').encode())
    return s.recv(1000).decode().splitlines()[0]
seen = set()
for port in ports():
    for head in ('CONNECT HOST HTTP/1.1\r\nHost: x', 'GET http://HOST/secret HTTP/1.1\r\nHost: HOST',
                 'GET http://HOST/secret HTTP/1.1\r\nHost: HOST\r\nProxy-Authorization: Basic aW5zdGFsbGVyOg=='):
        seen.add(ask(port, head))
print(sorted(seen))
for pid in os.listdir('/proc'):
    if pid.isdigit():
        try: text = open(f'/proc/{pid}/environ', 'rb').read()
        except OSError: continue
        if b'installer:' in text or b'pip' in open(f'/proc/{pid}/cmdline', 'rb').read(): print('visible', pid)
`

func TestUserCodeCannotUseTheWayOutOfAnInstallation(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testUserCodeCannotUseTheWayOutOfAnInstallation)
}

func testUserCodeCannotUseTheWayOutOfAnInstallation(t *testing.T, newProvider makeProvider) {
	index := packageindex.Start(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	index.Handle("/simple/slow/", func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		http.Error(w, "no", http.StatusNotFound)
	})
	reached := make(chan struct{}, 100)
	index.Handle("/secret", func(http.ResponseWriter, *http.Request) { reached <- struct{}{} })
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple(), "package_layers_mb": 0})
	id := create(t, p, templatePython)
	type ended struct {
		outcome
		err error
	}
	done := make(chan ended, 1)
	go func() {
		got, err := install(t, p, id, "slow")
		done <- ended{got, err}
	}()
	<-asked
	got := run(t, p, id, sdk.Python, strings.ReplaceAll(userCode, "HOST", strings.TrimPrefix(index.URL, "http://")))
	assert.Check(t, is.Equal(got.stdout, "['HTTP/1.1 407 Proxy Authentication Required']\n"), got.stderr)
	_, err := install(t, p, id, "slow")
	assert.Check(t, is.ErrorIs(err, &sdk.Error{Code: sdk.CodeConflict}), "one at a time")
	close(answer)
	end := <-done
	failed(t, end.outcome, end.err)
	assert.Check(t, is.Len(reached, 0))
	got = run(t, p, id, sdk.Python, strings.ReplaceAll(userCode, "HOST", "x"))
	assert.Check(t, is.Equal(got.stdout, "[]\n"), "the way out is there no longer than the installation: %s", got.stderr)
}

func TestAnInstallationHasATimeLimit(t *testing.T) {
	tier.Full(t)
	inTheGuest(t, testAnInstallationHasATimeLimit)
}

func testAnInstallationHasATimeLimit(t *testing.T, newProvider makeProvider) {
	index := packageindex.Start(t)
	index.AddWheel("good", "1.0", "")
	index.Handle("/simple/never/", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple()})
	id := create(t, p, templatePython)
	got, err := installWith(t, p, sdk.InstallPackagesRequest{InstanceID: id, Language: sdk.Python, Requirements: []string{"never"}, Timeout: 3 * time.Second})
	assert.NilError(t, err)
	assert.Check(t, is.Equal(got.Status, sdk.StatusTimeout), got.stderr)
	assert.Check(t, strings.HasPrefix(got.stderr, packages.Failure), got.stderr)
	got, err = install(t, p, id, "good")
	succeeded(t, got, err)
}

func TestAnIndexThatNeverEndsIsCutOff(t *testing.T) {
	tier.Full(t)
	index := packageindex.Start(t)
	index.Handle("/simple/huge/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		line := []byte("<!-- " + strings.Repeat("x", 32<<10) + " -->\n")
		for {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple(), "package_mb": 8})
	id := create(t, p, templatePython)
	got, err := install(t, p, id, "huge")
	failed(t, got, err)
	assert.Equal(t, run(t, p, id, sdk.Python, "print('well')").stdout, "well\n")
}

func TestAnInstallationReadsNothingOfUserCode(t *testing.T) {
	index := packageindex.Start(t)
	index.AddWheel("good", "1.0", "x = 1")
	p := newProvider(t, map[string]any{"packages": "on", "package_index": index.Simple(), "package_layers_mb": 0})
	id := create(t, p, templatePython)
	trap := "import os; open('/workspace/trapped', 'a').write(str(os.environ.get('HTTP_PROXY')))"
	run(t, p, id, sdk.Python, fmt.Sprintf(`
import os
for path in ('pip.py', 'sitecustomize.py', 'usercustomize.py', 'requests.py', '.local/lib/python3.%%d/site-packages/usercustomize.py' %% __import__('sys').version_info[1],
             '.packages/python/sitecustomize.py', '.packages/python/ssl.py'):
    os.makedirs(os.path.dirname('/workspace/' + path), exist_ok=True)
    open('/workspace/' + path, 'w').write(%q)
for path in ('.pip/pip.conf', '.config/pip/pip.conf'):
    os.makedirs(os.path.dirname('/workspace/' + path), exist_ok=True)
    open('/workspace/' + path, 'w').write('[global]\nindex-url = http://nowhere.invalid/\n')
`, trap))
	got, err := install(t, p, id, "good")
	succeeded(t, got, err)
	assert.Equal(t, run(t, p, id, sdk.Bash, "cat trapped").stdout, "")
}
