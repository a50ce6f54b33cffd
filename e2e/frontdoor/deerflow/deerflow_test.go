// Package deerflow_test has a client that calls as DeerFlow's own does use sandboxes through
// the front door.
package deerflow_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
)

func TestMain(m *testing.M) { frontdoor.Main(m) }

const door = "front_door \"deerflow\" {\n  wait = \"60s\"\n}\n"

// client runs a scenario of the client as the tenant of a token.
func client(t *testing.T, b *harness.Broker, scenario string, args ...string) string {
	t.Helper()
	return clientOf(t, b.URL, scenario, args...)
}

func clientOf(t *testing.T, broker, scenario string, args ...string) string {
	t.Helper()
	all := append([]string{filepath.Join("testdata", "client.py"), scenario, broker + "/deerflow", harness.Token}, args...)
	program := exec.CommandContext(t.Context(), "/usr/bin/python3", all...)
	var out, said bytes.Buffer
	program.Stdout, program.Stderr = &out, &said
	assert.NilError(t, program.Run(), "%s%s", out.String(), said.String())
	return out.String()
}

// The brokers are shared: what else has to be seen with real sandboxes, or with those of a
// cloud, is seen when the table is filled in.
func TestDeerFlowUsesSandboxesOnEachProvider(t *testing.T) {
	var features frontdoor.Features
	frontdoor.Each(t, frontdoor.E2B, func(t *testing.T, provider string) {
		b := frontdoor.On(t, provider, door)
		features.ReportOutput(t, provider, client(t, b, "features"))
		switch provider {
		case frontdoor.SelfManaged:
			inGVisor(t, b)
		case frontdoor.E2B:
			t.Run("the broker is killed", func(t *testing.T) { restarted(t, b) })
		}
	})
	t.Run("through several brokers", func(t *testing.T) {
		features.ReportOutput(t, frontdoor.SelfManaged, clientOf(t, frontdoor.Several(t, door), "features"))
	})
	if !t.Failed() {
		features.CheckPage(t, "deerflow")
	}
}

func inGVisor(t *testing.T, b *harness.Broker) {
	t.Run("the audit log says by which door", func(t *testing.T) {
		assert.DeepEqual(t, frontdoor.Audited(t, b, "deerflow"), []string{
			"create_instance", "destroy_instance", "run_command", "signal_command", "write_file", "write_stdin",
		})
	})
	t.Run("gateways that race get one sandbox", func(t *testing.T) { assert.Equal(t, client(t, b, "race"), "raced\n") })
	t.Run("large files and long output", func(t *testing.T) {
		const less = 48 << 20 // than an upload, whose body has 70 MB
		memory := harness.WatchMemory(t, less, map[string]int{"broker": b.PID})
		t.Log(client(t, b, "large"))
		memory.Check(t, "files of 50 and 100 MiB")
	})
	t.Run("programs gain no rights, and know no secrets", func(t *testing.T) { powerless(t, b) })
	t.Run("a sandbox is killed", func(t *testing.T) { killed(t, b) })
	t.Run("a reload closes the door, moves it and opens it, while a command runs", func(t *testing.T) { reloaded(t, b) })
	t.Run("requests of nonsense", func(t *testing.T) { nonsense(t, b) })
}

// sandbox asks the provisioner for one, at the path where the door is, and returns the path
// of its URL.
func sandbox(t *testing.T, b *harness.Broker, token, at, id string) string {
	t.Helper()
	answer := b.DoWith(http.MethodPost, at+"/api/sandboxes", "", map[string]any{"sandbox_id": id}, map[string]string{"X-API-Key": token})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var made struct {
		URL string `json:"sandbox_url"`
	}
	answer.Into(t, &made)
	path, ours := strings.CutPrefix(made.URL, b.URL)
	assert.Assert(t, ours, made.URL)
	return path
}

func look(b *harness.Broker, method, id string) harness.Answer {
	return b.DoWith(method, "/deerflow/api/sandboxes/"+id, "", nil, map[string]string{"X-API-Key": harness.Token})
}

// run is what a command in the shell of a sandbox prints.
func run(t *testing.T, b *harness.Broker, path, command string) string {
	t.Helper()
	answer := b.Do(http.MethodPost, path+"/v1/shell/exec", "", map[string]any{"command": command, "no_change_timeout": 600})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	var told struct{ Data struct{ Output string } }
	answer.Into(t, &told)
	return told.Data.Output
}

// powerless has what the original's pods may or have: rights by programs like sudo, a token
// of the cluster, a network, and the directories of the host.
func powerless(t *testing.T, b *harness.Broker) {
	const id = "b0bb1e0000000001"
	path := sandbox(t, b, harness.Token, "/deerflow", id)
	assert.Equal(t, run(t, b, path, "grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status | tr -s '\\t ' ' '; id -u"),
		"CapEff: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\n1000\n")
	assert.Equal(t, run(t, b, path, "unshare -U true 2>/dev/null || echo refused; ls -d /var/run/secrets ~root/.kube 2>/dev/null; ls /mnt"), "refused\nuser-data\n")
	assert.Equal(t, run(t, b, path, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"), "lo\n")
	assert.Check(t, !strings.Contains(run(t, b, path, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"), harness.Token))
	assert.Equal(t, look(b, http.MethodDelete, id).Status, http.StatusOK)
}

// killed has the sandbox of a conversation killed behind the back of all.
func killed(t *testing.T, b *harness.Broker) {
	const id = "dead000000000001"
	path := sandbox(t, b, harness.Token, "/deerflow", id)
	assert.Equal(t, run(t, b, path, "echo up"), "up\n")
	for _, p := range b.Left() { // every sandbox, ready ones too
		if filepath.Base(p.Executable) == "runsc" {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		switch answer := look(b, http.MethodGet, id); answer.Status {
		case http.StatusNotFound:
			return poll.Success()
		case http.StatusOK, http.StatusServiceUnavailable: // it has not died yet
			return poll.Continue("%d %s", answer.Status, answer.Body)
		default:
			return poll.Error(&unexpected{answer})
		}
	}, poll.WithTimeout(time.Minute), poll.WithDelay(10*time.Millisecond))
	again := sandbox(t, b, harness.Token, "/deerflow", id)
	assert.Assert(t, again != path)
	refused(t, b.Do(http.MethodPost, path+"/v1/shell/exec", "", map[string]any{"command": "true"}), http.StatusNotFound)
	refused(t, b.Do(http.MethodPost, path+"/v1/bash/exec", "", map[string]any{"command": "true"}), http.StatusGone)
	assert.Equal(t, run(t, b, again, "echo up"), "up\n")
	assert.Equal(t, look(b, http.MethodDelete, id).Status, http.StatusOK)
}

type unexpected struct{ harness.Answer }

func (u *unexpected) Error() string { return http.StatusText(u.Status) + ": " + string(u.Body) }

func refused(t *testing.T, answer harness.Answer, status int) {
	t.Helper()
	assert.Equal(t, answer.Status, status, "%s", answer.Body)
	assert.Check(t, is.Contains(string(answer.Body), `"success":false`))
}

// reloaded changes where the door is while somebody waits for a command.
func reloaded(t *testing.T, b *harness.Broker) {
	const id = "10ad000000000001"
	path := sandbox(t, b, harness.Token, "/deerflow", id)
	run(t, b, path, "x=kept; mkfifo /tmp/pipe")
	waiting := make(chan harness.Answer, 1)
	go func() {
		waiting <- b.Do(http.MethodPost, path+"/v1/shell/exec", "", map[string]any{"command": "read -r line </tmp/pipe; echo $line $x"})
	}()
	frontdoor.Reload(t, b, "deerflow", door, "/health", func(t *testing.T, at string) {
		here := sandbox(t, b, harness.Token, at, id)
		assert.Equal(t, here, at+strings.TrimPrefix(path, "/deerflow"), "the token is as it was")
		answer := b.Do(http.MethodPost, here+"/v1/bash/exec", "", map[string]any{"command": "echo here"})
		assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	})
	answer := b.Do(http.MethodPost, path+"/v1/bash/exec", "", map[string]any{"command": "echo through >/tmp/pipe"})
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	answer = <-waiting
	assert.Equal(t, answer.Status, http.StatusOK, "%s", answer.Body)
	assert.Check(t, is.Contains(string(answer.Body), `"output":"through kept\n"`))
	assert.Equal(t, look(b, http.MethodDelete, id).Status, http.StatusOK)
}

// restarted kills the broker. The sandbox is a cloud's, and as it was.
func restarted(t *testing.T, b *harness.Broker) {
	const id = "5e7a0000000000001"
	path := sandbox(t, b, harness.Token, "/deerflow", id)
	run(t, b, path, "echo kept >/mnt/user-data/outputs/file")
	b.Kill()
	b.WaitGone()
	b.Restart()
	assert.Equal(t, look(b, http.MethodGet, id).Status, http.StatusOK)
	assert.Equal(t, sandbox(t, b, harness.Token, "/deerflow", id), path)
	assert.Equal(t, run(t, b, path, "cat /mnt/user-data/outputs/file"), "kept\n")
	assert.Equal(t, look(b, http.MethodDelete, id).Status, http.StatusOK)
	assert.Equal(t, look(b, http.MethodGet, id).Status, http.StatusNotFound)
	list, err := b.API().Instances(t.Context(), nil)
	assert.NilError(t, err)
	assert.Assert(t, is.Len(list.Instances, 0))
}

// canary stands in all that the other tenant has.
const canary = "canary-of-rival"

// nonsense sends what no client would, and wants a refusal each time.
func nonsense(t *testing.T, b *harness.Broker) {
	mine, theirs := sandbox(t, b, harness.Token, "/deerflow", "mine"), sandbox(t, b, harness.OtherToken, "/deerflow", "theirs")
	run(t, b, mine, "echo own >/mnt/user-data/secret")
	run(t, b, theirs, "echo "+canary+" >/mnt/user-data/secret; secret="+canary)
	token := func(path string) string { return strings.TrimPrefix(path, "/deerflow/s/") }
	const data = "/s/{sandbox}/v1"
	frontdoor.Nonsense{
		Door:        "deerflow",
		Credentials: http.Header{"X-Api-Key": {harness.Token}},
		Parameters: map[string][]string{
			"id": {"mine", "theirs"}, "sandbox": {token(mine), token(theirs)[:len(token(theirs))-1] + "x", token(theirs)[:20] + token(mine)[20:]},
			"session": {"s", "default", "..", "deerflow-shell"},
		},
		Harmful: []string{"DELETE /api/sandboxes/{id}"},
		Bodies: map[string]string{
			"POST /api/sandboxes":                     `{"sandbox_id":"made","thread_id":"t","user_id":"u","extra_mounts":[{"host_path":"/data","container_path":"/mnt/skills/custom","read_only":true}],"include_legacy_skills":false}`,
			"POST " + data + "/shell/exec":            `{"command":"true","id":"s","no_change_timeout":20,"hard_timeout":20,"timeout":20,"truncate":true,"async_mode":false,"exec_dir":""}`,
			"POST " + data + "/shell/sessions/create": `{"id":"s","exec_dir":""}`,
			"POST " + data + "/bash/exec":             `{"command":"true","env":{"A":"b"},"hard_timeout":20,"timeout":0,"session_id":"","exec_dir":"","async_mode":false}`,
			"POST " + data + "/file/read":             `{"file":"/mnt/user-data/secret","start_line":0,"end_line":1,"sudo":false}`,
			"POST " + data + "/file/write":            `{"file":"/mnt/user-data/uploads/x","content":"eA==","encoding":"base64","append":false,"sudo":false,"leading_newline":false}`,
			"POST " + data + "/file/find":             `{"path":"/mnt/user-data","glob":"*"}`,
			"POST " + data + "/file/list":             `{"path":"/mnt/user-data","recursive":true,"show_hidden":false,"max_depth":2,"file_types":[]}`,
			"POST " + data + "/file/grep":             `{"path":"/mnt/user-data","pattern":"own","case_insensitive":false,"fixed_strings":false,"max_results":10,"max_file_size":"1M","recursive":true,"include":["*"],"exclude":[],"context_before":0,"context_after":0}`,
		},
		Queries:  map[string]string{"path": "/mnt/user-data/secret"},
		Undo:     map[string]string{"POST /api/sandboxes": "DELETE /api/sandboxes/%s"},
		Refusal:  refusalFault,
		Canaries: []string{canary, token(theirs)},
	}.Send(t, b, 3000)
	assert.Equal(t, run(t, b, mine, "cat /mnt/user-data/secret"), "own\n")
	assert.Equal(t, run(t, b, theirs, "cat /mnt/user-data/secret; echo $secret"), canary+"\n"+canary+"\n")
	assert.Equal(t, look(b, http.MethodDelete, "mine").Status, http.StatusOK)
	assert.Equal(t, look(b, http.MethodDelete, "theirs").Status, http.StatusOK, "which is nobody's that the key knows")
	assert.Equal(t, run(t, b, theirs, "echo up"), "up\n")
}

var errForm = errors.New("it is not of the form of the door")

// refusalFault says what is wrong with the form of a refusal: DeerFlow takes what is no
// failure by its status for done, and FastAPI's clients read the detail of 422.
func refusalFault(_ string, status int, body []byte) error {
	var told struct {
		Success       *bool
		Message, Code string
		RequestID     string `json:"request_id"`
		Detail        json.RawMessage
	}
	if err := json.Unmarshal(body, &told); err != nil {
		return err
	}
	if told.Success == nil || *told.Success || told.Message == "" || !strings.HasPrefix(told.Code, "SB0") || told.RequestID == "" {
		return errForm
	}
	if status == http.StatusUnprocessableEntity {
		var faults []struct {
			Loc       []any
			Msg, Type string
		}
		if err := json.Unmarshal(told.Detail, &faults); err != nil {
			return err
		}
		if len(faults) == 0 || len(faults[0].Loc) == 0 || faults[0].Msg == "" || faults[0].Type == "" {
			return errForm
		}
	}
	return nil
}
