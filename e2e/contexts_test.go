package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// workbench is an instance over REST.
type workbench struct {
	t *testing.T
	b *harness.Broker
	// path of the instance.
	path string
}

func newWorkbench(t *testing.T, b *harness.Broker, request map[string]any) workbench {
	t.Helper()
	var made struct{ ID string }
	answer := b.Do(http.MethodPost, "/api/v1/instances", harness.Token, request)
	assert.Equal(t, answer.Status, http.StatusCreated, "%s", answer.Body)
	answer.Into(t, &made)
	destroyAfter(t, b, made.ID)
	return workbench{t, b, "/api/v1/instances/" + made.ID}
}

func (w workbench) do(method, path string, body any) harness.Answer {
	return w.b.Do(method, w.path+path, harness.Token, body)
}

func (w workbench) newContext(request map[string]any) string {
	w.t.Helper()
	var made struct{ ID string }
	answer := w.do(http.MethodPost, "/contexts", request)
	assert.Equal(w.t, answer.Status, http.StatusCreated, "%s", answer.Body)
	answer.Into(w.t, &made)
	return made.ID
}

type artifact struct {
	Kind     string  `json:"kind"`
	Name     string  `json:"name"`
	MIMEType string  `json:"mime_type"`
	Group    int     `json:"group"`
	Size     int64   `json:"size"`
	Text     *string `json:"text"`
	Base64   []byte  `json:"base64"`
	Refused  string  `json:"refused"`
}

type executed struct {
	harness.Execution
	Detail    string     `json:"detail"`
	Artifacts []artifact `json:"artifacts"`
}

func (w workbench) execute(request map[string]any) executed {
	w.t.Helper()
	answer := w.do(http.MethodPost, "/execute", request)
	assert.Equal(w.t, answer.Status, http.StatusOK, "%s", answer.Body)
	var e executed
	answer.Into(w.t, &e)
	return e
}

// shown is the artifacts in brief.
func (e executed) shown() []string {
	var list []string
	for _, a := range e.Artifacts {
		content := "base64 " + string(a.Base64[:min(len(a.Base64), 4)])
		if a.Text != nil {
			content = *a.Text
		}
		if a.Refused != "" {
			content = "refused: " + a.Refused
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%d %s %s %s: %s", a.Group, a.Kind, a.Name, a.MIMEType, content)))
	}
	return list
}

func TestContextsOverREST(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testContextsOverREST)
}

func testContextsOverREST(t *testing.T, b *harness.Broker) {
	t.Run("the default context", func(t *testing.T) { testDefaultContext(t, b) })
	w := newWorkbench(t, b, map[string]any{"language": "python", "env": map[string]string{"WHO": "instance"}})
	python := w.newContext(map[string]any{"language": "py", "env": map[string]string{"MODE": "context"}})
	node := w.newContext(map[string]any{"language": "node"})
	inPython := func(code string) executed {
		t.Helper()
		return w.execute(map[string]any{"context_id": python, "code": code})
	}
	assert.DeepEqual(t, inPython("import os\nx = 20\nos.environ['WHO'] + os.environ['MODE']").shown(), []string{"1 result  text/plain: 'instancecontext'"})
	assert.DeepEqual(t, inPython("{'n': x + 1}").shown(), []string{"1 result  text/plain: {'n': 21}", `1 result  application/json: {"n": 21}`})
	e := w.execute(map[string]any{"context_id": node, "language": "js", "code": "const x = 3; console.log('hi'); ({x})"})
	assert.Equal(t, e.Stdout, "hi\n")
	assert.DeepEqual(t, e.shown(), []string{"1 result  text/plain: { x: 3 }", `1 result  application/json: {"x":3}`})
	e = w.execute(map[string]any{"context_id": python, "code": "def main(y): return x + y", "arguments": map[string]any{"y": 22}})
	assert.Equal(t, string(e.Result), "42")

	e = inPython("import os; os._exit(3)")
	assert.Equal(t, e.Status, "failed")
	assert.Equal(t, e.Detail, "the interpreter of the context ended with exit code 3; the context starts afresh, without its state")
	assert.DeepEqual(t, inPython("'x' in globals()").shown(), []string{"1 result  text/plain: False"})
	e = w.execute(map[string]any{"context_id": node, "code": "x"})
	assert.DeepEqual(t, e.shown(), []string{"1 result  text/plain: 3"}) // a crash touches no other context

	var list struct {
		Contexts []struct {
			ID, Language, Cwd string
			Busy              bool
		}
	}
	w.do(http.MethodGet, "/contexts", nil).Into(t, &list)
	assert.Assert(t, is.Len(list.Contexts, 2))
	assert.Equal(t, list.Contexts[1].Language, "javascript")
	assert.Equal(t, list.Contexts[0].Cwd, "/workspace")
	assert.Equal(t, w.do(http.MethodGet, "/contexts/"+node, nil).Status, http.StatusOK)
	assert.Equal(t, w.do(http.MethodPost, "/contexts/"+node+"/restart", nil).Status, http.StatusNoContent)
	e = w.execute(map[string]any{"context_id": node, "code": "typeof x"})
	assert.DeepEqual(t, e.shown(), []string{"1 result  text/plain: 'undefined'"})
	assert.Equal(t, w.do(http.MethodDelete, "/contexts/"+node, nil).Status, http.StatusNoContent)

	for _, refused := range []harness.Answer{
		w.do(http.MethodDelete, "/contexts/"+node, nil),
		w.do(http.MethodGet, "/contexts/"+node, nil),
		w.do(http.MethodPost, "/contexts/"+node+"/restart", nil),
		w.do(http.MethodPost, "/execute", map[string]any{"context_id": node, "code": "1"}),
		w.b.Do(http.MethodPost, w.path+"/execute", harness.OtherToken, map[string]any{"context_id": python, "code": "1"}),
		w.b.Do(http.MethodGet, w.path+"/contexts", harness.OtherToken, nil),
	} {
		harness.Refused(t, refused, http.StatusNotFound, "SB013")
	}
	for field, answer := range map[string]harness.Answer{
		"language": w.do(http.MethodPost, "/contexts", map[string]any{"language": "ruby"}),
		"cwd":      w.do(http.MethodPost, "/contexts", map[string]any{"language": "python", "cwd": "none"}),
	} {
		p := harness.Refused(t, answer, http.StatusUnprocessableEntity, "SB010")
		assert.Check(t, is.Equal(p.Field, field))
	}
	p := harness.Refused(t, w.do(http.MethodPost, "/execute", map[string]any{"context_id": python, "language": "js", "code": "1"}), http.StatusUnprocessableEntity, "SB010")
	assert.Check(t, is.Equal(p.Field, "language"))
	p = harness.Refused(t, w.do(http.MethodPost, "/execute", map[string]any{"code": "1"}), http.StatusUnprocessableEntity, "SB010")
	assert.Check(t, is.Equal(p.Field, "language"))
	assert.DeepEqual(t, inPython("'still'").shown(), []string{"1 result  text/plain: 'still'"})
}

// testDefaultContext is part of testContextsOverREST, whose broker it uses.
func testDefaultContext(t *testing.T, b *harness.Broker) {
	w := newWorkbench(t, b, map[string]any{"language": "python"})
	run := func(language, code string) executed {
		t.Helper()
		return w.execute(map[string]any{"language": language, "context": "default", "code": code})
	}
	run("python", "x = 20")
	run("bash", "cd /tmp; y=1")
	assert.Equal(t, run("python", "print(x + 1)").Stdout, "21\n")
	assert.Equal(t, run("bash", "echo $y $PWD").Stdout, "1 /tmp\n")
	var list struct {
		Contexts []struct{ ID, Language string }
	}
	w.do(http.MethodGet, "/contexts", nil).Into(t, &list)
	assert.Equal(t, len(list.Contexts), 2)
	for _, made := range list.Contexts {
		assert.Equal(t, w.do(http.MethodDelete, "/contexts/"+made.ID, nil).Status, http.StatusNoContent)
	}
	assert.Equal(t, run("python", "print('x' in globals())").Stdout, "False\n", "a new one is made")
	for _, wrong := range []map[string]any{
		{"language": "python", "code": "1", "context": "other"},
		{"code": "1", "context": "default"},
		{"language": "python", "code": "1", "context": "default", "context_id": "python-1"},
	} {
		harness.Refused(t, w.do(http.MethodPost, "/execute", wrong), http.StatusUnprocessableEntity, "SB010")
	}
}

func TestTheLimitsOfArtifactsAreTheOperators(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := harness.Start(t, harness.Options{Config: harness.Tenants + fmt.Sprintf(
		"limits {\n  artifact_count = 3\n  artifact_bytes = 5242880\n  artifact_total = 9437184\n}\nprovider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n}\n", binaries.Runsc(t),
	)})
	w := newWorkbench(t, b, map[string]any{"language": "bash"})
	e := w.execute(map[string]any{"language": "bash", "code": "for i in 1 2 3 4; do head -c 5000000 /dev/zero > artifacts/$i.bin; done; truncate -s 5242881 artifacts/1.bin"})
	var refused []string
	for _, a := range e.Artifacts {
		refused = append(refused, a.Refused)
	}
	assert.DeepEqual(t, refused, []string{"is larger than 5242880 bytes", "", "more than 9437184 bytes with the artifacts before it", "more than 3 artifacts: the rest is left out"})
	p := harness.Refused(t, w.do(http.MethodPost, "/execute", map[string]any{
		"language": "bash", "code": "1", "artifacts": map[string]any{"files": []string{"1", "2", "3", "4"}},
	}), http.StatusUnprocessableEntity, "SB010")
	assert.Equal(t, p.Field, "artifacts.files")
}

// Code writes below artifacts/ without making it, whoever runs it and whatever was before.
func TestTheDirectoryOfArtifactsIsThereBeforeTheCode(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testDirectoryOfArtifacts)
}

func testDirectoryOfArtifacts(t *testing.T, b *harness.Broker) {
	w := newWorkbench(t, b, map[string]any{"language": "python"})
	in := map[string]string{}
	for _, language := range []string{"python", "javascript", "bash"} {
		in[language] = w.newContext(map[string]any{"language": language})
	}
	run := func(language, context, code string) executed {
		t.Helper()
		request := map[string]any{"language": language, "code": code}
		if context != "" {
			request["context_id"] = context
		}
		e := w.execute(request)
		assert.Equal(t, e.Stderr, "", "%s", code)
		return e
	}
	for language, write := range map[string]string{
		"python":     "import os\nassert os.stat('artifacts').st_uid == os.getuid() and os.listdir('artifacts') == []\nos.makedirs('artifacts', exist_ok=True)\nwith open('artifacts/x.txt', 'w') as f: _ = f.write('drawn')",
		"javascript": "require('fs').writeFileSync('artifacts/x.txt', 'drawn');",
		"bash":       "[ -O artifacts ] && printf drawn > artifacts/x.txt",
	} {
		for _, context := range []string{"", in[language]} {
			run("bash", "", "rm -rf artifacts")
			assert.DeepEqual(t, run("bash", in["bash"], ":").shown(), []string(nil))
			assert.DeepEqual(t, run(language, context, write).shown(), []string{"1 file artifacts/x.txt text/plain: drawn"})
		}
	}
	run("bash", "", "rm -r artifacts; printf kept > artifacts")
	assert.Equal(t, run("bash", "", "cat artifacts").Stdout, "kept")
	run("bash", "", "rm artifacts; ln -s /tmp/elsewhere artifacts")
	assert.Equal(t, run("bash", "", "readlink artifacts; ls -A /tmp").Stdout, "/tmp/elsewhere\n")
}

func TestArtifactsOverREST(t *testing.T) {
	t.Parallel()
	onBothRuntimes(t, testArtifactsOverREST)
}

func testArtifactsOverREST(t *testing.T, b *harness.Broker) {
	w := newWorkbench(t, b, map[string]any{"language": "python"})
	e := w.execute(map[string]any{"language": "bash", "code": "mkdir out; echo a,b > artifacts/t.csv; printf '\\x89PNG' > out/p.png; echo 1 > out/x.csv; echo 2 > out/y.csv; ln -s /etc/passwd artifacts/link"})
	assert.DeepEqual(t, e.shown(), []string{"1 file artifacts/t.csv text/csv: a,b"})
	e = w.execute(map[string]any{"language": "bash", "code": "echo c > artifacts/new.txt", "artifacts": map[string]any{
		"files": []string{"out/*.csv", "out/p.png", "artifacts/link", "../etc/passwd", "missing"},
	}})
	assert.DeepEqual(t, e.shown(), []string{
		"1 file out/x.csv text/csv: 1", "2 file out/y.csv text/csv: 2", "3 file out/p.png image/png: base64 \x89PNG",
		"4 file artifacts/link : refused: is a symbolic link, or behind one, which is not followed",
		"5 file ../etc/passwd : refused: is outside of /workspace", "6 file missing : refused: does not exist",
		"7 file artifacts/new.txt text/plain: c",
	})
	e = w.execute(map[string]any{"language": "python", "code": "class T:\n  def _repr_html_(self): return '<b>t</b>'\n  def __repr__(self): return 't'\nprint('out')\ndisplay(T(), [1])"})
	assert.Equal(t, e.Stdout, "out\n")
	assert.DeepEqual(t, e.shown(), []string{
		"1 display  text/plain: t", "1 display  text/html: <b>t</b>", "2 display  text/plain: [1]", "2 display  application/json: [1]",
	})
	e = w.execute(map[string]any{"language": "js", "code": "display({a: 1}); display({'text/html': '<i>'}, {raw: true})"})
	assert.DeepEqual(t, e.shown(), []string{"1 display  text/plain: { a: 1 }", `1 display  application/json: {"a":1}`, "2 display  text/html: <i>"})

	e = w.execute(map[string]any{"language": "bash", "code": "for i in $(seq -w 30); do echo $i > artifacts/$i.txt; done; head -c 5000000 /dev/zero > artifacts/000.bin"})
	shown := e.shown()
	assert.Equal(t, len(shown), 21)
	assert.Equal(t, shown[0], "1 file artifacts/000.bin application/octet-stream: refused: is larger than 4194304 bytes")
	assert.Equal(t, e.Artifacts[0].Size, int64(5_000_000))
	assert.Equal(t, shown[20], "21 file  : refused: more than 20 artifacts: the rest is left out")
	e = w.execute(map[string]any{"language": "bash", "code": "rm -r artifacts; mkdir artifacts; for i in 1 2 3 4 5; do head -c 4000000 /dev/zero > artifacts/$i.bin; done"})
	assert.Equal(t, len(e.Artifacts), 5)
	assert.Equal(t, len(e.Artifacts[3].Base64), 4_000_000)
	assert.Equal(t, e.Artifacts[4].Refused, "more than 16777216 bytes with the artifacts before it")

	// The same comes as events.
	s, err := b.Stream(t.Context(), strings.TrimPrefix(w.path, b.URL)+"/execute", map[string]any{
		"language": "python", "code": "print(1)\ndisplay('shown')", "artifacts": map[string]any{"files": []string{"out/x.csv"}},
	})
	assert.NilError(t, err)
	defer s.Close()
	var events []artifact
	for name := ""; name != "done"; {
		var data []byte
		name, data, err = s.Next()
		assert.NilError(t, err)
		if name == "artifact" {
			var a artifact
			assert.NilError(t, json.Unmarshal(data, &a))
			events = append(events, a)
		}
		assert.Check(t, name != "done" || !strings.Contains(string(data), "artifacts"), "%s", data)
	}
	assert.DeepEqual(t, executed{Artifacts: events}.shown(), []string{"1 display  text/plain: 'shown'", "2 file out/x.csv text/csv: 1"})
	assert.Equal(t, string(s.Stdout), "1\n")
}

// A provider without a capability is not even asked.
func TestAProviderWithoutContextsRefusesThem(t *testing.T) {
	t.Parallel()
	b := mock.Broker(t)
	w := newWorkbench(t, b, map[string]any{"language": "python"})
	for _, answer := range []harness.Answer{
		w.do(http.MethodPost, "/contexts", map[string]any{"language": "python"}),
		w.do(http.MethodGet, "/contexts", nil),
		w.do(http.MethodPost, "/execute", map[string]any{"context_id": "c", "code": "1"}),
		w.do(http.MethodPost, "/execute", map[string]any{"language": "python", "code": "1", "artifacts": map[string]any{"files": []string{"a"}}}),
		b.Do(http.MethodPost, "/api/v1/execute", harness.Token, map[string]any{"language": "python", "code": "1", "artifacts": map[string]any{"files": []string{"a"}}}),
	} {
		harness.Refused(t, answer, http.StatusNotImplemented, "SB015")
	}
}
