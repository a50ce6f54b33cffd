package sink_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/audit/sink"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLog(t *testing.T, dir string, o audit.Options) *audit.Log {
	t.Helper()
	o.Dir, o.Logger = dir, hclog.NewNullLogger()
	log, err := audit.Open(o)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = log.Close(context.Background()) }) // some tests have closed it
	return log
}

func act(t *testing.T, log *audit.Log) {
	t.Helper()
	r, err := log.Begin(t.Context(), audit.Effect{Operation: "create"})
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
}

// store is a sender that keeps what it gets, or fails.
type store struct {
	mu    sync.Mutex
	seqs  []uint64
	sends int
	fail  error
}

func (s *store) Send(_ context.Context, lines [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sends++
	if s.fail != nil {
		return s.fail
	}
	for _, line := range lines {
		parsed, err := audit.ParseLine(line)
		if err != nil {
			return err
		}
		s.seqs = append(s.seqs, parsed.Seq)
	}
	return nil
}

func (s *store) Close() {}

func (s *store) set(fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// got returns the numbers of the lines.
func (s *store) got() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]uint64(nil), s.seqs...)
}

// await waits for a line.
func (s *store) await(t *testing.T, last uint64) {
	t.Helper()
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if got := s.got(); len(got) == 0 || got[len(got)-1] < last {
			return poll.Continue("%v", got)
		}
		return poll.Success()
	}, poll.WithDelay(time.Millisecond), poll.WithTimeout(2*time.Minute))
}

// awaitUpTo waits for a line and says that all from the first on came in order.
func (s *store) awaitUpTo(t *testing.T, last uint64) {
	t.Helper()
	s.await(t, last)
	for i, seq := range s.got() {
		assert.Equal(t, seq, s.got()[0]+uint64(i))
	}
}

// follow starts a follower, which ends with the test or when stop is called.
func follow(t *testing.T, log sink.Log, to sink.Sender) (f *sink.Follower, stop func()) {
	t.Helper()
	f, err := sink.NewFollower("test", log, to, hclog.NewNullLogger())
	assert.NilError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Run(context.Background())
	}()
	stop = sync.OnceFunc(func() {
		f.Stop()
		<-ended
	})
	t.Cleanup(stop)
	return f, stop
}

func lastOf(log *audit.Log) uint64 {
	last, _ := log.Last()
	return last
}

func TestLinesAreSentInOrderAcrossFiles(t *testing.T) {
	log := newLog(t, filepath.Join(scratch.Dir(t), "audit"), audit.Options{Detail: audit.Detail{MaxBytes: 3000}})
	to := &store{}
	f, _ := follow(t, log, to)
	for range 100 {
		act(t, log)
	}
	to.awaitUpTo(t, lastOf(log))
	poll.WaitOn(t, func(poll.LogT) poll.Result {
		if f.Behind() > 0 {
			return poll.Continue("%d behind", f.Behind())
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}

func TestWhatCannotBeSentStaysAndIsSentLater(t *testing.T) {
	log := newLog(t, filepath.Join(scratch.Dir(t), "audit"), audit.Options{})
	to := &store{fail: errors.New("nobody there")}
	f, _ := follow(t, log, to)
	for range 10 {
		act(t, log)
	}
	poll.WaitOn(t, func(poll.LogT) poll.Result { // the last end is on disk a moment later
		return poll.Compare(is.Equal(f.Behind(), uint64(20)))
	}, poll.WithTimeout(2*time.Minute))
	to.set(nil)
	to.awaitUpTo(t, lastOf(log))
}

func TestTheNextRunSendsWhatThisOneCouldNot(t *testing.T) {
	dir := filepath.Join(scratch.Dir(t), "audit")
	log := newLog(t, dir, audit.Options{})
	first := &store{}
	_, stop := follow(t, log, first)
	act(t, log)
	first.awaitUpTo(t, lastOf(log))
	first.set(errors.New("nobody there"))
	for range 10 {
		act(t, log)
	}
	stop()
	assert.NilError(t, log.Close(t.Context()))

	again := newLog(t, dir, audit.Options{})
	second := &store{}
	follow(t, again, second)
	second.awaitUpTo(t, lastOf(again))
	got := first.got()
	assert.Equal(t, second.got()[0], got[len(got)-1]+1, "nothing is left out")
}

func TestAFollowerEndsWhenEverythingIsSent(t *testing.T) {
	log := newLog(t, filepath.Join(scratch.Dir(t), "audit"), audit.Options{})
	to := &store{}
	_, stop := follow(t, log, to)
	for range 2000 {
		act(t, log)
	}
	assert.NilError(t, log.Close(t.Context()))
	stop()
	assert.Equal(t, to.got()[len(to.got())-1], lastOf(log))
}

func TestLinesThatSomebodyHasRemovedAreMissedOnce(t *testing.T) {
	dir := filepath.Join(scratch.Dir(t), "audit")
	log := newLog(t, dir, audit.Options{})
	to := &store{fail: errors.New("nobody there")}
	follow(t, log, to)
	act(t, log)
	segments, err := audit.Segments(dir)
	assert.NilError(t, err)
	assert.NilError(t, os.Remove(segments[0].Path))
	act(t, log)
	to.set(nil)
	to.await(t, lastOf(log))
	got := to.got()
	assert.Check(t, slices.IsSorted(got) && len(slices.Compact(slices.Clone(got))) == len(got), "%v", got)
	segments, err = audit.Segments(dir)
	assert.NilError(t, err)
	// Of the removed file, the follower may have read some lines before.
	for seq := segments[0].First; seq <= lastOf(log); seq++ {
		assert.Check(t, slices.Contains(got, seq), "%d of %v", seq, got)
	}
}

func TestACursorOfAnotherLogIsNotBelieved(t *testing.T) {
	dir := filepath.Join(scratch.Dir(t), "audit")
	log := newLog(t, dir, audit.Options{})
	assert.NilError(t, os.WriteFile(dir+"/cursor-test", []byte("999\n"), 0o600))
	to := &store{}
	follow(t, log, to)
	to.awaitUpTo(t, lastOf(log))
	assert.Equal(t, to.got()[0], uint64(1))

	assert.NilError(t, os.WriteFile(dir+"/cursor-other", []byte("x"), 0o600))
	_, err := sink.NewFollower("other", log, to, hclog.NewNullLogger())
	assert.ErrorContains(t, err, "does not hold the number of a line")
}

func TestAWebhookGetsLinesOfJSON(t *testing.T) {
	var mu sync.Mutex
	var bodies bytes.Buffer
	status := http.StatusUnauthorized
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		assert.Check(t, is.Equal(r.Header.Get("Content-Type"), "application/x-ndjson"))
		assert.Check(t, is.Equal(r.Header.Get("Authorization"), "Bearer secret"))
		if status == http.StatusOK {
			_, _ = io.Copy(&bodies, r.Body)
		}
		if status == http.StatusFound {
			w.Header().Set("Location", "http://example.invalid/")
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	w := sink.NewWebhook(server.URL, "secret")
	defer w.Close()
	lines := [][]byte{[]byte(`{"seq":1}`), []byte(`{"seq":2}`)}
	assert.ErrorContains(t, w.Send(t.Context(), lines), "status 401")
	mu.Lock()
	status = http.StatusFound
	mu.Unlock()
	assert.ErrorContains(t, w.Send(t.Context(), lines), "status 302", "nobody else gets them")
	mu.Lock()
	status = http.StatusOK
	mu.Unlock()
	assert.NilError(t, w.Send(t.Context(), lines))
	assert.Equal(t, bodies.String(), "{\"seq\":1}\n{\"seq\":2}\n")
}

func TestAFailureOfTheWebhookDoesNotShowItsAddress(t *testing.T) {
	w := sink.NewWebhook("http://127.0.0.1:1/hunter2", "")
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := w.Send(ctx, [][]byte{[]byte("{}")})
	assert.Assert(t, err != nil && !strings.Contains(err.Error(), "hunter2"), "%v", err)
}

var syslogForm = regexp.MustCompile(`^<110>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ sandbox-broker \d+ audit - (\{.*\})$`)

func assertSyslog(t *testing.T, message string) {
	t.Helper()
	m := syslogForm.FindStringSubmatch(message)
	assert.Assert(t, m != nil, "%q", message)
	assert.Check(t, json.Valid([]byte(m[1])))
}

const aLine = `{"seq":1,"timestamp":"2026-03-01T12:00:00.000001Z","operation":"create_instance"}`

func TestSyslogInDatagrams(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for network, address := range map[string]string{"udp": "127.0.0.1:0", "unixgram": path} {
		t.Run(network, func(t *testing.T) {
			server, err := net.ListenPacket(network, address)
			assert.NilError(t, err)
			defer server.Close()
			url := "udp://" + server.LocalAddr().String()
			if network == "unixgram" {
				url = "unix://" + path
			}
			s, err := sink.NewSyslog(url)
			assert.NilError(t, err)
			defer s.Close()
			long := strings.Replace(aLine, "create_instance", strings.Repeat("x", 100_000), 1)
			assert.NilError(t, s.Send(t.Context(), [][]byte{[]byte(aLine), []byte(long)}))
			buf := make([]byte, 1<<16)
			n, _, err := server.ReadFrom(buf)
			assert.NilError(t, err)
			assertSyslog(t, string(buf[:n]))
			n, _, err = server.ReadFrom(buf)
			assert.NilError(t, err)
			assert.Check(t, is.Contains(string(buf[:n]), "too long for a datagram"))
		})
	}
}

func TestSyslogOverTCPCountsItsMessages(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer server.Close()
	s, err := sink.NewSyslog("tcp://" + server.Addr().String())
	assert.NilError(t, err)
	defer s.Close()
	assert.NilError(t, s.Send(t.Context(), [][]byte{[]byte(aLine), []byte(aLine)}))
	conn, err := server.Accept()
	assert.NilError(t, err)
	defer conn.Close()
	r := bufio.NewReader(conn)
	for range 2 {
		var size int
		_, err := fmt.Fscanf(r, "%d ", &size)
		assert.NilError(t, err)
		message := make([]byte, size)
		_, err = io.ReadFull(r, message)
		assert.NilError(t, err)
		assertSyslog(t, string(message))
	}
}

func TestASyslogServerThatIsNotThere(t *testing.T) {
	s, err := sink.NewSyslog("unix://" + filepath.Join(t.TempDir(), "none"))
	assert.NilError(t, err)
	assert.Assert(t, s.Send(t.Context(), [][]byte{[]byte(aLine)}) != nil)
}

// lostLog has lines to send, and no files.
type lostLog struct {
	dir   string
	asked []time.Time
}

func (l *lostLog) Dir() string { return l.dir }

func (l *lostLog) Last() (seq uint64, more <-chan struct{}) {
	l.asked = append(l.asked, time.Now())
	return uint64(len(l.asked) - 1), nil
}

type noSender struct{}

func (noSender) Send(context.Context, [][]byte) error { return nil }
func (noSender) Close()                               {}

func TestPausesAfterFailuresDoubleUpToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lostLog{dir: t.TempDir()}
		f, err := sink.NewFollower("lost", log, noSender{}, hclog.NewNullLogger())
		assert.NilError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
		f.Run(ctx)
		tries := log.asked[2:] // NewFollower asked, then the first try, which asks again to log how much waits
		assert.Assert(t, len(tries) > 12, "%d", len(tries))
		pause := 500 * time.Millisecond
		for i := range len(tries) - 1 {
			took := tries[i+1].Sub(tries[i])
			assert.Check(t, took >= pause/2 && took <= pause*3/2, "pause %d: %v instead of %v", i, took, pause)
			pause = min(2*pause, time.Minute)
		}
	})
}
