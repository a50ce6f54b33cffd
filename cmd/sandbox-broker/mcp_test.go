package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config"
)

// host is one that has started the command.
type host struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	err   *strings.Builder
	ended chan int
}

func startMCP(t *testing.T, args ...string) *host {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	h := &host{t: t, in: inWrite, out: bufio.NewReader(outRead), err: &strings.Builder{}, ended: make(chan int, 1)}
	term := &terminal{in: inRead, out: outWrite, err: h.err, style: config.Style{Width: 100}}
	go func() {
		code := run(t.Context(), append([]string{"mcp"}, args...), term, nil)
		_ = outWrite.Close()
		h.ended <- code
	}()
	t.Cleanup(func() { _ = inWrite.Close() })
	h.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	assert.Check(t, cmp.Contains(h.hears(), `"protocolVersion":"2025-06-18"`))
	h.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return h
}

func (h *host) say(message string) {
	h.t.Helper()
	_, err := io.WriteString(h.in, message+"\n")
	assert.NilError(h.t, err)
}

// hears returns the next line of standard output, on which nothing but messages may be.
func (h *host) hears() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	assert.NilError(h.t, err)
	assert.Assert(h.t, json.Valid([]byte(line)), "%q", line)
	return line
}

// leaves closes standard input, and returns the exit code.
func (h *host) leaves() int {
	h.t.Helper()
	assert.NilError(h.t, h.in.Close())
	rest, err := io.ReadAll(h.out)
	assert.NilError(h.t, err)
	for line := range strings.Lines(string(rest)) {
		assert.Check(h.t, json.Valid([]byte(line)), "%q", line)
	}
	return <-h.ended
}

const runsPython = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"language":"python","code":"1"}}}`

func TestToolsOverStandardInput(t *testing.T) {
	b := startCanned(t, http.StatusOK, `{"execution_id":"x-1","instance_id":"i","provider":"p","status":"succeeded","exit_code":0,"stdout":"moin\n","stderr":""}`)
	h := startMCP(t, "--provider", "spare", "--wait", "2s")
	h.say(runsPython)
	assert.Check(t, cmp.Contains(h.hears(), `exit code 0\nmoin\n`))
	assert.Check(t, cmp.Equal(h.leaves(), 0))
	assert.Check(t, cmp.Equal(h.err.String(), ""))
	assert.Check(t, cmp.Equal(b.token, "Bearer some-token"))
	assert.Check(t, cmp.DeepEqual(b.body, exactly(t, `{"language":"python","code":"1","provider":"spare","wait_ms":2000}`)))
}

func TestAHostThatLeavesEndsWhatRuns(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		assert.Check(t, err)
		w.Header().Set("Content-Type", "text/event-stream")
		_, err = io.WriteString(w, "event: started\ndata: {\"execution_id\":\"x-1\",\"instance_id\":\"i\",\"provider\":\"p\"}\n\n")
		assert.Check(t, err)
		assert.Check(t, http.NewResponseController(w).Flush())
		close(began)
		<-r.Context().Done()
		close(ended)
	}))
	defer broker.Close()
	h := startMCP(t, "--url", broker.URL)
	h.say(runsPython)
	<-began
	assert.Check(t, cmp.Equal(h.leaves(), 0))
	<-ended
}

func TestABrokerThatIsNotThereIsAnErrorOfTheTool(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	h := startMCP(t, "--url", gone.URL)
	h.say(runsPython)
	answer := h.hears()
	assert.Check(t, cmp.Contains(answer, "no broker answers"))
	assert.Check(t, cmp.Contains(answer, `"isError":true`))
	assert.Check(t, cmp.Equal(h.leaves(), 0))
}

func TestMCPRefusesFlagsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{{"mcp", "--wait", "-1s"}, {"mcp", "--cert-file", "x"}, {"mcp", "--token-file", "-"}, {"mcp", "--token", "x"}, {"mcp", "--ca-file", "/none"}} {
		got := runWith(t, nil, args...)
		assert.Check(t, cmp.Equal(got.code, 2), "%v: %s", args, got.err)
		assert.Check(t, cmp.Equal(got.out, ""))
	}
}
