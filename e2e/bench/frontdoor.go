package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// openSandbox is the configuration of the front door whose one image is a template.
func openSandbox(template string) string {
	return fmt.Sprintf("front_door \"opensandbox\" {\n  images = { \"bench\" = %q }\n}\n", template)
}

// e2bDoor is the configuration of E2B's front door, where "base" is the usual template.
const e2bDoor = "front_door \"e2b\" { }\n"

// headerKey is where OpenSandbox's clients show a tenant's token.
const headerKey = "OPEN-SANDBOX-API-KEY"

// headerE2BKey is where E2B's clients show it.
const headerE2BKey = "X-API-Key"

// execd is how the front door's daemon of one sandbox is reached.
type execd struct {
	Endpoint string
	Headers  map[string]string
}

// openSandbox makes a sandbox through the front door and returns its name there.
func (d *daemon) openSandbox(ctx context.Context) (id string, e execd, err error) {
	const sandboxes = "/opensandbox/v1/sandboxes"
	var made struct{ ID string }
	if err := d.askAs(ctx, http.MethodPost, sandboxes, headerKey, `{"image":{"uri":"bench"},"timeout":3600}`, &made); err != nil {
		return "", e, err
	}
	return made.ID, e, d.askAs(ctx, http.MethodGet, sandboxes+"/"+made.ID+"/endpoints/44772", headerKey, "", &e)
}

// askAs asks with the tenant's token in a field of the header.
func (d *daemon) askAs(ctx context.Context, method, path, header, body string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.http.Addr+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set(header, token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("%s %s: HTTP %d: %s", method, path, resp.StatusCode, text)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

//go:embed testdata/frontdoors
var frontDoorsClient embed.FS

// nodeClient is one process that makes sandboxes by OpenSandbox's SDK, by E2B's, and by
// the broker's own API.
type nodeClient struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// installNodeClient installs the client with the SDKs into a directory.
func installNodeClient(ctx context.Context, dir string) error {
	files, err := fs.Sub(frontDoorsClient, "testdata/frontdoors")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return err
	}
	install := exec.CommandContext(ctx, "npm", "install", "--no-save", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("install the SDKs: %w: %s", err, out)
	}
	return nil
}

// startNodeClient starts the client of a broker. The caller owes a stop.
func startNodeClient(dir string, d *daemon) (*nodeClient, error) {
	cmd := exec.Command("node", "client.mjs", "http://"+d.http.Addr, token)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &nodeClient{cmd, in, bufio.NewScanner(out)}, cmd.Start()
}

func (c *nodeClient) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// timed has the client make sandboxes one of the ways, and takes its word for the time.
func (c *nodeClient) timed(way string) turn {
	return func(ctx context.Context, count int) (m measured, err error) {
		for range count {
			if err := wait(ctx, settle); err != nil {
				return m, err
			}
			if _, err := io.WriteString(c.in, way+"\n"); err != nil {
				return m, err
			}
			if !c.out.Scan() {
				return m, errors.Join(errors.New("the client in Node.js has ended"), c.out.Err())
			}
			took, err := strconv.ParseFloat(c.out.Text(), 64)
			if err != nil {
				return m, err
			}
			m.took = append(m.took, time.Duration(took*float64(time.Millisecond)))
		}
		return m, nil
	}
}

// measureDoorCreate measures from asking for a sandbox to the first output of a command
// in it, by OpenSandbox's SDK, by E2B's and by the broker's own API.
func measureDoorCreate(ctx context.Context, l lab, count int) (lines []line, err error) {
	entries := []entry{
		{row: "door-create", what: "sandbox asked for to first output of `echo`, OpenSandbox's SDK 0.1.11 through the front door"},
		{row: "door-create-e2b", what: "the same, E2B's SDK 2.51.0"},
	}
	if _, err := exec.LookPath("npm"); err != nil {
		for _, e := range entries {
			lines = append(lines, line{Row: e.row, What: e.what, Note: "not measured: there is no npm"})
		}
		return lines, nil
	}
	dir, err := os.MkdirTemp("", "sb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := installNodeClient(ctx, dir); err != nil {
		return nil, err
	}
	ds, err := l.newest().start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix))+openSandbox(pythonHello.template)+e2bDoor)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	c, err := startNodeClient(dir, ds[0])
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, c) }()
	own := &side{"the same by our own API, with fetch in the same process", c.timed("own")}
	for i, way := range []string{"opensandbox", "e2b"} {
		entries[i].ours, entries[i].beside = []*side{{"front door", c.timed(way)}}, own
		entries[i].claims = []claim{ratio(p50).atMost(1.3)}
	}
	return single.run(ctx, count, entries)
}

// measureDoorCall measures a call of each door that asks no provider.
func measureDoorCall(ctx context.Context, l lab, count int) (lines []line, err error) {
	ds, err := l.newest().start(ctx, l.selfManaged("pool_size = 1")+openSandbox(pythonHello.template)+e2bDoor)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	d := ds[0]
	name, _, err := d.openSandbox(ctx)
	if err != nil {
		return nil, err
	}
	var made struct{ SandboxID string }
	if err := d.askAs(ctx, http.MethodPost, "/e2b/sandboxes", headerE2BKey, `{"templateID":"base","timeout":3600}`, &made); err != nil {
		return nil, err
	}
	id, err := d.create(pythonHello.template)
	if err != nil {
		return nil, err
	}
	get := func(path, header, value string) turn {
		return alone(func() error { return d.get(path, header, value) })
	}
	own := &side{"`GET /api/v1/instances/{id}`", get("/api/v1/instances/"+id, "Authorization", "Bearer "+token)}
	claims := []claim{difference(p50).atMost(0.3), difference(p99)}
	return contest{turns: manyTurns, warm: 200}.run(ctx, count, []entry{
		{
			row: "door-call", what: "`GET /opensandbox/v1/sandboxes/{id}`, 1 client, one connection",
			ours: []*side{{"front door", get("/opensandbox/v1/sandboxes/"+name, headerKey, token)}}, beside: own, claims: claims,
		},
		{
			row: "door-call-e2b", what: "`GET /e2b/sandboxes/{id}`, the same way",
			ours: []*side{{"front door", get("/e2b/sandboxes/"+made.SandboxID, headerE2BKey, token)}}, beside: own, claims: claims,
		},
	})
}

// get asks for something with this header alone.
func (c *client) get(path, header, value string) error {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + c.http.Addr + path)
	req.Header.Set(header, value)
	if err := c.http.Do(req, resp); err != nil {
		return err
	}
	if resp.StatusCode() != http.StatusOK {
		return fmt.Errorf("GET %s: HTTP %d: %s", path, resp.StatusCode(), resp.Body())
	}
	return nil
}

// pacedLines prints so many numbered lines, each when it is due, with the time.
const pacedLines = `import time
began = time.monotonic()
for i in range(%d):
    left = began + i / %d - time.monotonic()
    if left > 0:
        time.sleep(left)
    print(i, time.time_ns(), flush=True)
`

// measureDoorLines reads what a command in a sandbox prints, line by line, through the
// front door and then by the own API. A line that is missing or not in its place is an
// error.
func measureDoorLines(ctx context.Context, l lab, count int) (lines []line, err error) {
	ds, err := l.newest().start(ctx, l.selfManaged("pool_size = 1")+openSandbox(pythonHello.template))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	d := ds[0]
	_, e, err := d.openSandbox(ctx)
	if err != nil {
		return nil, err
	}
	id, err := d.create(pythonHello.template)
	if err != nil {
		return nil, err
	}
	read := func(stream func(ctx context.Context, code string, to *lineReader) error) turn {
		return func(ctx context.Context, count int) (measured, error) {
			to := &lineReader{wall: true}
			if err := stream(ctx, fmt.Sprintf(pacedLines, count, linesPerSecond), to); err != nil {
				return measured{}, err
			}
			return measured{took: to.delays}, to.end(count)
		}
	}
	own := "http://" + d.http.Addr + "/api/v1/instances/" + id + "/commands"
	lines, err = contest{turns: 1}.run(ctx, count, []entry{{
		row:  "door-lines",
		what: fmt.Sprintf("one stream of %d lines a second by OpenSandbox's `/command`, self_managed: from the print in the sandbox to the client", linesPerSecond),
		ours: []*side{{"front door", read(func(ctx context.Context, code string, to *lineReader) error {
			return streamCommand(ctx, "http://"+e.Endpoint+"/command", e.Headers, code, to)
		})}},
		beside: &side{"the same by our own API", read(func(ctx context.Context, code string, to *lineReader) error {
			return streamCommand(ctx, own, map[string]string{"Authorization": "Bearer " + token, "Accept": sse.MediaType}, code, to)
		})},
		claims: []claim{difference(p50), difference(p99)},
	}})
	for i := range lines {
		lines[i].Note = "all complete and in order, as they should" // else there is an error
	}
	return lines, err
}

// streamCommand runs Python as a command and reads what it prints, as OpenSandbox tells it
// or as the own API does.
func streamCommand(ctx context.Context, url string, headers map[string]string, code string, to *lineReader) error {
	request := map[string]any{"argv": []string{"python3", "-c", code}}
	own := headers["Accept"] == sse.MediaType
	if own {
		request["timeout"] = runBound.Seconds()
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("POST %s: HTTP %d: %s", url, resp.StatusCode, text)
	}
	if own {
		return readOwnEvents(resp.Body, to)
	}
	return readDoorEvents(resp.Body, to)
}

// readDoorEvents reads OpenSandbox's events: an object each with a blank line behind it.
// The text of one is a line without its end.
func readDoorEvents(from io.Reader, to *lineReader) error {
	events := json.NewDecoder(from)
	for {
		var e struct {
			Type, Text string
			Error      any
		}
		if err := events.Decode(&e); err != nil {
			return fmt.Errorf("no last event: %w", err)
		}
		switch e.Type {
		case "stdout":
			if err := to.Stdout([]byte(e.Text + "\n")); err != nil {
				return err
			}
		case "execution_complete":
			return nil
		case "init", "ping": // say nothing of the output
		default:
			return fmt.Errorf("the stream has an event %q: %s %v", e.Type, e.Text, e.Error)
		}
	}
}

func readOwnEvents(from io.Reader, to *lineReader) error {
	events := sse.NewReader(from, mostOutput)
	for {
		e, err := events.Next()
		if err != nil {
			return fmt.Errorf("no last event: %w", err)
		}
		switch e.Name {
		case "stdout":
			var part struct{ Text string }
			if err := json.Unmarshal(e.Data, &part); err != nil {
				return err
			}
			if err := to.Stdout([]byte(part.Text)); err != nil {
				return err
			}
		case "done":
			return nil
		case "error", "stderr":
			return fmt.Errorf("the stream has %s: %s", e.Name, e.Data)
		}
	}
}

// ragflowHello is a program as RAGFlow's users write them.
const ragflowHello = "def main():\n    return 1\n"

// measureRAGFlow measures runs through RAGFlow's front door, beside an executor that keeps
// containers, and beside bare Python where there is no engine for one.
func measureRAGFlow(ctx context.Context, l lab, count int) (lines []line, err error) {
	ds, err := l.newest().start(ctx, l.selfManaged(fmt.Sprintf("pool_size = %d", poolOfSix))+"front_door \"ragflow\" {}\n")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, ds) }()
	door := &side{"front door", spaced(settle, func() error { return ds[0].ragflowRun(ragflowHello) })}
	hello := bare(pythonHello, python, "-c")
	e := entry{row: "ragflow", what: "RAGFlow's `POST /run` of a `main` in Python, each in a fresh sandbox", ours: []*side{door}}
	reason := noDocker(ctx)
	if reason != "" {
		e.beside, e.claims = &side{hello.name, spaced(settle, hello.do)}, []claim{ratio(p50)}
	} else {
		pool, err := startExecutor(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = joinStop(err, pool) }()
		e.beside = &side{fmt.Sprintf("a pool of %d containers with runsc, by `docker exec`", executorPool), spaced(settle, func() error { return pool.run(ctx, ragflowHello) })}
		e.claims = []claim{ratio(p50).atMost(0.2)}
	}
	lines, err = single.run(ctx, count, []entry{e})
	if reason != "" {
		for i := range lines {
			lines[i].Note = "the pooled executor was not measured: " + reason
		}
	}
	return lines, err
}

func (c *client) ragflowRun(code string) error {
	var answer struct {
		Status, Stderr string
		Result         struct{ Value any }
	}
	request := map[string]any{"code_b64": base64.StdEncoding.EncodeToString([]byte(code)), "language": "python", "arguments": map[string]any{}}
	if err := c.ask(http.MethodPost, "/ragflow/run", request, &answer); err != nil {
		return err
	}
	if answer.Status != "success" || answer.Result.Value != 1.0 {
		return fmt.Errorf("run: %+v", answer)
	}
	return nil
}
