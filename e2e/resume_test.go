package e2e_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// sums are of what an execution has told.
type sums struct {
	stdout, stderr, artifacts hash.Hash
	bytes                     int
	last                      string
	ids                       map[string]bool
}

func newSums() *sums {
	return &sums{stdout: sha256.New(), stderr: sha256.New(), artifacts: sha256.New(), ids: map[string]bool{}}
}

// take adds an event, which must not have come before.
func (s *sums) take(e client.Event) error {
	if e.ID == "" || s.ids[e.ID] {
		return fmt.Errorf("event %s comes twice, or has no ID: %q", e.Name, e.ID)
	}
	s.ids[e.ID], s.last = true, e.Name
	var part client.OutputPart
	switch e.Name {
	case client.EventStdout, client.EventStderr:
		if err := client.Decode(e, &part); err != nil {
			return err
		}
		to := s.stdout
		if e.Name == client.EventStderr {
			to = s.stderr
		}
		n, _ := to.Write(append([]byte(part.Text), part.Base64...)) // a hash takes all
		s.bytes += n
	case client.EventArtifact:
		var artifact client.Artifact
		if err := client.Decode(e, &artifact); err != nil {
			return err
		}
		fmt.Fprintf(s.artifacts, "%s %x", artifact.Name, artifact.Base64)
	}
	return nil
}

func (s *sums) String() string {
	return fmt.Sprintf("%x %x %x, %d bytes", s.stdout.Sum(nil), s.stderr.Sum(nil), s.artifacts.Sum(nil), s.bytes)
}

// mixed prints a mebibyte on both streams, text and bytes, and leaves files.
const mixed = `import hashlib, os, sys
out, err, files = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
os.makedirs("artifacts", exist_ok=True)
for i in range(256):
    a = (str(i) * 3000).encode()[:2040] + "\u20ac\U0001f600\n".encode()
    b = bytes((i + n) % 256 for n in range(2048))
    sys.stdout.buffer.write(a); sys.stdout.buffer.flush(); out.update(a)
    sys.stderr.buffer.write(b); sys.stderr.buffer.flush(); err.update(b)
for i in range(5):
    data = bytes((i * n) % 256 for n in range(20000))
    open(f"artifacts/{i}.bin", "wb").write(data)
    files.update(f"artifacts/{i}.bin {data.hex()}".encode())
def main():
    return " ".join(h.hexdigest() for h in (out, err, files))
`

// readCut reads an execution with a connection for each event, each cut behind it.
func readCut(ctx context.Context, b *harness.Broker, id string) (*sums, error) {
	s := newSums()
	after := ""
	for s.last != client.EventDone {
		api := b.API()
		if after != "" {
			api = api.With("Last-Event-ID", after)
		}
		resp, err := api.Do(ctx, client.Request{Method: http.MethodGet, Path: "/api/v1/executions/" + id + "/events", Accept: "text/event-stream"}) //nolint:bodyclose // Events.Close does
		if err != nil {
			return nil, err
		}
		events := client.NewEvents(resp.Body)
		e, err := events.Next()
		_ = events.Close()
		if err == nil {
			err = s.take(e)
		}
		if err != nil {
			return nil, err
		}
		after = e.ID
	}
	return s, nil
}

func TestAStreamThatIsCutAtEveryEventIsWhole(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := startReal(t, "")
	api := b.API()
	info, err := client.ExecutionsOf(api).Start(t.Context(), client.ExecuteRequest{Language: "python", Code: mixed, Arguments: client.JSONObject("{}"), Timeout: 300})
	assert.NilError(t, err)

	// Two that read while it runs, and one over a line that breaks.
	read := make([]*sums, 3)
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			var err error
			read[i], err = readCut(t.Context(), b, info.ExecutionID)
			assert.Check(t, err)
		})
	}
	wg.Go(func() {
		read[2] = newSums()
		bad := client.New(breaking(t, strings.TrimPrefix(b.URL, "http://"), 200<<10), harness.Token)
		events, err := client.ExecutionsOf(bad).Events(t.Context(), info.ExecutionID, "", true)
		if !assert.Check(t, err) {
			return
		}
		defer events.Close()
		for e, err := range events.All() {
			if !assert.Check(t, err) || !assert.Check(t, read[2].take(e)) {
				return
			}
		}
	})
	wg.Wait()
	if t.Failed() {
		return
	}

	found, err := client.ExecutionsOf(api).Get(t.Context(), info.ExecutionID)
	assert.NilError(t, err)
	assert.Equal(t, found.State, client.ExecutionSucceeded)
	assert.Equal(t, found.EventsLost, int64(0))
	want := fmt.Sprintf("%s, %d bytes", strings.Trim(string(found.Execution.Result), `"`), 256*(2048+2048))
	assert.Equal(t, int64(len(read[0].ids)), found.Events)
	for _, s := range append(read, again(t, b, info.ExecutionID)) {
		assert.Equal(t, s.String(), want)
		assert.Equal(t, s.last, client.EventDone)
	}
	assert.Equal(t, len(found.Execution.Artifacts), 5)
	assert.Equal(t, len(found.Execution.Stdout), 256*2048)

	// And nobody else's.
	answer := b.Do(http.MethodGet, "/api/v1/executions/"+info.ExecutionID+"/events", harness.OtherToken, nil)
	harness.Refused(t, answer, http.StatusNotFound, "SB013")
	answer = b.Do(http.MethodDelete, "/api/v1/executions/"+info.ExecutionID, harness.OtherToken, nil)
	harness.Refused(t, answer, http.StatusNotFound, "SB013")

	t.Run("a command's too", func(t *testing.T) { commandThatIsCut(t, b) })
}

// commandThatIsCut reads what a command prints, cut at every event and over a line that
// breaks.
func commandThatIsCut(t *testing.T, b *harness.Broker) {
	api := b.API()
	i, err := api.CreateInstance(t.Context(), client.CreateInstanceRequest{Template: "bash"})
	assert.NilError(t, err)
	command, err := api.StartCommand(t.Context(), i.ID, client.StartCommandRequest{Command: "seq 1 30000; seq 30000 -1 1 >&2; seq 1 9", Background: true})
	assert.NilError(t, err)
	var out, back strings.Builder
	for n := range 30000 {
		fmt.Fprintln(&out, n+1)
		fmt.Fprintln(&back, 30000-n)
	}
	want := [2]string{out.String() + "1\n2\n3\n4\n5\n6\n7\n8\n9\n", back.String()}

	follow := url.Values{"follow": {"true"}}
	var got [2]string
	for after, last := "", ""; last != client.EventDone; {
		from := api
		if after != "" {
			from = api.With("Last-Event-ID", after)
		}
		events, err := from.FollowCommand(t.Context(), i.ID, command.ID, follow)
		assert.NilError(t, err)
		e, err := events.Next()
		if e.Name == client.EventStarted {
			e, err = events.Next()
		}
		assert.NilError(t, err)
		assert.NilError(t, events.Close())
		if last = e.Name; last != client.EventDone {
			after = e.ID
			addOutput(t, &got, e)
		}
	}
	assert.Check(t, got == want, "cut at every event: %d and %d bytes", len(got[0]), len(got[1]))

	bad := client.New(breaking(t, strings.TrimPrefix(b.URL, "http://"), 50<<10), harness.Token)
	events, err := bad.FollowCommand(t.Context(), i.ID, command.ID, follow)
	assert.NilError(t, err)
	defer events.Close()
	got = [2]string{}
	for e, err := range events.All() {
		assert.NilError(t, err)
		if e.Name == client.EventStdout || e.Name == client.EventStderr {
			addOutput(t, &got, e)
		}
	}
	assert.Check(t, got == want, "over a line that breaks: %d and %d bytes", len(got[0]), len(got[1]))
	answer := b.DoWith(http.MethodGet, "/api/v1/instances/"+i.ID+"/commands/"+command.ID+"/logs", harness.Token, nil, map[string]string{"Last-Event-ID": "1.x"})
	harness.Refused(t, answer, http.StatusUnprocessableEntity, "SB010")
}

func addOutput(t *testing.T, to *[2]string, e client.Event) {
	t.Helper()
	var part client.CommandOutputPart
	assert.NilError(t, client.Decode(e, &part))
	which := 0
	if e.Name == client.EventStderr {
		which = 1
	}
	assert.Equal(t, part.Offset, int64(len(to[which])))
	to[which] += part.Text + string(part.Base64)
}

// again reads an execution that has ended, cut at every event.
func again(t *testing.T, b *harness.Broker, id string) *sums {
	t.Helper()
	s, err := readCut(t.Context(), b, id)
	assert.NilError(t, err)
	return s
}

// breaking is a line to an address that is cut each time so many bytes have come from
// there.
func breaking(t *testing.T, to string, bytes int64) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				there, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer there.Close()
				go func() { _, _ = io.Copy(there, conn) }()
				_, _ = io.CopyN(conn, there, bytes)
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

func TestAReaderThatIsSlowerThanTheLogIsTold(t *testing.T) {
	t.Parallel()
	b := harness.Start(t, harness.Options{Config: "provider \"self_managed\" { pool_size = 1 }\nlimits { execution_log_bytes = 65536 }\n" + harness.Tenants})
	api := b.API()
	info, err := client.ExecutionsOf(api).Start(t.Context(), client.ExecuteRequest{Language: "python", Code: mixed, Timeout: 300})
	assert.NilError(t, err)
	ended := executionEnds(t, api, info.ExecutionID)
	assert.Assert(t, ended.EventsLost > 0)
	events, err := client.ExecutionsOf(api).Events(t.Context(), info.ExecutionID, "0", true)
	assert.NilError(t, err)
	defer events.Close()
	var count, lost int64
	for e, err := range events.All() {
		assert.NilError(t, err)
		if e.Name != client.EventLost {
			count++
			continue
		}
		var gap client.EventsLost
		assert.NilError(t, client.Decode(e, &gap))
		assert.Equal(t, gap.Code, "SB013")
		lost += gap.Events
	}
	assert.Equal(t, lost, ended.EventsLost)
	assert.Equal(t, count+lost, ended.Events)
}

func executionEnds(t *testing.T, api *client.Client, id string) (ended client.ExecutionInfo) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		var err error
		if ended, err = client.ExecutionsOf(api).Get(t.Context(), id); err != nil {
			return poll.Error(err)
		}
		if ended.State == client.ExecutionRunning {
			return poll.Continue("it runs")
		}
		return poll.Success()
	}, poll.WithDelay(20*time.Millisecond), poll.WithTimeout(2*time.Minute))
	return ended
}

// hook is a receiver of webhooks that checks the signature by the published rules.
type hook struct {
	*httptest.Server
	fails bool
	posts chan string
}

func newHook(t *testing.T, secret string) *hook {
	t.Helper()
	h := &hook{posts: make(chan string, 100)}
	var mu sync.Mutex
	first := true
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.Check(t, err)
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		assert.Check(t, is.Equal(r.Header.Get("webhook-signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
		mu.Lock()
		defer mu.Unlock()
		if h.fails && first {
			first = false
			w.WriteHeader(http.StatusBadGateway)
			h.posts <- ""
			return
		}
		h.posts <- string(body)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) next(t *testing.T) string {
	t.Helper()
	select {
	case body := <-h.posts:
		return body
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing is posted")
		return ""
	}
}

func TestABrokerThatIsKilledSaysWhatBecameOfDetachedExecutions(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	h := newHook(t, secret)
	h.fails = true
	b := harness.Start(t, harness.Options{Config: `
provider "self_managed" { pool_size = 1 }
quota { max_concurrent = 100 }
tenant "acme" {
  token_sha256 = ["80f196a8c8fcbdecce7c3c1d44bcd50539617f29e98e5162ca24f75c693e1936"]
  webhooks {
    allow_private = ["` + strings.TrimPrefix(h.URL, "http://") + `"]
    secret        = "whsec_` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"
  }
}`})
	api := b.API()
	detach := func(id, code string) {
		t.Helper()
		_, err := client.ExecutionsOf(api).Start(t.Context(), client.ExecuteRequest{
			Language: "python", Code: code, ExecutionID: id, Timeout: 300, Webhook: &client.Webhook{URL: h.URL + "/" + id},
		})
		assert.NilError(t, err)
	}
	_, err := client.ExecutionsOf(api).Start(t.Context(), client.ExecuteRequest{Language: "python", Code: "1", Webhook: &client.Webhook{URL: "https://evil.example"}})
	problem, refused := errors.AsType[*client.Problem](err)
	assert.Assert(t, refused, "%v", err)
	assert.Equal(t, problem.Code, "SB012")

	// Its caller is gone, its report was refused once, and the broker is killed.
	detach("done", "print('done')")
	assert.Equal(t, h.next(t), "")
	detach("cut", "print('begun', flush=True)\nimport time\ntime.sleep(300)")
	events, err := client.ExecutionsOf(api).Events(t.Context(), "cut", "", true)
	assert.NilError(t, err)
	var last client.Event
	for e, err := range events.All() {
		assert.NilError(t, err)
		if last = e; e.Name == client.EventStdout {
			break
		}
	}
	assert.NilError(t, events.Close())
	b.Kill()
	b.Restart()

	api = b.API()
	bodies := h.next(t) + h.next(t)
	assert.Check(t, is.Contains(bodies, `"type":"execution.ended"`))
	assert.Check(t, is.Contains(bodies, `"execution_id":"done","state":"succeeded"`))
	assert.Check(t, is.Contains(bodies, `"execution_id":"cut","state":"unknown"`))
	cut, err := client.ExecutionsOf(api).Get(t.Context(), "cut")
	assert.NilError(t, err)
	assert.Equal(t, cut.State, client.ExecutionUnknown)
	assert.Equal(t, cut.Error.Code, "SB009")
	assert.Assert(t, cut.InstanceID != "")
	_, err = readCutFrom(t.Context(), api, "cut", last.ID)
	problem, refused = errors.AsType[*client.Problem](err)
	assert.Assert(t, refused, "%v", err)
	assert.Equal(t, problem.Code, "SB009")
	done, err := client.ExecutionsOf(api).Get(t.Context(), "done")
	assert.NilError(t, err)
	assert.Equal(t, done.State, client.ExecutionSucceeded)

	// An orderly stop says the same, after its patience.
	detach("stopped", "import time\ntime.sleep(300)")
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		info, err := client.ExecutionsOf(api).Get(t.Context(), "stopped")
		if err != nil {
			return poll.Error(err)
		}
		if info.StartedAt == nil {
			return poll.Continue("it has not begun")
		}
		return poll.Success()
	}, poll.WithDelay(20*time.Millisecond), poll.WithTimeout(2*time.Minute))
	assert.NilError(t, client.ExecutionsOf(api).Interrupt(t.Context(), "stopped"))
	assert.Equal(t, executionEnds(t, api, "stopped").State, client.ExecutionInterrupted)
	assert.Check(t, is.Contains(h.next(t), `"state":"interrupted"`))
}

// readCutFrom returns the next event behind one.
func readCutFrom(ctx context.Context, api *client.Client, id, after string) (client.Event, error) {
	events, err := client.ExecutionsOf(api).Events(ctx, id, after, true)
	if err != nil {
		return client.Event{}, err
	}
	defer events.Close()
	return events.Next()
}
