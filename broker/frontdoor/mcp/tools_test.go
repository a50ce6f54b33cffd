package mcp_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdkmcp "github.com/modelcontextprotocol/go-sdk/mcp"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/api"
	"github.com/sandbox-broker/sandbox-broker/broker/instance/instancetest"
	"github.com/sandbox-broker/sandbox-broker/broker/peer/peertest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

type arguments = map[string]any

func TestEachToolDoesItsWork(t *testing.T) {
	f := start(t)
	for name, connect := range map[string]func(string, *sdkmcp.ClientOptions) *sdkmcp.ClientSession{"in memory": f.inMemory, "over HTTP": f.overHTTP} {
		t.Run(name, func(t *testing.T) {
			session := connect(token, nil)
			s := strings.ReplaceAll(name, " ", "-")
			for _, step := range []struct {
				tool string
				with arguments
				want string // a regular expression for the whole text
			}{
				{"run_code", arguments{"language": "python", "code": "print moin"}, `exit code 0\nmoin\n`},
				{"run_code", arguments{"language": "python", "code": "fail"}, `exit code 3\nstderr:\nNameError: name 'fail' is not defined\n`},
				{"run_code", arguments{"language": "python", "code": "slow"}, `timeout, exit code 137 \(SB005 [^:]+: It ran for 1 s\.\)\n`},
				{"run_code", arguments{"language": "python", "code": "draw"}, `exit code 0\n42\nfiles below /workspace: artifacts/data.bin \(2 bytes\)\n`},
				{"run_code", arguments{"language": "python", "code": "print x", "session": s, "requirements": []string{"numpy"}}, `exit code 0\nx\n`},
				{"create_session", arguments{"session": s}, `session ` + s + `: first, python, until .*\nIt was there before; what was given now has changed nothing\.\n`},
				{"write_file", arguments{"session": s, "path": "a/b.txt", "content": "one\ntwo\n"}, `8 bytes are in /workspace/a/b.txt\n`},
				{"write_file", arguments{"session": s, "path": "a/c.bin", "content": base64.StdEncoding.EncodeToString([]byte{0xff, 0, 1}), "base64": true}, `3 bytes are in /workspace/a/c.bin\n`},
				{"read_file", arguments{"session": s, "path": "a/b.txt"}, `one\ntwo\n`},
				{"read_file", arguments{"session": s, "path": "a/b.txt", "offset": 4}, `two\n`},
				{"read_file", arguments{"session": s, "path": "a/b.txt", "limit": 5}, `one\nt\n\[bytes 0 to 5 of 8; go on with offset 5\]\n`},
				{"read_file", arguments{"session": s, "path": "a/b.txt", "offset": 8}, `\[nothing there: the file has 8 bytes\]\n`},
				{"read_file", arguments{"session": s, "path": "a/c.bin"}, `base64: /wAB\n`},
				{"list_files", arguments{"session": s, "path": "a"}, `/workspace/a/b.txt \(8 bytes\)\n/workspace/a/c.bin \(3 bytes\)\n`},
				{"list_files", arguments{"session": s, "glob": "**/*.nothing"}, `nothing found\n`},
				{"edit_file", arguments{"session": s, "path": "a/b.txt", "old": "two", "new": "three"}, `1 replaced in /workspace/a/b.txt\n`},
				{"search_files", arguments{"session": s, "pattern": "^thr"}, `/workspace/a/b.txt:2: three\n`},
				{"run_command", arguments{"session": s, "command": "cat b.txt; echo err >&2; exit 4", "cwd": "/workspace/a"}, `exit code 4\none\nthree\nstderr:\nerr\n`},
				{"run_command", arguments{"session": s, "command": "echo begun; read x < /workspace/wait", "background": true}, `c\S+ runs in the background\. command_output shows its output, stop_command stops it\.\n`},
				{"expose_port", arguments{"session": s, "port": 8000}, `http://` + regexp.QuoteMeta(f.address) + `/preview/[^/]+/\nThe link is valid until .*\. Who has it needs no token: treat it as a secret\.\n`},
				{"list_sessions", arguments{}, `(?s).*` + s + `: first, python, running, until .*\n`},
				{"end_session", arguments{"session": s}, `The session has ended\.\n`},
				{"end_session", arguments{"session": s}, `There is no session of this name\.\n`},
			} {
				result := call(t, session, step.tool, step.with)
				assert.Check(t, !result.IsError, "%s %v: %s", step.tool, step.with, textOf(result))
				assert.Check(t, is.Regexp("^"+step.want+"$", textOf(result)), "%s %v", step.tool, step.with)
				assert.Check(t, result.StructuredContent != nil, "%s %v", step.tool, step.with)
			}
		})
	}
}

func TestCommandsInTheBackground(t *testing.T) {
	f := start(t)
	session := f.overHTTP(token, nil)
	pipe := filepath.Join(f.box.root, "workspace", "go")
	started := call(t, session, "run_command", arguments{"session": "s", "command": "mkfifo go; echo begun; cat go; echo ended", "background": true})
	id := structured(t, started)["id"].(string)
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		text := textOf(call(t, session, "command_output", arguments{"session": "s", "command": id}))
		if text != id+" is running\nbegun\n" {
			return poll.Continue("%s", text)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if _, err := os.Stat(pipe); err != nil {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, os.WriteFile(pipe, []byte("went\n"), 0o600))
	text := textOf(call(t, session, "command_output", arguments{"session": "s", "command": id, "wait": 60, "stdout_offset": 6}))
	assert.Equal(t, text, "exit code 0\nwent\nended\n")

	started = call(t, session, "run_command", arguments{"session": "s", "command": "sleep 1000", "background": true})
	id = structured(t, started)["id"].(string)
	stopped := call(t, session, "stop_command", arguments{"session": "s", "command": id})
	assert.Check(t, !stopped.IsError, textOf(stopped))
	assert.Check(t, structured(t, stopped)["state"] != "running", textOf(stopped))
}

// structured is the answer for programs.
func structured(t testing.TB, result *sdkmcp.CallToolResult) map[string]any {
	t.Helper()
	got, ok := result.StructuredContent.(map[string]any)
	assert.Assert(t, ok, "%#v: %s", result.StructuredContent, textOf(result))
	return got
}

func TestFiguresAreShown(t *testing.T) {
	f := start(t)
	session := f.inMemory(token, nil)
	figures := func(result *sdkmcp.CallToolResult) (all []*sdkmcp.ImageContent) {
		for _, content := range result.Content {
			if image, ok := content.(*sdkmcp.ImageContent); ok {
				all = append(all, image)
			}
		}
		return all
	}
	drawn := call(t, session, "run_code", arguments{"language": "python", "code": "draw"})
	assert.Assert(t, is.Len(figures(drawn), 1))
	assert.DeepEqual(t, figures(drawn)[0], &sdkmcp.ImageContent{MIMEType: "image/png", Data: png})
	assert.Check(t, is.Len(structured(t, drawn)["artifacts"], 3))

	call(t, session, "write_file", arguments{"session": "s", "path": "f.png", "content": base64.StdEncoding.EncodeToString(png), "base64": true})
	read := call(t, session, "read_file", arguments{"session": "s", "path": "f.png"})
	assert.Assert(t, is.Len(figures(read), 1), textOf(read))
	assert.DeepEqual(t, figures(read)[0].Data, png)
}

func TestRefusalsSayTheCodeAndWhatToDo(t *testing.T) {
	f := start(t)
	session := f.overHTTP(token, nil)
	stranger := f.inMemory("nobody's", nil)
	umbrella := f.overHTTP(another, nil)
	call(t, session, "write_file", arguments{"session": "mine", "path": "a.txt", "content": "secret"})
	for name, test := range map[string]struct {
		session *sdkmcp.ClientSession
		tool    string
		with    arguments
		want    string
	}{
		"a language that there is not": {session, "run_code", arguments{"language": "cobol", "code": "x"}, `^SB010 invalid request: language: .*\. Correct the named field\.$`},
		"a lost interpreter":           {session, "run_code", arguments{"language": "python", "code": "crash"}, `^SB\d\d\d .*`},
		"a missing argument":           {session, "run_code", arguments{"code": "x"}, `^SB010 invalid request: .*language`},
		"an unknown argument":          {session, "run_code", arguments{"language": "python", "code": "x", "tmeout": 5}, `^SB010 invalid request: .*tmeout`},
		"an argument of another type":  {session, "run_code", arguments{"language": "python", "code": "x", "timeout": "secret"}, `^SB010 invalid request: .*timeout: type: what was given has type "string"`},
		"a session of no form":         {session, "create_session", arguments{"session": "a b"}, `^SB010 invalid request: session: `},
		"no session":                   {session, "write_file", arguments{"session": "", "path": "a", "content": "x"}, `^SB010 .*session: must not be empty`},
		"a session that is not there":  {session, "read_file", arguments{"session": "none", "path": "a"}, `^SB013 .*There is no session of this name\..* create_session`},
		"a file that is not there":     {session, "read_file", arguments{"session": "mine", "path": "none"}, `^SB013 `},
		"another tenant's session":     {umbrella, "read_file", arguments{"session": "mine", "path": "a.txt"}, `^SB013 .*There is no session of this name`},
		"a command that is not there":  {session, "command_output", arguments{"session": "mine", "command": "c-99"}, `^SB013 `},
		"a command without a name":     {session, "stop_command", arguments{"session": "mine", "command": ""}, `^SB010 .*command: `},
		"background without a session": {session, "run_command", arguments{"command": "x", "background": true}, `^SB010 .*background: needs a session`},
		"text that does not occur":     {session, "edit_file", arguments{"session": "mine", "path": "a.txt", "old": "x", "new": "y"}, `^SB010 .*old: does not occur`},
		"content that is no base64":    {session, "write_file", arguments{"session": "mine", "path": "a", "content": "!", "base64": true}, `^SB010 .*content: is no base64`},
		"an offset below 0":            {session, "read_file", arguments{"session": "mine", "path": "a.txt", "offset": -1}, `^SB010 `},
		"a port that there is not":     {session, "expose_port", arguments{"session": "mine", "port": 70000}, `^SB010 .*port: `},
		"a pattern that is none":       {session, "search_files", arguments{"session": "mine", "pattern": "("}, `^SB010 `},
		"a wrong token":                {stranger, "list_sessions", arguments{}, `^SB011 .*A valid token is needed`},
	} {
		t.Run(name, func(t *testing.T) {
			result := call(t, test.session, test.tool, test.with)
			assert.Check(t, result.IsError, textOf(result))
			assert.Check(t, is.Regexp(test.want, textOf(result)))
			told := structured(t, result)
			assert.Check(t, is.Regexp(`^`+told["code"].(string)+` `, textOf(result)))
			if test.session != stranger && test.session != nil {
				assert.Check(t, told["request_id"] != "", "%v", told)
			}
		})
	}
}

func TestSecretsOfASessionDoNotComeBack(t *testing.T) {
	f := start(t)
	session := f.overHTTP(token, nil)
	with := arguments{"session": "s", "env": arguments{"KEY": "hunter2"}}
	for _, result := range []*sdkmcp.CallToolResult{
		call(t, session, "create_session", with),
		call(t, session, "create_session", with),
		call(t, session, "list_sessions", nil),
		call(t, session, "create_session", arguments{"session": "t", "env": arguments{"KEY": "hunter2", "OTHER": []string{"hunter2"}}}),
		call(t, session, "create_session", arguments{"session": "u", "env": arguments{"KEY=": "hunter2"}}),
		call(t, session, "create_session", arguments{"session": "u", "env": "hunter2"}),
	} {
		encoded, err := json.Marshal(result)
		assert.NilError(t, err)
		assert.Check(t, !strings.Contains(string(encoded), "hunter2"), "%s", encoded)
	}
	f.box.mu.Lock()
	defer f.box.mu.Unlock()
	assert.Check(t, is.Equal(f.box.made[0].Env["KEY"], "hunter2"))
}

// maxAnswer is what hosts take, in bytes: about 25,000 tokens.
const maxAnswer = 85_000

func TestAnswersFitIntoWhatHostsTake(t *testing.T) {
	f := start(t)
	session := f.overHTTP(token, nil)
	size := func(result *sdkmcp.CallToolResult) int {
		t.Helper()
		encoded, err := json.Marshal(result.StructuredContent)
		assert.NilError(t, err)
		return len(encoded) + len(textOf(result))
	}
	flood := call(t, session, "run_code", arguments{"language": "python", "code": "flood"})
	assert.Check(t, size(flood) < maxAnswer, size(flood))
	text := textOf(flood)
	assert.Check(t, is.Contains(text, "the end\n"))
	assert.Check(t, is.Regexp(`\[\.\.\. \d+ bytes are left out here \.\.\.\]`, text))
	assert.Check(t, is.Contains(text, "read that in parts with read_file"))
	assert.Check(t, is.Equal(structured(t, flood)["truncated"], true))

	command := call(t, session, "run_command", arguments{"session": "s", "command": "yes '\"\\' | head -c 1000000; echo the end"})
	assert.Check(t, size(command) < maxAnswer, size(command))
	assert.Check(t, is.Contains(textOf(command), "the end\n"))
	assert.Check(t, is.Contains(textOf(command), "command_output"))

	assert.NilError(t, os.WriteFile(filepath.Join(f.box.root, "workspace", "big"), []byte(strings.Repeat("\x01\"ä\n", 100_000)), 0o600))
	read := call(t, session, "read_file", arguments{"session": "s", "path": "big"})
	assert.Check(t, size(read) < maxAnswer, size(read))
	assert.Check(t, is.Regexp(`go on with offset \d+\]\n$`, textOf(read)))

	for n := range 600 {
		name := filepath.Join(f.box.root, "workspace", strings.Repeat("n", 200)+string(rune('a'+n%26))+strings.Repeat("m", n/26))
		assert.NilError(t, os.WriteFile(name, []byte(strings.Repeat("match ", 200)), 0o600))
	}
	for _, result := range []*sdkmcp.CallToolResult{
		call(t, session, "list_files", arguments{"session": "s"}),
		call(t, session, "search_files", arguments{"session": "s", "pattern": "match"}),
	} {
		assert.Check(t, size(result) < maxAnswer, size(result))
		assert.Check(t, is.Contains(textOf(result), "There is more: narrow it down"))
		assert.Check(t, is.Equal(structured(t, result)["truncated"], true))
	}
}

// TestWhatIsReadInPartsIsWhole reads a file and a command's output part by part.
func TestWhatIsReadInPartsIsWhole(t *testing.T) {
	f := start(t)
	session := f.overHTTP(token, nil)
	content := strings.Repeat("0123456789ä€\n", 5_000)
	assert.NilError(t, os.WriteFile(filepath.Join(f.box.root, "workspace", "big"), []byte(content), 0o600))
	ran := call(t, session, "run_command", arguments{"session": "s", "command": "cat big"})
	for name, read := range map[string]func(offset float64) (part string, next float64, all bool){
		"a file": func(offset float64) (string, float64, bool) {
			got := structured(t, call(t, session, "read_file", arguments{"session": "s", "path": "big", "offset": offset}))
			part, _ := got["content"].(string)
			next, more := got["next_offset"].(float64)
			return part, next, !more
		},
		"output": func(offset float64) (string, float64, bool) {
			got := structured(t, call(t, session, "command_output", arguments{"session": "s", "command": structured(t, ran)["id"], "stdout_offset": offset}))
			next, _ := got["next_stdout_offset"].(float64)
			return got["stdout"].(string), next, next == got["stdout_bytes"]
		},
	} {
		t.Run(name, func(t *testing.T) {
			var whole strings.Builder
			for offset, all := 0.0, false; !all; {
				var part string
				var next float64
				part, next, all = read(offset)
				assert.Assert(t, all || next > offset, "%v %v", offset, next)
				whole.WriteString(part)
				offset = next
			}
			assert.Check(t, whole.String() == content, "%d bytes of %d", whole.Len(), len(content))
		})
	}
}

func TestACallThatIsCancelledEndsItsProgram(t *testing.T) {
	f := start(t)
	for name, connect := range map[string]func(string, *sdkmcp.ClientOptions) *sdkmcp.ClientSession{"in memory": f.inMemory, "over HTTP": f.overHTTP} {
		for tool, with := range map[string]arguments{
			"run_code":    {"language": "python", "code": "hang"},
			"run_command": {"session": "s", "command": "echo $$ > pid; exec sleep 1000"},
		} {
			t.Run(name+" "+tool, func(t *testing.T) {
				began, ended := make(chan struct{}, 1), make(chan struct{}, 1)
				onExecute := f.box.OnExecute
				f.box.OnExecute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					began <- struct{}{}
					defer func() { ended <- struct{}{} }()
					return onExecute(ctx, req, out)
				}
				defer func() { f.box.OnExecute = onExecute }()
				session := connect(token, nil)
				ctx, cancel := context.WithCancel(t.Context())
				left := make(chan error, 1)
				go func() {
					_, err := session.CallTool(ctx, &sdkmcp.CallToolParams{Name: tool, Arguments: with})
					left <- err
				}()
				if tool == "run_code" {
					<-began
					cancel()
					<-ended
				} else {
					pid := waitForFile(t, filepath.Join(f.box.root, "workspace", "pid"))
					cancel()
					poll.WaitOn(t, func(poll.LogT) poll.Result {
						if _, err := os.Stat("/proc/" + pid); err == nil {
							return poll.Continue("it runs")
						}
						return poll.Success()
					}, poll.WithTimeout(2*time.Minute))
				}
				assert.Check(t, <-left != nil)
			})
		}
	}
}

func waitForFile(t *testing.T, name string) (content string) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		text, err := os.ReadFile(name)
		if content = strings.TrimSpace(string(text)); err != nil || content == "" {
			return poll.Continue("%v", err)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
	assert.NilError(t, os.Remove(name))
	return content
}

func TestProgressOfALongRun(t *testing.T) {
	f := start(t)
	for name, connect := range map[string]func(string, *sdkmcp.ClientOptions) *sdkmcp.ClientSession{"in memory": f.inMemory, "over HTTP": f.overHTTP} {
		t.Run(name, func(t *testing.T) {
			told := make(chan *sdkmcp.ProgressNotificationParams, 100)
			session := connect(token, &sdkmcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, req *sdkmcp.ProgressNotificationClientRequest) { told <- req.Params },
			})
			params := &sdkmcp.CallToolParams{Name: "run_code", Arguments: arguments{"language": "python", "code": "hang"}}
			params.SetProgressToken("p1")
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = session.CallTool(ctx, params)
			}()
			progress := <-told
			assert.Check(t, is.Equal(progress.Message, "hanging"))
			assert.Check(t, is.Equal(progress.ProgressToken, "p1"))
			assert.Check(t, progress.Progress > 0)
			cancel()
			<-ended
		})
	}
}

func TestTwoCallsOfOneSessionRunBesideEachOther(t *testing.T) {
	f := start(t)
	session := f.overHTTP(token, nil)
	call(t, session, "create_session", arguments{"session": "s"})
	waiting := make(chan struct{}, 2)
	both := make(chan struct{})
	f.box.OnExecute = func(ctx context.Context, _ sdk.ExecuteRequest, _ sdk.Output) (sdk.ExecuteResult, error) {
		waiting <- struct{}{}
		select {
		case <-both:
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		case <-ctx.Done():
			return sdk.ExecuteResult{}, ctx.Err()
		}
	}
	results := make(chan *sdkmcp.CallToolResult, 2)
	for range 2 {
		go func() {
			result, err := session.CallTool(t.Context(), &sdkmcp.CallToolParams{Name: "run_code", Arguments: arguments{"language": "python", "code": "x", "session": "s"}})
			assert.Check(t, err)
			results <- result
		}()
	}
	<-waiting
	<-waiting
	close(both)
	for range 2 {
		result := <-results
		assert.Check(t, result != nil && !result.IsError)
	}
}

func TestWhatTheDoorCausesSaysSo(t *testing.T) {
	f := start(t, func(o *api.Options, _ *box) {
		settings := o.FrontDoors["mcp"]
		settings.Address = "sandboxes.example.com/b"
		o.FrontDoors["mcp"] = settings
	})
	session := f.overHTTP(token, nil)
	created := structured(t, call(t, session, "create_session", arguments{"session": "s"}))
	assert.Check(t, is.Equal(created["front_door"], "mcp"))
	call(t, session, "run_code", arguments{"language": "python", "code": "print x"})
	f.box.mu.Lock()
	assert.Assert(t, is.Len(f.box.created, 2))
	for _, from := range f.box.created {
		assert.Check(t, is.Equal(from.FrontDoor, "mcp"))
		assert.Check(t, is.Equal(from.Tenant, "acme"))
		assert.Check(t, is.Regexp(`^127\.0\.0\.1:\d+$`, from.Remote))
		assert.Check(t, from.RequestID != "")
	}
	f.box.mu.Unlock()
	link := structured(t, call(t, session, "expose_port", arguments{"session": "s", "port": 80}))
	assert.Check(t, is.Regexp(`^http://sandboxes\.example\.com/b/preview/`, link["url"].(string)))
	assert.Check(t, is.Equal(structured(t, call(t, f.inMemory(token, nil), "create_session", arguments{"session": "r"}))["front_door"], nil))
}

func TestNamesAndTextsOfToolsAreShort(t *testing.T) {
	f := start(t)
	list, err := f.inMemory(token, nil).ListTools(t.Context(), nil)
	assert.NilError(t, err)
	assert.Check(t, is.Len(list.Tools, 13))
	encoded, err := json.Marshal(list)
	assert.NilError(t, err)
	assert.Check(t, len(encoded) < 12_000, "a model reads it in each turn: %d bytes", len(encoded))
	for _, tool := range list.Tools {
		// Hosts put the name of the server, and more, before it and cut at 60.
		assert.Check(t, len("mcp__sandbox-broker__"+tool.Name) <= 60, tool.Name)
		assert.Check(t, is.Regexp(`^[a-z_]{1,64}$`, tool.Name))
		assert.Check(t, len(tool.Description) <= 200, tool.Name)
		assert.Check(t, tool.Annotations.DestructiveHint != nil && tool.Annotations.OpenWorldHint != nil, tool.Name)
		assert.Check(t, !tool.Annotations.ReadOnlyHint || !*tool.Annotations.DestructiveHint, tool.Name)
	}
}

func TestASessionOfAnotherBroker(t *testing.T) {
	var opened api.Options
	f := start(t, func(o *api.Options, _ *box) { opened = *o })
	call(t, f.overHTTP(token, nil), "create_session", arguments{"session": "s"})
	opened.PreviewKey = nil // each broker has its own
	f.address = peertest.Beside(t, peertest.Owner{Server: f.server, Service: f.service}, opened, instancetest.Catalog{&instancetest.Provider{Name: "first"}}).Address
	session := f.overHTTP(token, nil)
	for _, step := range []struct {
		tool string
		with arguments
		want string
	}{
		{"run_code", arguments{"language": "python", "code": "print moin", "session": "s"}, "exit code 0\nmoin\n"},
		{"write_file", arguments{"session": "s", "path": "a.txt", "content": "one\n"}, "4 bytes are in /workspace/a.txt\n"},
		{"read_file", arguments{"session": "s", "path": "a.txt"}, "one\n"},
		{"run_command", arguments{"session": "s", "command": "cat a.txt", "cwd": "/workspace"}, "exit code 0\none\n"},
		{"end_session", arguments{"session": "s"}, "The session has ended.\n"},
	} {
		result := call(t, session, step.tool, step.with)
		assert.Check(t, !result.IsError, "%s: %s", step.tool, textOf(result))
		assert.Check(t, is.Equal(textOf(result), step.want), "%s", step.tool)
	}
	assert.Equal(t, len(f.box.Live()), 0)
	f.box.mu.Lock()
	defer f.box.mu.Unlock()
	assert.Equal(t, f.box.created[0].FrontDoor, "mcp")
}
