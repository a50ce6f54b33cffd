package browser_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/npm"
)

// browser is a page of headless Chromium, driven by its own protocol.
type browser struct {
	t    *testing.T
	conn *websocket.Conn
	last int
}

// startBrowser starts Chromium until the test ends.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	binaries.Needs(t, "chromium", "chromium")
	dir := t.TempDir()
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--user-data-dir="+dir, "about:blank")
	said, err := cmd.StderrPipe()
	assert.NilError(t, err)
	assert.NilError(t, cmd.Start())
	ended := make(chan struct{})
	lines := make(chan string, 1)
	go func() {
		defer close(ended)
		scanner := bufio.NewScanner(said)
		for scanner.Scan() {
			if _, address, ok := strings.Cut(scanner.Text(), "DevTools listening on "); ok {
				lines <- address
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	var devtools *url.URL
	select {
	case address := <-lines:
		devtools, err = url.Parse(address)
		assert.NilError(t, err)
	case <-time.After(4 * time.Minute):
		t.Fatal("chromium does not start")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+devtools.Host+"/json/new?about:blank", nil)
	assert.NilError(t, err)
	resp, err := http.DefaultClient.Do(req)
	assert.NilError(t, err)
	defer resp.Body.Close()
	var page struct {
		Socket string `json:"webSocketDebuggerUrl"`
	}
	assert.NilError(t, json.NewDecoder(resp.Body).Decode(&page))
	conn, _, err := websocket.Dial(t.Context(), page.Socket, nil) //nolint:bodyclose // the connection has it
	assert.NilError(t, err)
	conn.SetReadLimit(16 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &browser{t: t, conn: conn}
}

// command sends one command and returns its result.
func (b *browser) command(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 4*time.Minute)
	defer cancel()
	b.last++
	text, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	assert.NilError(b.t, err)
	assert.NilError(b.t, b.conn.Write(ctx, websocket.MessageText, text))
	for {
		_, text, err := b.conn.Read(ctx)
		assert.NilError(b.t, err, method)
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		assert.NilError(b.t, json.Unmarshal(text, &answer))
		if answer.ID == b.last {
			assert.Assert(b.t, answer.Error == nil, "%s: %s", method, answer.Error)
			return answer.Result
		}
	}
}

func (b *browser) open(address string) {
	b.t.Helper()
	b.command("Page.navigate", map[string]any{"url": address})
}

// evaluate returns what a script in the page comes to, as text.
func (b *browser) evaluate(script string) string {
	b.t.Helper()
	var answer struct {
		Result struct{ Value any }
		// Exception is set when the script failed.
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	assert.NilError(b.t, json.Unmarshal(b.command("Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true}), &answer))
	if answer.Exception != nil {
		return string(answer.Exception)
	}
	return fmt.Sprint(answer.Result.Value)
}

func (b *browser) until(script, want string) {
	b.t.Helper()
	poll.WaitOn(b.t, func(poll.LogT) poll.Result {
		if got := b.evaluate(script); got != want {
			return poll.Continue("%s is %s, not %s", script, got, want)
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute), poll.WithDelay(100*time.Millisecond))
}

// viteProject is the project with its packages, as an archive.
func viteProject(t *testing.T) []byte {
	t.Helper()
	binaries.Needs(t, "npm", "npm")
	dir := t.TempDir()
	assert.NilError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "vite"))))
	if err := npm.CI(t.Context(), dir); err != nil {
		binaries.Missing(t, err.Error())
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	assert.NilError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(text))}); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}))
	assert.NilError(t, w.Close())
	return archive.Bytes()
}

// kernel has a kernel of Jupyter run code, as its own pages do.
const kernel = `(async () => {
	const xsrf = document.cookie.match(/_xsrf=([^;]+)/)[1]
	const kernel = await (await fetch('/api/kernels', {method: 'POST', headers: {'X-XSRFToken': xsrf}})).json()
	const socket = new WebSocket('ws://' + location.host + '/api/kernels/' + kernel.id + '/channels')
	await new Promise((open, fail) => { socket.onopen = open; socket.onerror = () => fail('no socket') })
	return await new Promise(done => {
		socket.onmessage = m => { const said = JSON.parse(m.data); if (said.msg_type === 'stream') done(said.content.text.trim()) }
		socket.send(JSON.stringify({channel: 'shell', header: {msg_id: 'm', username: '', session: 's', msg_type: 'execute_request', version: '5.3'},
			parent_header: {}, metadata: {}, content: {code: 'print(6 * 7)', silent: false, store_history: false, user_expressions: {}, allow_stdin: false}}))
	})
})()`

// Programs that know of no proxy work at a host of their own, in a real browser.
func TestPreviewsByHostInABrowser(t *testing.T) {
	page := startBrowser(t)
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + fmt.Sprintf("provider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 1\n  memory_mb = 1024\n}\n", binaries.Runsc(t)),
	})
	served, err := url.Parse(b.URL)
	assert.NilError(t, err)
	file, err := os.OpenFile(b.ConfigFile(), os.O_APPEND|os.O_WRONLY, 0)
	assert.NilError(t, err)
	_, err = fmt.Fprintf(file, "previews { address = \"http://*.localhost:%s\" }\n", served.Port())
	assert.NilError(t, err)
	assert.NilError(t, file.Close())

	start := func(t *testing.T, session string) (instance string) {
		var made struct{ ID string }
		b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": session, "language": "python"}).Into(t, &made)
		return "/api/v1/instances/" + made.ID
	}
	// serve starts a program in the background and returns the address of its preview.
	serve := func(t *testing.T, instance string, port int, argv ...string) (address string) {
		started := b.Do(http.MethodPost, instance+"/commands", harness.Token, map[string]any{
			"argv": argv, "background": true, "timeout": 600, "env": map[string]string{"HOME": "/workspace"},
		})
		assert.Assert(t, started.Status < 300, "%s", started.Body)
		poll.WaitOn(t, func(poll.LogT) poll.Result {
			var link struct {
				URL string `json:"host_url"`
			}
			b.Do(http.MethodPost, fmt.Sprintf("%s/ports/%d/preview", instance, port), harness.Token, map[string]any{}).Into(t, &link)
			if address = link.URL; address == "" {
				return poll.Continue("no host yet")
			}
			if a := b.Do(http.MethodGet, fmt.Sprintf("%s/ports/%d/", instance, port), harness.Token, nil); a.Status == http.StatusBadGateway {
				return poll.Continue("it does not listen: %s", a.Body)
			}
			return poll.Success()
		}, poll.WithTimeout(2*time.Minute), poll.WithDelay(200*time.Millisecond))
		return address
	}

	t.Run("Vite, with what changes while it runs", func(t *testing.T) {
		project := viteProject(t)
		instance := start(t, "vite")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.URL+instance+"/archive", bytes.NewReader(project))
		assert.NilError(t, err)
		req.Header.Set("Authorization", "Bearer "+harness.Token)
		req.Header.Set("Content-Type", "application/x-tar")
		resp, err := http.DefaultClient.Do(req)
		assert.NilError(t, err)
		text, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		assert.Equal(t, resp.StatusCode, http.StatusOK, "%s", text)
		page.open(serve(t, instance, 5173, "node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1"))
		page.until(`document.getElementById('app')?.textContent`, "first")
		page.until(`getComputedStyle(document.getElementById('app')).color`, "rgb(1, 2, 3)")
		assert.Equal(t, page.evaluate(`localStorage.getItem('kept') + ' ' + document.cookie`), "yes mine=1")
		page.evaluate(`window.same = true`)
		req, err = http.NewRequestWithContext(t.Context(), http.MethodPut, b.URL+instance+"/files/content?path=word.js", strings.NewReader("export const word = 'second'\n"))
		assert.NilError(t, err)
		req.Header.Set("Authorization", "Bearer "+harness.Token)
		req.Header.Set("Content-Type", "application/octet-stream")
		resp, err = http.DefaultClient.Do(req)
		assert.NilError(t, err)
		assert.NilError(t, resp.Body.Close())
		page.until(`document.getElementById('app').textContent`, "second")
		assert.Equal(t, page.evaluate(`window.same`), "true", "by its WebSocket, and not by loading the page again")
	})
	t.Run("Jupyter, with a kernel", func(t *testing.T) {
		binaries.Needs(t, "jupyter-notebook", "jupyter-notebook")
		address := serve(t, start(t, "jupyter"), 8888, "jupyter-notebook", "--no-browser", "--port=8888", "--ip=127.0.0.1", "--NotebookApp.token=", "--NotebookApp.password=")
		page.open(address + "tree")
		page.until(`document.cookie.includes('_xsrf=') + ' ' + !!document.getElementById('notebook_list')`, "true true")
		assert.Equal(t, page.evaluate(`document.cookie.includes('mine')`), "false", "cookies of another preview stay there")
		assert.Equal(t, page.evaluate(kernel), "42")
	})
}
