package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/dockerengine"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

func TestAContainerThatIsKilledIsReplaced(t *testing.T) {
	engine := dockerengine.Find(t)
	p := onDocker(engine)(t, nil)
	id := create(t, p, templatePython)
	started, result := newAnnouncer(), make(chan error, 1)
	go func() {
		_, err := p.Execute(t.Context(), sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: "print(1)\nwhile True: pass", Timeout: time.Minute, OutputLimit: 1 << 20}, started)
		result <- err
	}()
	<-started.written
	name := "sandbox-broker-" + p.brokerID + "-self_managed-" + id
	assert.NilError(t, engine.Do(http.MethodPost, "/containers/"+name+"/kill", nil, nil))
	assert.ErrorIs(t, <-result, &sdk.Error{Code: sdk.CodeUnavailable}, "killed, but not for memory")
	_, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Python, Code: ""})
	assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeNotFound})
	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: "print('next')"})
	assert.NilError(t, err)
	assert.Equal(t, got.stdout, "next\n")
}

// What an inspection shows is what the engine enforces.
func TestAContainerIsConfined(t *testing.T) {
	engine := dockerengine.Find(t)
	p := onDocker(engine)(t, map[string]any{"pool_size": 0, "memory_mb": 128, "workspace_mb": 32, "processes": 64, "cpus": 0.5})
	id := create(t, p, templateBash)
	var container struct {
		Config struct {
			User   string
			Labels map[string]string
		}
		HostConfig struct {
			AutoRemove, ReadonlyRootfs, Privileged bool
			Runtime, NetworkMode, IpcMode          string
			CapDrop, SecurityOpt                   []string
			Memory, MemorySwap, NanoCpus           int64
			PidsLimit                              int64
			LogConfig                              struct{ Type string }
			Init                                   bool
		}
		Mounts []struct {
			Source, Destination string
			RW                  bool
		}
	}
	assert.NilError(t, engine.Do(http.MethodGet, "/containers/sandbox-broker-"+p.brokerID+"-self_managed-"+id+"/json", nil, &container))
	h := container.HostConfig
	assert.Check(t, h.AutoRemove && h.ReadonlyRootfs && !h.Privileged && !h.Init)
	assert.Check(t, is.Equal(h.Runtime, "runsc"))
	assert.Check(t, is.Equal(h.NetworkMode, "none"))
	assert.Check(t, is.Equal(h.IpcMode, "private"))
	assert.Check(t, is.DeepEqual(h.CapDrop, []string{"ALL"}))
	assert.Check(t, is.DeepEqual(h.SecurityOpt, []string{"no-new-privileges:true"}))
	assert.Check(t, is.Equal(h.Memory, int64((128+256)<<20)))
	assert.Check(t, is.Equal(h.MemorySwap, h.Memory), "no swap beside the memory")
	assert.Check(t, is.Equal(h.NanoCpus, int64(500_000_000)))
	assert.Check(t, is.Equal(h.PidsLimit, int64(4*64+512)))
	assert.Check(t, is.Equal(h.LogConfig.Type, "none"))
	assert.Check(t, is.Equal(container.Config.Labels["io.sandbox-broker.broker"], p.brokerID))
	assert.Check(t, is.Equal(container.Config.Labels["io.sandbox-broker.provider"], "self_managed"))
	assert.Check(t, is.Equal(container.Config.Labels["io.sandbox-broker.instance"], id))
	assert.Assert(t, is.Len(container.Mounts, 1), "nothing of the host but the guest: %v", container.Mounts)
	assert.Check(t, is.Equal(container.Mounts[0].Source, filepath.Join(p.dir, "guest")))
	assert.Check(t, !container.Mounts[0].RW)

	got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: id, Language: sdk.Bash, Code: `
		for dir in /workspace /tmp /dev/shm; do df --output=size,target -k $dir | tail -n 1; done
		cat /etc/resolv.conf; hostname; wc -l < /etc/hosts; touch /opt/sandbox/guest`})
	assert.NilError(t, err)
	lines := strings.Split(got.stdout, "\n")
	assert.Assert(t, len(lines) > 3, got.stdout)
	for i, dir := range []string{"/workspace", "/tmp", "/dev/shm"} {
		assert.Check(t, is.Equal(strings.Join(strings.Fields(lines[i]), " "), "32768 "+dir))
	}
	assert.Check(t, is.Contains(got.stdout, "nameserver 127.0.0.1\n"), "the host's name servers are its own matter")
	assert.Check(t, is.Contains(got.stdout, "\nsandbox\n"))
	assert.Check(t, is.Contains(got.stderr, "touch: cannot touch '/opt/sandbox/guest'"))
}

func TestOrphansAreRemovedAtTheStart(t *testing.T) {
	engine := dockerengine.Find(t)
	dir, brokerID := scratch.Dir(t), "test"+newID()
	labels := func(broker, provider, process string) map[string]string {
		return map[string]string{"io.sandbox-broker.broker": broker, "io.sandbox-broker.provider": provider, "io.sandbox-broker.process": process}
	}
	orphan := func(labels map[string]string) string {
		var made struct{ ID string }
		assert.NilError(t, engine.Do(http.MethodPost, "/containers/create", map[string]any{
			"Image": dockerengine.Image, "Cmd": []string{"sleep", "1000"}, "Labels": labels,
			"HostConfig": map[string]any{"NetworkMode": "none", "Runtime": "runsc"},
		}, &made))
		t.Cleanup(func() { _ = engine.Do(http.MethodDelete, "/containers/"+made.ID+"?force=true", nil, nil) })
		return made.ID
	}
	start := func(id string) string {
		assert.NilError(t, engine.Do(http.MethodPost, "/containers/"+id+"/start", nil, nil))
		return id
	}
	p := onDocker(engine)(t, map[string]any{"pool_size": 0})
	create(t, p, templateBash)
	living := engine.Containers(t, p.brokerID)[0].Labels["io.sandbox-broker.process"]

	orphan(labels(brokerID, "self_managed", "1-1")) // never started
	start(orphan(labels(brokerID, "self_managed", "1-1")))
	kept := []string{
		start(orphan(labels(brokerID, "self_managed", living))),
		orphan(labels(brokerID, "self_managed", living)), // about to be started
		orphan(labels(brokerID, "another", "1-1")),
	}
	other := orphan(labels(brokerID+"0", "self_managed", "1-1"))

	next := configured(t, dir, brokerID, map[string]any{"runtime": runtimeDocker, "docker_host": engine.Host, "pool_size": 0})
	var left []string
	for _, c := range engine.Containers(t, brokerID) {
		left = append(left, c.ID)
	}
	assert.NilError(t, next.Close(t.Context()))
	assert.Check(t, is.Len(left, len(kept)))
	for _, id := range kept {
		assert.Check(t, is.Contains(left, id))
	}
	assert.Check(t, is.Equal(engine.Containers(t, brokerID+"0")[0].ID, other), "another broker's")
}

func TestHealthSaysThatTheImageIsGone(t *testing.T) {
	engine := dockerengine.Find(t)
	name := "sandbox-broker-test/" + newID()
	assert.NilError(t, engine.Do(http.MethodPost, "/images/"+dockerengine.Image+"/tag?repo="+name+"&tag=v1", nil, nil))
	p := onDocker(engine)(t, map[string]any{"image": name + ":v1", "pool_size": 1})
	create(t, p, templateBash)
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, health.Healthy, health.Reason)
	assert.Check(t, is.Contains(health.Details["docker"], "runtime runsc (/"))

	assert.NilError(t, engine.Do(http.MethodDelete, "/images/"+name+":v1", nil, nil))
	health, err = p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, !health.Healthy)
	assert.Check(t, is.Equal(health.Reason, "the Docker Engine has no image \""+name+":v1\": make the default one with `make rootfs`, or name another with the setting image"))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		_, err := p.Create(t.Context(), sdk.CreateRequest{Template: templatePython})
		if err == nil {
			return poll.Continue("there was one ready")
		}
		return poll.Compare(is.ErrorIs(err, &sdk.Error{Code: sdk.CodeCreateFailed}))
	}, poll.WithTimeout(2*time.Minute))
}

// deafRuntime is one that does not answer.
type deafRuntime struct{ sandboxRuntime }

func (deafRuntime) Check(context.Context) error {
	return sdk.Errorf(sdk.CodeConnectionFailed, "there is nothing at /path/of/the/host")
}

func TestHealthTellsTenantsNoPathsOfTheHost(t *testing.T) {
	p := newProvider(t, map[string]any{"pool_size": 0})
	p.runtime = deafRuntime{p.runtime}
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, !health.Healthy)
	assert.Check(t, is.Equal(health.Reason, "the runtime runsc does not answer; the log of the broker says why"))
}

func TestAnotherRuntimeIsSaidToBeWeaker(t *testing.T) {
	p := onDocker(dockerengine.Find(t))(t, map[string]any{"docker_runtime": "runc", "pool_size": 0})
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, is.Contains(health.Details["weaker"], `the runtime "runc" is not gVisor`))
	for template, code := range map[string]string{templatePython: "print(1)", templateNode: "console.log(1)", templateBash: "echo 1"} {
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, template), Language: languageOf(template), Code: code})
		assert.NilError(t, err)
		assert.Check(t, is.Equal(got.stdout, "1\n"), got.stderr)
	}
}

func TestConfigureSaysWhatIsMissingForDocker(t *testing.T) {
	cases := map[string]struct {
		given map[string]any
		code  sdk.Code
		want  string
	}{
		"an engine that is not there":        {map[string]any{"docker_host": "unix:///nonexistent/docker.sock"}, sdk.CodeConnectionFailed, "the Docker Engine at unix:///nonexistent/docker.sock does not answer"},
		"a root file system beside an image": {map[string]any{"rootfs": "/"}, sdk.CodeInvalidConfig, "name an image"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := New(hclog.NewNullLogger()).(*Provider)
			given := map[string]any{"guest": filepath.Join(binaries.Dir(t), "sandbox-guest"), "runtime": runtimeDocker}
			for k, v := range c.given {
				given[k] = v
			}
			settings, problems := p.Describe().Schema.Resolve(given)
			assert.Assert(t, is.Len(problems, 0))
			err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "b", StateDir: t.TempDir(), Settings: settings})
			assert.ErrorIs(t, err, &sdk.Error{Code: c.code})
			assert.ErrorContains(t, err, c.want)
			health, err := p.Health(t.Context())
			assert.NilError(t, err)
			assert.Check(t, !health.Healthy)
		})
	}
}

// figures draws Chinese, Japanese and Korean without naming a font, and would warn if
// there were none.
const figures = `
import numpy, pandas, requests, matplotlib, warnings
matplotlib.use("agg")
import matplotlib.pyplot as plt
warnings.simplefilter("error")
plt.plot(pandas.Series(numpy.arange(3)))
plt.title("图表 グラフ 차트")
plt.savefig("figure.png")
print(open("figure.png", "rb").read(4))
`

// promised is what docs/runtimes.md says of a package of the root file system: how
// Python imports it, if it does, and with what its version begins on Debian 12.
type promised struct{ module, version string }

// promises reads the tables of the page, by the name of the package.
func promises(t *testing.T) map[string]promised {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/runtimes.md")
	assert.NilError(t, err)
	_, tables, found := strings.Cut(string(page), "\n### What make rootfs has\n")
	assert.Assert(t, found)
	all := map[string]promised{}
	for _, row := range regexp.MustCompile("(?m)^\\| (?:`(\\w+)`)?[^|]* \\| (`[^|]+) \\| [^|]+ \\|$").FindAllStringSubmatch(tables, -1) {
		for _, of := range regexp.MustCompile("`([a-z0-9.-]+)`(?: ([0-9.]+))?").FindAllStringSubmatch(row[2], -1) {
			all[of[1]] = promised{row[1], of[2]}
		}
	}
	return all
}

func TestThePageHasAllPackagesOfTheRootFileSystem(t *testing.T) {
	list, err := os.ReadFile("../../rootfs/packages")
	assert.NilError(t, err)
	var want []string
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			want = append(want, line)
		}
	}
	slices.Sort(want)
	all := promises(t)
	assert.DeepEqual(t, slices.Sorted(maps.Keys(all)), want)

	root := binaries.Rootfs(t)
	if release, err := os.ReadFile(filepath.Join(root, "etc/os-release")); err != nil || !strings.Contains(string(release), "VERSION_ID=\"12\"") {
		return // the page has the versions of Debian 12
	}
	status, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/status"))
	assert.NilError(t, err)
	for name, is := range all {
		installed := regexp.MustCompile(`(?m)^Package: ` + regexp.QuoteMeta(name) + `\n(?:\S.*\n| .*\n)*?Version: (?:\d+:)?(\S+)$`).FindSubmatch(status)
		assert.Assert(t, installed != nil, "%s is not installed", name)
		assert.Check(t, strings.HasPrefix(string(installed[1]), is.version), "%s is %s, and %s on the page", name, installed[1], is.version)
	}
}

// programs looks for what should not be there, tries to change what is, and uses it.
const programs = `
find / -xdev -perm /6000 -type f 2>/dev/null; ls -d /etc/shadow /root; ls -A /home; touch /usr/x /var/x /etc/x
git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m done && git log --format=%s
echo '[42]' | jq '.[]'
curl -s file:///dev/null && echo $?
`

func TestTheRootFileSystemHasWhatItPromises(t *testing.T) {
	tier.Full(t)
	// A library that cannot be loaded, for want of another, is not there.
	var libraries strings.Builder
	for _, is := range promises(t) {
		if is.module != "" {
			fmt.Fprintf(&libraries, "import %s\n", is.module)
		}
	}
	check := func(t *testing.T, p testProvider, python string) {
		t.Helper()
		got, err := execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templatePython), Language: sdk.Python, Code: python, Timeout: time.Minute})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "b'\\x89PNG'\n", got.stderr)
		assert.Equal(t, got.ExitCode, 0, got.stderr)
		got, err = execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templateNode), Language: sdk.JavaScript, Code: "console.log(typeof fetch)"})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "function\n", got.stderr)
		got, err = execute(t, p, sdk.ExecuteRequest{InstanceID: create(t, p, templateBash), Language: sdk.Bash, Code: programs})
		assert.NilError(t, err)
		assert.Equal(t, got.stdout, "user\ndone\n42\n0\n", "the workspace by another name, and programs: %s", got.stderr)
		for _, path := range []string{"/usr/x", "/var/x", "/etc/x"} {
			assert.Check(t, is.Contains(got.stderr, "cannot touch '"+path+"'"))
		}
	}
	t.Run("as a directory", func(t *testing.T) {
		p := newProvider(t, map[string]any{"rootfs": binaries.Rootfs(t)})
		check(t, p, libraries.String()+figures)
		left, err := filepath.Glob(filepath.Join(binaries.Rootfs(t), "{workspace,opt/sandbox}", "*"))
		assert.NilError(t, err)
		assert.Check(t, is.Len(left, 0), "the directory is as it was")
	})
	t.Run("as an image", func(t *testing.T) { check(t, onDocker(dockerengine.Find(t))(t, nil), figures) })
}

func TestARootFileSystemThatIsNone(t *testing.T) {
	empty := t.TempDir()
	for given, want := range map[string]string{
		"relative": "must be \"host\" or an absolute path", empty: "make one with `make rootfs`", filepath.Join(empty, "absent"): "make one with `make rootfs`",
	} {
		p := New(hclog.NewNullLogger()).(*Provider)
		settings, problems := p.Describe().Schema.Resolve(map[string]any{
			"rootfs": given, "runsc": binaries.Runsc(t), "guest": filepath.Join(binaries.Dir(t), "sandbox-guest"),
		})
		assert.Assert(t, is.Len(problems, 0))
		err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "b", StateDir: t.TempDir(), Settings: settings})
		assert.ErrorIs(t, err, &sdk.Error{Code: sdk.CodeInvalidConfig})
		assert.ErrorContains(t, err, want)
	}
	assert.NilError(t, os.MkdirAll(filepath.Join(empty, "usr"), 0o755))
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, _ := p.Describe().Schema.Resolve(map[string]any{
		"rootfs": empty, "runsc": binaries.Runsc(t), "guest": filepath.Join(binaries.Dir(t), "sandbox-guest"),
	})
	err := p.Configure(t.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "test" + newID(), StateDir: t.TempDir(), Settings: settings})
	assert.ErrorContains(t, err, "there is no python3, node or bash in "+empty)
}
