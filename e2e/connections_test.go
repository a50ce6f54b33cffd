package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

// silence is somebody who holds connections without a word, and opens another for
// each that is closed.
type silence struct {
	stop    context.CancelFunc
	holding sync.WaitGroup
}

func holdSilently(t *testing.T, address string, connections int) *silence {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &silence{stop: cancel}
	var opened sync.WaitGroup
	for range connections {
		opened.Add(1)
		s.holding.Go(func() {
			var once sync.Once
			var dialer net.Dialer
			for range 5 { // bounded, however often it is turned away
				conn, err := dialer.DialContext(ctx, "tcp", address)
				once.Do(opened.Done)
				if err != nil {
					return
				}
				closing := context.AfterFunc(ctx, func() { _ = conn.Close() })
				_, _ = io.Copy(io.Discard, conn) // until it is closed
				closing()
				_ = conn.Close()
			}
		})
	}
	opened.Wait()
	return s
}

func (s *silence) end() {
	s.stop()
	s.holding.Wait()
}

// Who has no token can take no descriptor away from those who have one, nor from the
// broker itself.
func TestConnectionsWithoutATokenAreInNobodysWay(t *testing.T) {
	tier.Full(t)
	for _, descriptors := range []int{256, 1024, 4096} {
		t.Run(fmt.Sprintf("with %d descriptors", descriptors), func(t *testing.T) {
			b := harness.Start(t, harness.Options{
				Config:      harness.Tenants + "metrics { listen = \"127.0.0.1:0\" }\nprovider \"mock\" {\n}\n",
				Plugins:     map[string]string{"mock": mockPlugin},
				Descriptors: descriptors,
			})
			var instance struct{ ID string }
			b.Do(http.MethodPost, "/api/v1/instances", harness.Token, map[string]any{"session_id": "s", "language": "mock"}).Into(t, &instance)
			b.CloseIdleConnections()
			scraped := metricsAddress.FindStringSubmatch(b.Log())
			assert.Assert(t, len(scraped) == 2, b.Log())

			crowd := holdSilently(t, strings.TrimPrefix(b.URL, "http://"), descriptors+300)
			defer crowd.end()
			scrapers := holdSilently(t, scraped[1], 300)
			defer scrapers.end()

			for range 20 { // each by a connection of its own
				result := honestly(b, http.MethodPost, "/api/v1/execute", map[string]any{"language": "mock", "code": `{"stdout": "works"}`})
				assert.Equal(t, result.Status, http.StatusOK, "%s %v\n%s", result.Body, result.Err, b.Log())
				b.CloseIdleConnections()
			}
			metrics := scrape(t, "http://"+scraped[1])
			assert.Check(t, is.Regexp(`sandbox_broker_connections_closed_total{reason="no_token",server="api"} [1-9]`, metrics))
			assert.Check(t, is.Regexp(`sandbox_broker_connections_closed_total{reason="no_token",server="metrics"} [1-9]`, metrics))
			assert.Check(t, is.Contains(b.Log(), "too many connections without a token"))

			// It can be moved elsewhere, and those who hold the old address are left behind.
			before := b.URL
			file, err := os.ReadFile(b.ConfigFile())
			assert.NilError(t, err)
			moved := strings.Replace(string(file), `listen = "127.0.0.1:0"`, fmt.Sprintf("listen = %q", freeAddress(t)), 1)
			assert.NilError(t, os.WriteFile(b.ConfigFile(), []byte(moved), 0o644))
			poll.WaitOn(t, func(poll.LogT) poll.Result {
				if _, after, ok := strings.Cut(b.Log(), "the API has moved: address="); ok {
					b.URL = "http://" + strings.Fields(after)[0]
					return poll.Success()
				}
				return poll.Continue("%s", b.Log())
			}, poll.WithTimeout(2*time.Minute), poll.WithDelay(20*time.Millisecond))
			assert.Check(t, b.URL != before)
			second := holdSilently(t, strings.TrimPrefix(b.URL, "http://"), descriptors/2)
			defer second.end()
			answer := honestly(b, http.MethodGet, "/api/v1/instances/"+instance.ID, nil)
			assert.Equal(t, answer.Status, http.StatusOK, "nothing is destroyed: %s", answer.Body)
			select {
			case <-b.Ended():
				t.Fatalf("the broker ended:\n%s", b.Log())
			default:
			}
			assert.Check(t, !strings.Contains(b.Log(), "stopping"))
		})
	}
}

// attempts is how often an honest client connects for one request. Where its token
// takes longer to arrive than the broker's patience with strangers, its connection
// may be closed; a machine that does much else can be as slow.
const attempts = 4

func honestly(b *harness.Broker, method, path string, body any) (answer harness.Answer) {
	for range attempts {
		if answer = b.Do(method, path, harness.Token, body); answer.Err == nil {
			break
		}
		b.CloseIdleConnections()
	}
	return answer
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 4 * time.Minute}
	var resp *http.Response
	var err error
	for range attempts {
		if resp, err = client.Get(address + "/metrics"); err == nil {
			break
		}
	}
	assert.NilError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NilError(t, err)
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}
