package deerflow

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// routeBash is the one whose 404 clients remember.
const routeBash = "/bash/exec"

func (d *Door) registerBash(base string) {
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + routeBash}, d.bashExec)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/sandbox", Quiet: true}, d.describe)
}

// bashResult is what became of a program. All of its output is in one answer, so that the
// offsets are at its end.
type bashResult struct {
	Session      string `json:"session_id"`
	CommandID    string `json:"command_id"`
	Command      string `json:"command"`
	Status       string `json:"status"`
	Stdout       string `json:"stdout"`
	Stderr       string `json:"stderr"`
	ExitCode     *int   `json:"exit_code"`
	Offset       int64  `json:"offset"`
	StderrOffset int64  `json:"stderr_offset"`
}

type bashRequest struct {
	command string
	env     map[string]string
	limit   time.Duration
}

func readBashExec(body []byte) (bashRequest, error) {
	f, err := readFields(body)
	if err != nil {
		return bashRequest{}, err
	}
	var req bashRequest
	session, dir, hard, soft, async := "", "", usualSilence.Seconds(), 0.0, false
	err = f.read(map[string]any{
		"command": &req.command, "env": &req.env, "hard_timeout": &hard, "timeout": &soft,
		"session_id": &session, "exec_dir": &dir, "async_mode": &async,
	}, "command")
	if err != nil {
		return bashRequest{}, err
	}
	switch {
	case session != "":
		return req, refused("session_id", "is not served here: each command has a process of its own; /v1/shell/exec has sessions")
	case dir != "":
		return req, refused("exec_dir", "is not served here: begin the command with cd")
	case async:
		return req, refused("async_mode", "is not served here")
	case soft != 0:
		return req, refused("timeout", "is not served here; hard_timeout is")
	case strings.ContainsRune(req.command, 0):
		return req, refused("command", "holds a NUL character, which no command can")
	case !(hard > 0) || hard > maxSilence.Seconds():
		return req, refused("hard_timeout", "must be more than 0 and at most %g seconds", maxSilence.Seconds())
	}
	req.limit = early(hard)
	return req, nil
}

// bashExec runs a program whose environment nobody else sees.
func (d *Door) bashExec(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	req, err := readBashExec(c.Body)
	if err != nil {
		return err
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return notMissing(err)
	}
	var result bashResult
	err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) (err error) {
		result, err = runBash(ctx, commands, req)
		return err
	})
	if err != nil {
		return notMissing(err)
	}
	return answer(w, enveloped(result))
}

func runBash(ctx context.Context, commands lending.Commands, req bashRequest) (bashResult, error) {
	started, err := commands.Start(ctx, sdk.CommandRequest{
		Argv: []string{"bash", "-c", "cd " + workspace + " 2>/dev/null\n" + req.command}, Env: req.env, Timeout: req.limit,
	}, lending.StartOptions{})
	if err != nil {
		return bashResult{}, err
	}
	limit := commands.Lease.OutputLimit()
	output, next := [2]ends{{limit: limit}, {limit: limit}}, [2]int64{}
	ended, err := commands.Follow(ctx, started.ID, func(piece sdk.CommandOutput) error {
		i := 0
		if piece.Stream == sdk.Stderr {
			i = 1
		}
		if piece.Offset > next[i] {
			output[i].lose(piece.Offset - next[i])
		}
		next[i] = piece.Offset + int64(len(piece.Data))
		output[i].add(piece.Data)
		return nil
	})
	if err != nil {
		return bashResult{}, err
	}
	result := bashResult{
		Session: started.ID, CommandID: started.ID, Command: req.command, Status: "completed",
		Stdout: output[0].text(), Stderr: output[1].text(), ExitCode: &ended.ExitCode,
		Offset: ended.StdoutBytes, StderrOffset: ended.StderrBytes,
	}
	switch ended.State {
	case sdk.CommandTimeout:
		result.Status, result.ExitCode = "timed_out", nil
	case sdk.CommandCancelled, sdk.CommandOutOfMemory:
		result.Status = "killed"
	}
	return result, nil
}

// description is what the all-in-one sandbox says of itself. That it is answered with 200 is
// what clients wait for.
type description struct {
	Success   bool    `json:"success"`
	Message   string  `json:"message"`
	Home      string  `json:"home_dir"`
	Workspace string  `json:"workspace"`
	Version   string  `json:"version"`
	Detail    details `json:"detail"`
}

type details struct {
	System  system  `json:"system"`
	Runtime runtime `json:"runtime"`
	Utils   []tools `json:"utils"`
}

type system struct {
	OS        string  `json:"os"`
	OSVersion string  `json:"os_version"`
	Arch      string  `json:"arch"`
	User      string  `json:"user"`
	Home      string  `json:"home_dir"`
	Timezone  string  `json:"timezone"`
	Occupied  []int64 `json:"occupied_ports"`
}

type runtime struct {
	Python []tool `json:"python"`
	NodeJS []tool `json:"nodejs"`
}

type tool struct {
	Version string   `json:"ver"`
	Binary  string   `json:"bin"`
	Alias   []string `json:"alias"`
}

type tools struct {
	Category string `json:"category"`
	Tools    []tool `json:"tools"`
}

// apiVersion is that of the API document that is followed.
const apiVersion = "1.9.4"

// looking prints what there is in a sandbox, a line each.
const looking = `uname -s; uname -r; uname -m; id -un 2>/dev/null || id -u; date +%Z
for p in python3 node; do command -v "$p" || echo; "$p" --version 2>/dev/null || echo; done`

func (d *Door) describe(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	var output lending.Output
	err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) (err error) {
		_, output, err = commands.Run(ctx, sdk.CommandRequest{Argv: []string{"bash", "-c", looking}}, nil)
		return err
	})
	if err != nil {
		return err
	}
	return answer(w, descriptionOf(validText(output.Stdout.Bytes)))
}

func descriptionOf(seen string) description {
	lines := append(strings.Split(seen, "\n"), make([]string, 9)...)
	of := func(binary, version string) []tool {
		if binary == "" {
			return []tool{}
		}
		version = version[strings.LastIndexByte(version, ' ')+1:]
		return []tool{{Version: strings.TrimPrefix(version, "v"), Binary: binary, Alias: []string{}}}
	}
	return description{
		Success: true, Message: done, Home: workspace, Workspace: workspace, Version: apiVersion,
		Detail: details{
			System: system{
				OS: lines[0], OSVersion: lines[1], Arch: lines[2], User: lines[3], Home: workspace, Timezone: lines[4], Occupied: []int64{},
			},
			Runtime: runtime{Python: of(lines[5], lines[6]), NodeJS: of(lines[7], lines[8])},
			Utils:   []tools{},
		},
	}
}
