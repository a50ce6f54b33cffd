package provider

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/smallroot"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// contextOf writes a context, and returns the path of its Dockerfile.
func contextOf(t *testing.T, text string, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, content := range files {
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(dir, path), []byte(content), 0o644))
	}
	path := filepath.Join(dir, "Dockerfile")
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// buildDockerfile builds one, and returns the steps that it has told of.
func buildDockerfile(t *testing.T, p testProvider, req sdk.BuildTemplateRequest) (sdk.BuiltTemplate, []string, error) {
	t.Helper()
	req.Name = "data"
	var steps []string
	built, err := p.BuildTemplate(t.Context(), req, func(s sdk.TemplateProgress) error {
		steps = append(steps, s.Step)
		return nil
	})
	return built, steps, err
}

func TestADockerfileIsBuilt(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, nil)
	image := smallroot.Image(t, smallroot.Shell(t, "mkdir", "rm", "id", "chown", "chmod", "ls"), "FROM_IMAGE=image")
	path := contextOf(t, `ARG BASE
FROM $BASE AS tools
RUN echo from-a-stage > /tool && mkdir /left-behind

FROM ${BASE}
ARG WHO=nobody
ENV GREETING="hello $WHO" PATH=/usr/bin:/bin
LABEL a=b
WORKDIR /app
COPY . .
COPY --from=tools /tool /opt/tool
RUN echo "$GREETING $FROM_IMAGE" > made && ls > listed && id > /who && chown 5:6 made && rm -r /srv && mkdir /srv && echo new > /srv/new
RUN ["/bin/sh", "-c", "rm gone/a gone/c gone/d /etc/hosts; echo again >> listed"]
SHELL ["/bin/bash", "-c"]
RUN <<EOF
[[ -e /app/listed ]] && echo bash > /shell
chmod 4755 /shell
EOF
CMD ["sleep", "1"]
`, map[string]string{"kept": "kept", "gone/a": "a", "gone/b": "b", "gone/c": "c", "gone/d": "d", "secret.key": "no", ".dockerignore": "*.key\nDockerfile\n"})
	args := map[string]string{"BASE": image, "WHO": "world"}
	built, steps, err := buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path, BuildArgs: args})
	assert.NilError(t, err, "%s", strings.Join(steps, "\n"))
	t.Log(strings.Join(steps, "\n"))
	id := createOf(t, p, built.Image)
	for code, want := range map[string]string{
		"cat /app/made":                    "hello world image\n",
		"cat /app/listed":                  "gone\nkept\nlisted\nmade\nagain\n",
		"cat /who":                         "uid=0(root)",
		"cat /opt/tool":                    "from-a-stage\n",
		"ls /srv /app/gone":                "/app/gone:\nb\n\n/srv:\nnew\n",
		"cat /shell; ls -l /shell":         "bash\n-r-xr-xr-x",
		"ls -d /left-behind; ls -a /app":   ".\n..\n.dockerignore\ngone\nkept\nlisted\nmade\n",
		"echo $GREETING; id -un; pwd":      "hello world\n",
		"echo x > /app/made || echo never": "never\n",
	} {
		got := run(t, p, id, sdk.Bash, code)
		assert.Check(t, is.Contains(got.stdout, want), "%s: %s", code, got.stderr)
	}
}

func TestARebuildRunsWhatHasChanged(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, nil)
	image := smallroot.Image(t, smallroot.Shell(t))
	const text = "FROM %s\nRUN echo first > /first\nCOPY copied /copied\nRUN echo second > /second\n"
	path := contextOf(t, strings.ReplaceAll(text, "%s", image), map[string]string{"copied": "1", "other": "1"})
	ran := func(source string) (lines []string, built sdk.BuiltTemplate, err error) {
		built, steps, err := buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path, Source: source})
		for _, step := range steps {
			if number, is := strings.CutPrefix(step, "line "); is && !strings.HasSuffix(step, "here already") {
				lines = append(lines, number[:1])
			}
		}
		return lines, built, err
	}
	change := func(path, text string) {
		t.Helper()
		assert.NilError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	lines, first, err := ran("")
	assert.NilError(t, err)
	assert.DeepEqual(t, lines, []string{"2", "3", "4"})

	// The same, and what is not copied.
	change(filepath.Join(filepath.Dir(path), "other"), "2")
	lines, again, err := ran("")
	assert.NilError(t, err)
	assert.Check(t, is.Len(lines, 0))
	assert.Check(t, is.Equal(again.Image, first.Image))

	change(filepath.Join(filepath.Dir(path), "copied"), "2")
	lines, changed, err := ran("")
	assert.NilError(t, err)
	assert.DeepEqual(t, lines, []string{"3", "4"})
	assert.Check(t, changed.Source != first.Source && changed.Image != first.Image)

	// What is pinned is what it was, or is refused.
	lines, pinned, err := ran(first.Source)
	assert.NilError(t, err)
	assert.Check(t, is.Len(lines, 0))
	assert.Check(t, is.Equal(pinned.Image, first.Image))
	_, _, err = buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path, Source: first.Source, MemoryMB: 300})
	assert.ErrorContains(t, err, "build it anew")

	// What was run before a failure is not run again.
	broken := strings.ReplaceAll(text, "%s", image) + "RUN echo third > /third\nRUN echo words before the end; exit 3\n"
	change(path, broken)
	lines, _, err = ran("")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeInvalidRequest)
	assert.ErrorContains(t, err, "line 6: the command ended with the exit code 3; it said last: words before the end")
	assert.DeepEqual(t, lines, []string{"5", "6", "6"})
	p.templates.collect()
	p.templates.background.Wait()
	change(path, strings.ReplaceAll(broken, "exit 3", "exit 0"))
	lines, _, err = ran("")
	assert.NilError(t, err)
	assert.DeepEqual(t, lines, []string{"6", "6"})
}

// TestARunIsBounded has hostile commands, none of which may take more than there is for it, or
// leave anything; nothingLeft looks for what is on the machine.
func TestARunIsBounded(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, nil)
	p.builds = buildBounds{time: 4 * time.Second, memoryMB: 200, workspaceMB: 64, diskMB: 64, pid: 64}
	image := smallroot.Image(t, smallroot.Shell(t, "dd", "mkfifo", "mknod", "truncate", "rm", "chmod", "ls", "mount", "cp"))
	for name, test := range map[string]struct {
		run, says string
	}{
		"it never ends":            {"sleep 600", "did not end within 4s"},
		"it ignores its end":       {"trap '' TERM INT HUP; while :; do sleep 1; done", "did not end within 4s"},
		"it prints for ever":       {"while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done", "did not end within 4s; it said last: yyyy"},
		"a line without an end":    {"cat /dev/zero", "did not end within 4s"},
		"it fills the disk":        {"dd if=/dev/zero of=/a bs=1M count=50 && dd if=/dev/zero of=/b bs=1M count=50", "exit code"},
		"a file of nothing":        {"truncate -s 10G /a", "exit code"},
		"many files of nothing":    {"for i in 1 2 3 4 5 6 7 8 9; do truncate -s 45M /$i; done; echo done", "more than"},
		"memory":                   {"a=$(dd if=/dev/zero bs=1M count=400 | while read -r -N 1000000 x; do echo $x; done); b=xxxxxxxxxxxxxxxx; while :; do b=$b$b; done", ""},
		"processes without end":    {"f() { f | f & }; f; sleep 3; while :; do :; done", ""},
		"it kills all that it can": {"kill -9 -1; kill -9 1; sleep 600", ""},
		"a device":                 {"mknod /sda b 8 0", "exit code"},
		"a mount":                  {"mount -t tmpfs none /srv", "exit code"},
		"the guest":                {"echo x > /opt/sandbox/guest", "exit code"},
		"no program":               {"", "there is no program"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "FROM " + image + "\nRUN " + test.run + "\n"
			if test.run == "" {
				text = "FROM " + image + "\nRUN [\"no-such-program\"]\n"
			}
			_, steps, err := buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: contextOf(t, text, nil)})
			assert.Assert(t, err != nil)
			assert.Check(t, is.Equal(sdk.CodeOf(err), sdk.CodeInvalidRequest), "%v", err)
			assert.ErrorContains(t, err, "line 2")
			assert.ErrorContains(t, err, test.says)
			assert.Check(t, len(steps) < 100, "%d steps", len(steps))
			assert.Check(t, len(err.Error()) < 1000)
		})
	}
}

func TestWhatARunLeavesIsWhatASandboxMayHave(t *testing.T) {
	p := newProvider(t, nil)
	image := smallroot.Image(t, smallroot.Shell(t, "mkfifo", "chmod", "chown", "ls", "ln", "rm", "mkdir"))
	path := contextOf(t, strings.ReplaceAll(`FROM %s
RUN sleep 600 & echo $! > /left; echo kept > /kept; rm /srv/greeting
RUN mkfifo /pipe; echo x > /root-alone; chmod 600 /root-alone; echo x > /setuid; chmod 6755 /setuid; echo other > /others; chown 5 /others; chmod 600 /others
RUN echo x > /.wh.kept; ln -s /proc/1/root/etc/shadow /link; mkdir /deep; ln /kept /deep/hard; echo hidden > /tmp/hidden; echo hidden > /workspace/hidden
RUN grep Cap /proc/self/status > /capabilities || while read -r line; do echo "$line"; done < /proc/self/status > /capabilities
`, "%s", image), nil)
	built, _, err := buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.NilError(t, err)
	id := createOf(t, p, built.Image)
	for code, want := range map[string]string{
		"ls /pipe":                         "",
		"cat /root-alone":                  "",
		"ls -l /setuid":                    "-r-xr-xr-x",
		"cat /others":                      "other\n",
		"cat /kept /deep/hard":             "kept\nkept\n",
		"cat /link":                        "",
		"ls /tmp/hidden /workspace/hidden": "",
		"cat /srv/greeting":                "",
		"while read -r n v; do [[ $n = CapEff: ]] && echo $v; done < /capabilities": "00000000000404fb\n",
	} {
		got := run(t, p, id, sdk.Bash, code)
		if want == "" {
			assert.Check(t, is.Equal(got.stdout, ""), code)
			continue
		}
		assert.Check(t, is.Contains(got.stdout, want), "%s: %s", code, got.stderr)
	}
	// The layers below are what they were.
	path = contextOf(t, "FROM "+image+"\n", nil)
	built, _, err = buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.NilError(t, err)
	got := run(t, p, createOf(t, p, built.Image), sdk.Bash, "cat /srv/greeting; ls /kept")
	assert.Check(t, is.Equal(got.stdout, smallroot.Greeting))
}

func TestARunReachesWhatItsTemplateNames(t *testing.T) {
	p := newProvider(t, nil)
	number := server(t)
	port := strconv.Itoa(number)
	image := smallroot.Image(t, smallroot.Shell(t))
	text := strings.NewReplacer("IMAGE", image, "PORT", port).Replace(`FROM IMAGE
SHELL ["/bin/bash", "-c"]
RUN --network=none [ -z "$HTTP_PROXY" ] && echo none > /none
RUN <<EOF
proxy=${HTTP_PROXY#http://}; proxy=${proxy%/}
ask() {
  exec 3<>/dev/tcp/${proxy%:*}/${proxy#*:}
  printf "GET http://127.0.0.1:PORT$1 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n\r\n" >&3
  cat <&3
}
ask /a/b > /fetched; ask /c > /refused
echo > /dev/tcp/127.0.0.1/PORT && echo direct > /direct
echo done
EOF
`)
	policy := &sdk.NetworkPolicy{Rules: []sdk.NetworkRule{{Host: "127.0.0.1", Ports: []int{number}, Private: true, Paths: []string{"/a/*"}}}}
	built, steps, err := buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: contextOf(t, text, nil), Network: policy})
	assert.NilError(t, err, "%s", strings.Join(steps, "\n"))
	got := run(t, p, createOf(t, p, built.Image), sdk.Bash, "cat /none /fetched /refused; cat /direct; echo > /dev/tcp/127.0.0.1/"+port+" && echo instance")
	assert.Check(t, is.Contains(got.stdout, "none\n"))
	assert.Check(t, is.Contains(got.stdout, "GET /a/b"))
	assert.Check(t, is.Contains(got.stdout, "403 Forbidden"))
	assert.Check(t, !strings.Contains(got.stdout, "direct") && !strings.Contains(got.stdout, "instance"), got.stdout)

	// What it did is told.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	verdicts := map[sdk.NetworkVerdict]int{}
	err = p.FollowNetwork(ctx, func(r sdk.NetworkReport) error {
		for _, c := range r.Connections {
			verdicts[c.Verdict]++
		}
		if verdicts[sdk.NetworkAllowed]+verdicts[sdk.NetworkRefused] == 2 {
			cancel()
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.DeepEqual(t, verdicts, map[sdk.NetworkVerdict]int{sdk.NetworkAllowed: 1, sdk.NetworkRefused: 1})

	// Without one it reaches nothing.
	path := contextOf(t, "FROM "+image+"\nSHELL [\"/bin/bash\", \"-c\"]\nRUN echo > /dev/tcp/127.0.0.1/"+port+"\n", nil)
	_, _, err = buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.ErrorContains(t, err, "line 3: the command ended with the exit code 1; it said last: ")
	assert.ErrorContains(t, err, "refused")
}

// TestLargeFilesOfARun has files that are more than the memory together, and one that is more
// than gVisor can say.
func TestLargeFilesOfARun(t *testing.T) {
	tier.Full(t)
	p := newProvider(t, nil)
	p.builds = buildBounds{time: time.Minute, memoryMB: 280, workspaceMB: 64, diskMB: 400, pid: 64}
	image := smallroot.Image(t, smallroot.Shell(t, "dd"))
	path := contextOf(t, "FROM "+image+"\nRUN for i in 1 2 3 4; do dd if=/dev/zero of=/$i bs=1M count=65; done\n", nil)
	built, _, err := buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.NilError(t, err)
	assert.Check(t, built.Bytes > 260<<20, "%d", built.Bytes)
	path = contextOf(t, "FROM "+image+"\nRUN dd if=/dev/zero of=/a bs=1M count=75\n", nil)
	_, _, err = buildDockerfile(t, p, sdk.BuildTemplateRequest{Dockerfile: path})
	assert.ErrorContains(t, err, "line 2: the command ended with the exit code ")
}

func TestABuildThatNobodyWantsEnds(t *testing.T) {
	p := newProvider(t, nil)
	image := smallroot.Image(t, smallroot.Shell(t))
	path := contextOf(t, "FROM "+image+"\nRUN echo it-has-begun; sleep 600\n", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := false
	_, err := p.BuildTemplate(ctx, sdk.BuildTemplateRequest{Name: "data", Dockerfile: path}, func(s sdk.TemplateProgress) error {
		if strings.Contains(s.Step, "| it-has-begun") {
			began = true
			cancel()
		}
		return nil
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Assert(t, began)
}
